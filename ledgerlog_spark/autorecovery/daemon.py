"""Auto-recovery as a separate process, until SIGTERM: `ledgerlog autorecovery run`.

After each event, the process writes one JSON object as a line of standard output. Events are its
start and its end, its election, each ledger that was healed or could not be healed, a lost session,
and an unreachable ZooKeeper. Several such processes may run. One of them audits, and all of them
heal ledgers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from enum import Enum
from itertools import islice
from typing import Any

from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
from ledgerlog_spark.composition import metadata
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobEnded
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

RETRY = RetryPolicy(first_delay_ms=1_000, delay_max_ms=60_000, attempts_max=NO_LIMIT)
TEXT_CHARACTERS_MAX = 500
LISTED_MAX = 100
"""Number of values of a list in one line."""

WriteLine = Callable[[str], object]


def default_id() -> str:
    """The id of a daemon without a port of its own: the host, and the number of the process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class AutoRecoveryDaemon:
    """One process that audits and heals a cluster."""

    def __init__(
        self, uri: str | None, member_id: str, write_line: WriteLine, worker: WorkerSettings
    ) -> None:
        """Without `uri`, the daemon uses the URI of the environment."""
        self._uri = uri
        self._id = member_id
        self._write_line = write_line
        self._worker = worker
        self._is_stopped = False

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Retry while the cluster cannot be reached."""
        running = asyncio.current_task()
        assert running is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, running)
        self._write("started", id=self._id)
        pauses_ms = RETRY.pauses_ms()
        try:
            while not self._is_stopped:
                try:
                    async with metadata(self._uri) as stores:
                        recovery = AutoRecovery(self._id, stores, self._report, self._worker)
                        await recovery.run()
                except LedgerLogError as error:
                    retry_seconds = next(pauses_ms) / 1e3
                    self._write("unreachable", error=_short(error), retry_seconds=retry_seconds)
                    await asyncio.sleep(retry_seconds)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
        self._write("ended")

    def _stop(self, running: asyncio.Task[Any]) -> None:
        """Cancel the work. A second signal does not interrupt the end of the work."""
        if not self._is_stopped:
            self._is_stopped = True
            running.cancel()

    def _report(self, event: str, subject: Any) -> None:
        if event == "job":
            queue, ledger_id, ended = subject
            self._write("job", queue=queue, ledger_id=ledger_id, **fields_of(ended))
        elif is_dataclass(subject) and not isinstance(subject, type):
            self._write(_in_snake_case(event), **_as_json(asdict(subject)))
        else:
            self._write(event, about=_short(subject))

    def _write(self, event: str, **fields: Any) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._write_line(json.dumps({"time_ms": now_ms, "event": event, **fields}))


def fields_of(ended: JobEnded) -> dict[str, Any]:
    """The fields of a log line about the end of a job."""
    return {
        "outcome": ended.outcome.name.lower(),
        "detail": ended.detail[:TEXT_CHARACTERS_MAX],
        "entries_copied": ended.entries_copied,
        "bytes_copied": ended.bytes_copied,
        "replaced": ended.replaced,
    }


def _in_snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event: numbers, short texts, and lists of at most LISTED_MAX of them."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, (int, float)):
            found[name] = value
        elif isinstance(value, (tuple, list, set, frozenset)):
            found[name] = [_short(one) for one in islice(value, LISTED_MAX)]
        else:
            found[name] = _short(value.value if isinstance(value, Enum) else value)
    return found


def _short(subject: object) -> str:
    is_error = isinstance(subject, BaseException)
    text = f"{type(subject).__name__}: {subject}" if is_error else str(subject)
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 3]}..."
