"""Runs upkeep in the background: in a process beside a local cluster, or in a stream's driver."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.upkeep.upkeep import Kept, Upkeep
from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.client import LedgerClient

T = TypeVar("T")

INTERVAL_SECONDS = 60.0
COMMITS_BETWEEN = 256
"""A stream's driver considers upkeep when the log's version is a multiple of this."""

_LOGGER = logging.getLogger("ledgerlog_spark.upkeep")


def _warn(error: LedgerLogError) -> None:
    _LOGGER.warning("upkeep must wait: %s", error)


async def keep_up(
    client: LedgerClient,
    *,
    stop: asyncio.Event,
    interval_seconds: float = INTERVAL_SECONDS,
    on_log: Callable[[Kept], None] = lambda _: None,
    on_pass: Callable[[bool], None] = lambda _: None,
    on_error: Callable[[LedgerLogError], None] = _warn,
    begins_at_once: bool = False,
) -> None:
    """Pass after pass, an interval apart; an error waits for the next pass.

    When `stop` is set it ends immediately, also in the middle of a pass, which is safe.

    Args:
        client: Composed with logs and leases.
        stop: Ends it.
        interval_seconds: Between the end of a pass and the start of the next one.
        on_log: Called with the result of a pass for a log.
        on_pass: Called after a pass; false when another process has the lease and nothing was done.
        on_error: Called after a failed pass; later passes still run.
        begins_at_once: Without a first interval.
    """
    upkeep = Upkeep(client, on_log=on_log)
    stopped = asyncio.ensure_future(stop.wait())
    pause_seconds = 0.0 if begins_at_once else interval_seconds
    try:
        while not stop.is_set():
            await asyncio.wait([stopped], timeout=pause_seconds)
            pause_seconds = interval_seconds
            if not stop.is_set():
                try:
                    done = await until_stopped(stopped, asyncio.ensure_future(upkeep.run()))
                except LedgerLogError as error:
                    on_error(error)
                    continue
                if not stop.is_set():
                    on_pass(done is not None)
    finally:
        stopped.cancel()


async def until_stopped(stopped: asyncio.Future[Any], work: asyncio.Future[T]) -> T | None:
    """The result of the work; None when it was cancelled because of `stopped`."""
    try:
        ended = asyncio.wait([stopped, work], return_when=asyncio.FIRST_COMPLETED)
        await forever(ended, "the work ends, as each of its requests does, or the service stops")
    finally:
        work.cancel()
    try:
        return await forever(work, "it is done, or was cancelled just now")
    except asyncio.CancelledError:
        if not stopped.done():
            raise
    return None


class _Passes:
    """At most one pass of this process at a time, on a thread that ends with the process."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self, client: BlockingClient, log: str) -> bool:
        """False when a pass is running. After a fork none is: threads are not inherited."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(
            target=_pass, args=(client, log), name="ledgerlog-upkeep", daemon=True
        )
        self._thread.start()
        return True

    def join(self) -> None:
        """Wait for the running pass."""
        if self._thread is not None:
            self._thread.join()


passes = _Passes()


def upkeep_after_commit(client: BlockingClient, log: str, version: int | None) -> bool:
    """Begin a pass over one log now and then; does not wait, and costs nothing when not due.

    For the process that commits the batches of a stream. It needs no state of earlier calls: the
    log's version alone determines whether a pass is due.

    The client stays open while the process lives; `version` is None when the commit made none.

    Returns:
        Whether a pass was begun. It does nothing when another process runs upkeep. An error is
        logged and left to the next pass.
    """
    if not version or version % COMMITS_BETWEEN:
        return False
    return passes.begin(client, log)


def _pass(client: BlockingClient, log: str) -> None:
    try:
        kept = client.run(lambda each: Upkeep(each).run([log])) or []
    except LedgerLogError as error:
        _LOGGER.warning("upkeep of log %s must wait: %s", log, error)
        return
    for done in kept:
        for failed in done.errors:
            _LOGGER.warning("upkeep of log %s must wait: %s", log, failed)
