"""Upkeep as a separate process, which runs until SIGTERM: `ledgerlog upkeep run`.

After each event, the process writes one JSON object as a line of standard output. The events are
the start and the end of the process, a changed log, a log that could not be maintained, a failed
pass, and an unreachable ZooKeeper. If another process has the lease, this process reports that
once. It reports it again only after this process itself has had the lease. Several such processes
may run, but only the holder of the lease works. A pass never waits for a blocked standard output.
Otherwise, other processes would have to wait for the lease during this time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.composition import open_client
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.lines import DRAIN_SECONDS, LogLines
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from ledgerlog_spark.upkeep.upkeep import Kept, Upkeep, holder

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
    """Yield a function that writes a line to standard output without waiting.

    If 1 MiB of lines are not written yet, further lines are dropped. The function raises
    `BrokenPipeError` after the reader of the pipe has ended. At its end, the block waits at most
    `drain_seconds` until all lines are written. If `drain_seconds` is None, this wait has no limit.
    """
    if sys.__stdout__ is None:  # it is closed, and another file may use its descriptor now
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
        """Prepare the service. If `uri` is None, it uses the URI from the environment variable."""
        self._uri = uri
        self._write_line = write_line
        self._is_held_by_us: bool | None = None
        self._has_failed = False
        self._is_stopped = False  # whether a signal has stopped the service

    async def run_once(self, *, wait_seconds: float = 0) -> int:
        """Run one pass.

        Return 1 if a log could not be maintained, 4 if another process has the lease, otherwise 0.
        """
        async with await open_client(self._uri) as client:
            kept = await Upkeep(client, on_log=self._on_log).run(wait_seconds=wait_seconds)
            if kept is None:
                await self._write_holder(client)
                return HELD
        changed = sum(done.did_something for done in kept)
        self._write("pass", logs=len(kept), logs_changed=changed)
        return FAILED if self._has_failed else DONE

    async def run(self, *, interval_seconds: float) -> int:
        """Run passes until SIGTERM or SIGINT. Try again while the cluster cannot be reached."""
        running = asyncio.current_task()
        assert running is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, running)
        self._write("started", interval_seconds=interval_seconds)
        pauses_ms = RETRY.pauses_ms()
        try:
            while not self._is_stopped:
                try:
                    async with await open_client(self._uri) as client:
                        pauses_ms = RETRY.pauses_ms()
                        await self.keep_up(client, interval_seconds)
                except LedgerLogError as error:
                    retry_seconds = next(pauses_ms) / 1e3
                    self._write("unreachable", error=_short(error), retry_seconds=retry_seconds)
                    await asyncio.sleep(retry_seconds)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
        self._write("ended")
        return DONE

    def _stop(self, running: asyncio.Task[Any]) -> None:
        """Cancel the task `running`. A second signal does not interrupt the end of this task."""
        if not self._is_stopped:
            self._is_stopped = True
            running.cancel()

    async def keep_up(self, client: LedgerClient, interval_seconds: float) -> None:
        """Run passes with an interval between them, until this call is cancelled.

        It is safe to cancel a pass at any moment. After a pass that failed, the next pass runs as
        usual.
        """
        upkeep = Upkeep(client, on_log=self._on_log)
        while not self._is_stopped:
            try:
                kept = await upkeep.run()
                if kept is None and self._is_held_by_us is not False:
                    await self._write_holder(client)
                self._is_held_by_us = kept is not None
            except LedgerLogError as error:
                self._write("failed", error=_short(error))
            await asyncio.sleep(interval_seconds)

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
