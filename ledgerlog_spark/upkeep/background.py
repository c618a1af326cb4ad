"""Runs upkeep in the background of a stream's driver."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

COMMITS_BETWEEN = 256
"""A pass is due when the version of the log is a multiple of this number."""

_LOGGER = logging.getLogger("ledgerlog_spark.upkeep")

THREAD_NAME = "ledgerlog-upkeep"


def upkeep_after_commit(client: BlockingClient, log: str, version: int | None) -> bool:
    """Begin a pass over a log if a pass is due, without a wait. Return whether a pass was begun.

    The process that commits the batches of a stream calls this. Its client must stay open until the
    process ends. `version` is the version that the commit made; None if it made no version. The
    process runs at most one pass at a time, on a thread that ends with the process. The pass does
    nothing when another process runs upkeep. An error is logged, and the next pass tries again.
    """
    if not version or version % COMMITS_BETWEEN:
        return False
    if any(thread.name == THREAD_NAME for thread in threading.enumerate()):
        return False
    threading.Thread(target=_pass, args=(client, log), name=THREAD_NAME, daemon=True).start()
    return True


def _pass(client: BlockingClient, log: str) -> None:
    try:
        kept = client.run(lambda each: Upkeep(each).run([log])) or []
    except LedgerLogError as error:
        _LOGGER.warning("upkeep of log %s must wait: %s", log, error)
        return
    for done in kept:
        for failed in done.errors:
            _LOGGER.warning("upkeep of log %s must wait: %s", log, failed)
