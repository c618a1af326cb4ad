"""Connects the repair of a bookie to its storage, its metadata stores and a transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from bookie_server.config import BookieSettings
from bookie_server.core.repair import RecoveryLimits
from bookie_server.ports import Clock, FileSystem, Tasks
from bookie_server.service.logging import get_logger
from bookie_server.service.repair.acceptance import LossAcceptance
from bookie_server.service.repair.adapters import StoreRecords, TransportPeers
from bookie_server.service.repair.audit import AuditFile
from bookie_server.service.repair.one_ledger import RepairCounters, RepairParts, RepairReport
from bookie_server.service.repair.pace import RepairPace
from bookie_server.service.repair.ports import RepairStorage
from bookie_server.service.repair.progress import PassReport, RepairProgress
from bookie_server.service.repair.repairs import Repairs, RepairTimes
from ledgerlog_spark.composition import client_on
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.transport.v2.transport import V2Transport

PEER_TIMEOUT_MS = 5_000

_logger = get_logger("repair")


class BookieRepair:
    """The repair of one bookie, while the bookie serves.

    Attributes:
        repairs: Repairs the ledgers in the background.
        progress: The state of the repair, for administrators.
        acceptance: Gives up entries when an operator accepts their loss.
    """

    def __init__(
        self,
        bookie_id: str,
        settings: BookieSettings,
        storage: RepairStorage,
        stores: MetadataStores,
        files: FileSystem,
        tasks: Tasks,
        clock: Clock,
        *,
        on_deleted: Callable[[], None],
    ) -> None:
        self._transport = V2Transport(stores.registration.info)
        self._client = client_on(stores, self._transport)
        counters = RepairCounters()
        parts = RepairParts(
            bookie_id,
            storage,
            StoreRecords(stores.ledgers, stores.registration, bookie_id, settings.metadata_wait_ms),
            TransportPeers(self._transport, PEER_TIMEOUT_MS),
            tasks,
            clock,
            RepairPace(tasks, clock, settings.repair_bytes_per_s),
            counters,
        )
        self.progress = RepairProgress(counters)
        self.acceptance = LossAcceptance(
            parts, self.progress, AuditFile(files), stores.accepted_losses, clock
        )
        self.repairs = Repairs(
            parts,
            self.progress,
            self._recover,
            RepairTimes(limits=RecoveryLimits(settings.repair_idle_ms, settings.repair_stuck_ms)),
            on_pass=_log_pass,
            on_deleted=lambda _ledger_id: on_deleted(),
            report=_log_failure,
        )

    async def stop(self) -> None:
        """Begin no further step, and cancel the requests without an answer."""
        self.repairs.stop()
        await self._client.aclose()
        await self._transport.aclose()

    async def _recover(self, ledger_id: int, report: RepairReport) -> None:
        record = report.ended.record
        assert record is not None, "only a ledger with a record is recovered"
        sealed = await self._client.seal(ledger_id, password=record.value.password)
        _logger.info("recovered", ledger_id=ledger_id, last_entry_id=sealed.last_entry_id)


def _log_pass(report: PassReport) -> None:
    _logger.info("repaired", **asdict(report))


def _log_failure(step: str, fields: Mapping[str, object]) -> None:
    _logger.warning("repair_failed", step=step, **fields)
