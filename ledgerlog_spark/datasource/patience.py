"""Asking again while a failure, or an answer that is behind, may pass.

An error that gets out of a source ends the query.
"""

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

LOOK_SECONDS = 3.0
"""How long `looked_again` goes on, each look taking no time."""

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
            _logger.warning("asked again: %s", error)
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)


def looked_again(seen: T, look: Callable[[], T], is_behind: Callable[[T], bool]) -> T:
    """What was seen, or what is seen later while that is behind: the last look, after 3 s.

    Errors are those of `look`.

    Args:
        seen: By the first look.
        look: Looks again.
        is_behind: Whether what was seen may be older than what is there.
    """
    pause = _PAUSE_SECONDS_FIRST
    left = LOOK_SECONDS
    while left > 0 and is_behind(seen):
        time.sleep(min(pause, left))
        left -= pause
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        seen = look()
    return seen
