"""Auto-recovery inside a bookie: the auditor and a replication worker in the bookie's process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from bookie_server.config import BookieSettings
from bookie_server.service.logging import get_logger
from bookie_server.service.metrics.gauges import AutoRecoveryNumbers
from ledgerlog_spark.autorecovery.audit.service import settings_at
from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.autorecovery.events import described
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.stores import MetadataStores

_logger = get_logger("autorecovery")


class BookieAutoRecovery:
    """Runs auto-recovery from the time at which the bookie is registered until the bookie stops."""

    def __init__(self, bookie_id: str, settings: BookieSettings, stores: MetadataStores) -> None:
        worker = WorkerSettings(bytes_per_second_max=settings.autorecovery_bytes_per_s)
        audit = settings_at(settings.autorecovery_check_bytes_per_s)
        self._recovery = AutoRecovery(bookie_id, stores, _write_line, worker, audit)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the auditor and the replication worker."""
        self._task = asyncio.create_task(self._recovery.run())
        self._task.add_done_callback(_report_crash)

    def numbers(self) -> AutoRecoveryNumbers:
        """Return the current values of the gauges of auto-recovery."""
        auditor, worker = self._recovery.auditor, self._recovery.worker
        counters = worker.counters
        return AutoRecoveryNumbers(
            is_auditor=auditor.is_elected,
            bookies_lost=len(auditor.lost_bookies),
            jobs=worker.jobs_count,
            tasks_waiting=worker.candidates_count,
            ledgers_healed=counters.ledgers_healed,
            jobs_failed=counters.jobs_failed,
            members_replaced=counters.members_replaced,
            entries_copied=counters.entries_copied,
            bytes_copied=counters.bytes_copied,
        )

    async def stop(self) -> None:
        """Stop all work of auto-recovery, and close its connections. A second call does nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _report_crash(task: asyncio.Task[None]) -> None:
    """Log an unexpected exception of auto-recovery, which is a bug. The bookie still serves."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.error("autorecovery_crashed", exc_info=error)


def _write_line(event: str, subject: Any) -> None:
    name, fields = described(event, subject)
    if name == "job":
        _logger.info("replicated", **fields)
    elif isinstance(subject, BaseException):
        level = logging.WARNING if isinstance(subject, LedgerLogError) else logging.ERROR
        _logger.log(level, "autorecovery_failed", what=name, **fields)
    else:
        _logger.info("autorecovery", what=name, **fields)
