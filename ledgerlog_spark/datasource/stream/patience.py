"""Asking again while a failure may pass: an error that gets out of a source ends the query."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.errors import LedgerLogError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS_FIRST = 0.05
_PAUSE_SECONDS_MAX = 2.0

_logger = logging.getLogger(__name__)


def patiently(ask: Callable[[], T]) -> T:
    """What `ask` returns, asked again while its failure may pass.

    Raises:
        LedgerLogError: It did not pass in `PATIENCE_SECONDS`, or cannot.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = _PAUSE_SECONDS_FIRST
    while True:
        try:
            return ask()
        except LedgerLogError as error:
            if not error.retriable or time.monotonic() + pause > deadline:
                raise
            _logger.warning("a request failed and is retried: %s", error)
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)
