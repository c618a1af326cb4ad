"""Auto-recovery as a separate process, until SIGTERM: `ledgerlog autorecovery run`.

After each event, the process writes one JSON object as a line of standard output. Events are the
start and the end of the process, its election, each ledger that was healed or could not be healed,
a lost session, and an unreachable ZooKeeper. Several such processes may run in a cluster. One of
them audits, and all of them heal ledgers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from ledgerlog_spark.autorecovery.audit.service import AuditServiceSettings
from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.autorecovery.events import described, short
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
from ledgerlog_spark.composition import metadata
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

RETRY = RetryPolicy(first_delay_ms=1_000, delay_max_ms=60_000, attempts_max=NO_LIMIT)

WriteLine = Callable[[str], object]


def default_id() -> str:
    """Return the id of a daemon without a port: the host and the number of the process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class AutoRecoveryDaemon:
    """One process that audits and heals a cluster."""

    def __init__(
        self,
        uri: str | None,
        member_id: str,
        write_line: WriteLine,
        worker: WorkerSettings,
        audit: AuditServiceSettings | None = None,
    ) -> None:
        """Create a daemon. If `uri` is None, the daemon uses the URI of the environment."""
        self._uri = uri
        self._id = member_id
        self._write_line = write_line
        self._worker = worker
        self._audit = audit
        self._is_stopped = False

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. While the cluster cannot be reached, try again."""
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
                        recovery = AutoRecovery(
                            self._id, stores, self._report, self._worker, self._audit
                        )
                        await recovery.run()
                except LedgerLogError as error:
                    retry_seconds = next(pauses_ms) / 1e3
                    self._write("unreachable", error=short(error), retry_seconds=retry_seconds)
                    await asyncio.sleep(retry_seconds)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
        self._write("ended")

    def _stop(self, running: asyncio.Task[Any]) -> None:
        """Cancel the work at the first signal. A second signal does not interrupt the shutdown."""
        if not self._is_stopped:
            self._is_stopped = True
            running.cancel()

    def _report(self, event: str, subject: Any) -> None:
        name, fields = described(event, subject)
        self._write(name, **fields)

    def _write(self, event: str, **fields: Any) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._write_line(json.dumps({"time_ms": now_ms, "event": event, **fields}))
