"""Upkeep as a process of its own, until SIGTERM: `ledgerlog upkeep run`.

It writes one JSON object a line on standard output, and only after an event: it started, a log was
changed or could not be maintained, a pass failed, another process has the lease (once, until that
changes), ZooKeeper cannot be reached, it ended. Several such processes may run: the lease allows
one to work. A blocked standard output stops no pass: otherwise no process would do any.
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
from ledgerlog_spark.upkeep.background import keep_up, until_stopped
from ledgerlog_spark.upkeep.upkeep import Kept, Upkeep, holder

RETRY_SECONDS_FIRST = 5.0
RETRY_SECONDS_MAX = 60.0

ERRORS_MAX = 5
ERROR_CHARACTERS_MAX = 500

DONE = 0
FAILED = 1
HELD = 4

STANDARD_OUTPUT = 1

WriteLine = Callable[[str], object]


@contextlib.contextmanager
def standard_output(*, drain_seconds: float | None = DRAIN_SECONDS) -> Iterator[WriteLine]:
    """Writes lines on standard output without waiting: beyond 1 MiB they are dropped.

    Writing raises `BrokenPipeError` after the reader of the pipe has ended.

    Args:
        drain_seconds: How long the end waits for unwritten lines; None for ever.
    """
    if sys.__stdout__ is None:  # it is closed, and another file may have its number by now
        yield lambda _: None
        return
    lines = LogLines(STANDARD_OUTPUT, lambda count: _line("lines_dropped", count=count))

    def write_line(line: str) -> None:
        if lines.is_read_by_nobody:
            raise BrokenPipeError
        lines.write(f"{line}\n")

    try:
        yield write_line
    finally:
        lines.drain(drain_seconds)


class UpkeepService:
    """One process that maintains all logs of a cluster."""

    def __init__(self, uri: str | None, write_line: WriteLine) -> None:
        """A service that does nothing yet.

        Without `uri` it takes the URI of the environment.
        """
        self._uri = uri
        self._write_line = write_line
        self._is_held_by_us: bool | None = None
        self._has_failed = False

    async def run_once(self, *, wait_seconds: float = 0) -> int:
        """One pass; the exit code: 0 done, 1 a log failed, 4 another process works."""
        async with await open_client(self._uri) as client:
            kept = await Upkeep(client, on_log=self._on_log).run(wait_seconds=wait_seconds)
            if kept is None:
                await self._say_holder(client)
                return HELD
        changed = sum(done.did_something for done in kept)
        self._say("pass", logs=len(kept), logs_changed=changed)
        return FAILED if self._has_failed else DONE

    async def run(self, *, interval_seconds: float) -> int:
        """Pass after pass until SIGTERM or SIGINT; retries while the cluster is away."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        self._say("started", interval_seconds=interval_seconds)
        stopped = asyncio.ensure_future(stop.wait())
        retry_seconds = RETRY_SECONDS_FIRST
        while not stop.is_set():
            try:
                opening = asyncio.ensure_future(open_client(self._uri))
                opened = await until_stopped(stopped, opening)
                if opened is None:
                    break
                async with opened as client:
                    retry_seconds = RETRY_SECONDS_FIRST
                    await self._keep_up(client, stop, interval_seconds)
            except LedgerLogError as error:
                self._say("unreachable", error=_short(error), retry_seconds=retry_seconds)
                await asyncio.wait([stopped], timeout=retry_seconds)
                retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)
        stopped.cancel()
        self._say("ended")
        return DONE

    async def _keep_up(
        self, client: LedgerClient, stop: asyncio.Event, interval_seconds: float
    ) -> None:
        telling: set[asyncio.Task[None]] = set()

        def on_pass(is_ours: bool) -> None:
            if is_ours != self._is_held_by_us and not is_ours:
                task = asyncio.ensure_future(self._say_holder(client))
                telling.add(task)
                task.add_done_callback(telling.discard)
            self._is_held_by_us = is_ours

        await keep_up(
            client,
            stop=stop,
            interval_seconds=interval_seconds,
            on_log=self._on_log,
            on_pass=on_pass,
            on_error=lambda error: self._say("failed", error=_short(error)),
            begins_at_once=True,
        )
        await asyncio.gather(*telling)

    async def _say_holder(self, client: LedgerClient) -> None:
        with contextlib.suppress(LedgerLogError):
            self._say("held", by=dict(await holder(client) or {}))

    def _on_log(self, kept: Kept) -> None:
        self._has_failed |= bool(kept.errors)
        if kept.did_something or kept.errors:
            self._say("log", **_fields(kept))

    def _say(self, event: str, **fields: Any) -> None:
        self._write_line(_line(event, **fields))


def _line(event: str, **fields: Any) -> str:
    return json.dumps({"time_ms": time.time_ns() // 1_000_000, "event": event, **fields})


def _fields(kept: Kept) -> dict[str, Any]:
    merged, swept = kept.merged, kept.swept
    unlisted = len(kept.truncated.unlisted) if kept.truncated else 0
    return {
        "log": kept.log,
        "ledgers_unlisted": unlisted + (swept.unlisted + swept.deregistered if swept else 0),
        "ranges_merged": merged.ranges_before - merged.ranges_after if merged else 0,
        "ledgers_deleted": swept.ledgers_deleted if swept else 0,
        "ledgers_kept": len(swept.ledgers_kept) if swept else 0,
        "is_removed": bool(swept and swept.is_removed),
        "errors": [_short(error) for error in kept.errors[:ERRORS_MAX]],
    }


def _short(error: LedgerLogError) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[: ERROR_CHARACTERS_MAX - 3]}..."
