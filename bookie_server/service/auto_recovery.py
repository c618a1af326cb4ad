"""Auto-recovery inside a bookie: the auditor and a replication worker in the bookie's process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from bookie_server.config import BookieSettings
from bookie_server.service.logging import get_logger
from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.autorecovery.daemon import fields_of
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.stores import MetadataStores

_logger = get_logger("autorecovery")


class BookieAutoRecovery:
    """Runs auto-recovery from the registration of the bookie until its stop."""

    def __init__(self, bookie_id: str, settings: BookieSettings, stores: MetadataStores) -> None:
        worker = WorkerSettings(bytes_per_second_max=settings.autorecovery_bytes_per_s)
        self._recovery = AutoRecovery(bookie_id, stores, _write_line, worker)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to audit and to heal."""
        self._task = asyncio.create_task(self._recovery.run())

    async def stop(self) -> None:
        """Drop all work, and close the connections. A second call does nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _write_line(event: str, subject: Any) -> None:
    if event == "job":
        queue, ledger_id, ended = subject
        _logger.info("replicated", queue=queue, ledger_id=ledger_id, **fields_of(ended))
    elif isinstance(subject, BaseException):
        error = f"{type(subject).__name__}: {subject}"[:500]
        level = logging.WARNING if isinstance(subject, LedgerLogError) else logging.ERROR
        _logger.log(level, "autorecovery_failed", what=event, error=error)
    else:
        _logger.info("autorecovery", what=event, about=str(subject)[:500])
