"""Upkeep as a separate process, until SIGTERM: `ledgerlog upkeep run`.

After each event, the process writes one JSON object as a line of standard output. Events are its
start and its end, a changed log, a log that could not be maintained, a failed pass, and an
unreachable ZooKeeper. If another process has the lease, one line reports this until this process
gets the lease. Several such processes may run, but only the holder of the lease works. A pass holds
the lease, so it does not wait for a blocked standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.composition import open_client
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.lines import DRAIN_SECONDS, LogLines
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from ledgerlog_spark.upkeep.upkeep import Kept, Upkeep, holder
from ledgerlog_spark.waits import forever

T = TypeVar("T")

INTERVAL_SECONDS = 60.0
RETRY = RetryPolicy(first_delay_ms=5_000, delay_max_ms=60_000, attempts_max=NO_LIMIT)

ERRORS_MAX = 5
ERROR_CHARACTERS_MAX = 500

DONE = 0
FAILED = 1
HELD = 4

STANDARD_OUTPUT = 1

WriteLine = Callable[[str], object]


@contextlib.contextmanager
def standard_output(*, drain_seconds: float | None = DRAIN_SECONDS) -> Iterator[WriteLine]:
    """Writes lines to standard output without waiting. Beyond 1 MiB, lines are dropped.

    Writing raises `BrokenPipeError` after the reader of the pipe has ended. At its end, the block
    waits up to `drain_seconds` for unwritten lines. None has no limit.
    """
    if sys.__stdout__ is None:  # it is closed, and another file may have its number now
        yield lambda _: None
        return
    lines = LogLines(STANDARD_OUTPUT, lambda count: _line("lines_dropped", count=count))

    def write_line(line: str) -> None:
        if lines.has_no_reader:
            raise BrokenPipeError
        lines.write(f"{line}\n")

    try:
        yield write_line
    finally:
        lines.drain(drain_seconds)


class UpkeepService:
    """One process that maintains all logs of a cluster."""

    def __init__(self, uri: str | None, write_line: WriteLine) -> None:
        """Without `uri`, the service uses the URI of the environment."""
        self._uri = uri
        self._write_line = write_line
        self._is_held_by_us: bool | None = None
        self._has_failed = False

    async def run_once(self, *, wait_seconds: float = 0) -> int:
        """Run one pass. Return its exit code: 0 done, 1 a log failed, 4 another has the lease."""
        async with await open_client(self._uri) as client:
            kept = await Upkeep(client, on_log=self._on_log).run(wait_seconds=wait_seconds)
            if kept is None:
                await self._write_holder(client)
                return HELD
        changed = sum(done.did_something for done in kept)
        self._write("pass", logs=len(kept), logs_changed=changed)
        return FAILED if self._has_failed else DONE

    async def run(self, *, interval_seconds: float) -> int:
        """Run passes until SIGTERM or SIGINT. Retry while the cluster cannot be reached."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        self._write("started", interval_seconds=interval_seconds)
        stopped = asyncio.ensure_future(stop.wait())
        pauses_ms = RETRY.pauses_ms()
        while not stop.is_set():
            try:
                opening = asyncio.ensure_future(open_client(self._uri))
                opened = await until_stopped(stopped, opening)
                if opened is None:
                    break
                async with opened as client:
                    pauses_ms = RETRY.pauses_ms()
                    await self.keep_up(client, stop, interval_seconds)
            except LedgerLogError as error:
                retry_seconds = next(pauses_ms) / 1e3
                self._write("unreachable", error=_short(error), retry_seconds=retry_seconds)
                await asyncio.wait([stopped], timeout=retry_seconds)
        stopped.cancel()
        self._write("ended")
        return DONE

    async def keep_up(
        self, client: LedgerClient, stop: asyncio.Event, interval_seconds: float
    ) -> None:
        """Run passes with an interval between them. `stop` ends the passes, even during one pass.

        It is safe to end a pass at any moment. After an error, the next pass runs as usual.
        """
        upkeep = Upkeep(client, on_log=self._on_log)
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                try:
                    kept = await until_stopped(stopped, asyncio.ensure_future(upkeep.run()))
                    if kept is None and self._is_held_by_us is not False and not stop.is_set():
                        holding = asyncio.ensure_future(self._write_holder(client))
                        await until_stopped(stopped, holding)
                    self._is_held_by_us = kept is not None
                except LedgerLogError as error:
                    self._write("failed", error=_short(error))
                await asyncio.wait([stopped], timeout=interval_seconds)
        finally:
            stopped.cancel()

    async def _write_holder(self, client: LedgerClient) -> None:
        with contextlib.suppress(LedgerLogError):
            self._write("held", by=dict(await holder(client) or {}))

    def _on_log(self, kept: Kept) -> None:
        self._has_failed |= bool(kept.errors)
        if not (kept.did_something or kept.errors):
            return
        merged = kept.merged
        self._write(
            "log",
            log=kept.log,
            ranges_merged=merged.ranges_before - merged.ranges_after if merged else 0,
            **kept.counts(),
            errors=[_short(error) for error in kept.errors[:ERRORS_MAX]],
        )

    def _write(self, event: str, **fields: Any) -> None:
        self._write_line(_line(event, **fields))


def _line(event: str, **fields: Any) -> str:
    return json.dumps({"time_ms": time.time_ns() // 1_000_000, "event": event, **fields})


def _short(error: LedgerLogError) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[: ERROR_CHARACTERS_MAX - 3]}..."


async def until_stopped(stopped: asyncio.Future[Any], work: asyncio.Future[T]) -> T | None:
    """The result of `work`; None if `work` was cancelled because of `stopped`."""
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
