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
"""A stream's driver considers upkeep when the log's version is a multiple of this."""

_LOGGER = logging.getLogger("ledgerlog_spark.upkeep")


THREAD_NAME = "ledgerlog-upkeep"


def upkeep_after_commit(client: BlockingClient, log: str, version: int | None) -> bool:
    """Begin a pass over a log if one is due, without waiting; return whether one was begun.

    For the process that commits the batches of a stream, whose client stays open while the process
    lives. The log's version alone determines whether a pass is due; it is None when the commit made
    none. At most one pass of the process runs at a time, on a thread that ends with the process. It
    does nothing when another process runs upkeep. An error is logged and left to the next pass.
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
