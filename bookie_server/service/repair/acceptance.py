"""Ends the limbo of a ledger with lost entries, when an operator accepts the loss.

A bookie never gives up an entry by itself. If an operator accepts the loss, the ledger is repaired
once more. The entries that are still missing are written to the file AUDIT and to the metadata
store. After that, the ledger is cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.core.doubt import Doubt
from bookie_server.core.repair import RepairEnded, RepairOutcome, cleared_lac
from bookie_server.ports import Clock
from bookie_server.service.logging import get_logger
from bookie_server.service.repair.audit import AuditFile
from bookie_server.service.repair.one_ledger import RepairParts, RepairReport, repair_ledger
from bookie_server.service.repair.progress import RepairProgress
from ledgerlog_spark.errors import LedgerError
from ledgerlog_spark.metadata.accepted_losses import AcceptedLosses
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, LedgerState
from ledgerlog_spark.wire.accepted_loss import TEXT_MAX, AcceptedLoss

_logger = get_logger("repair")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The decision of an operator to accept a loss.

    Attributes:
        reason: The reason why the loss is accepted.
        accepted_by: Name of the operator.
        is_forced: Whether the operator also gives up entries of which another bookie may still have
            a copy. Such a bookie does not answer, or may have lost entries too.
        is_unclosed: Whether entries of a ledger in recovery may be given up too. The bookie then
            denies these entries. If no other bookie had a copy of them, the recovery may close the
            ledger before these entries.
    """

    ledger_id: int
    reason: str
    accepted_by: str
    is_forced: bool = False
    is_unclosed: bool = False


class LossAcceptance:
    """Accepts the losses of one bookie."""

    def __init__(
        self,
        parts: RepairParts,
        progress: RepairProgress,
        audit: AuditFile,
        losses: AcceptedLosses,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._progress = progress
        self._audit = audit
        self._losses = losses
        self._clock = clock

    async def accept(self, acceptance: Acceptance) -> AcceptedLoss | None:
        """End the limbo of a ledger, and return the accepted loss.

        If the repair has cleared the ledger, nothing is lost, and the result is None.

        Raises:
            LedgerError: The ledger is not in limbo, or must not be given up yet. Nothing was
                changed.
            MetadataError: The metadata store did not answer. The ledger stays in limbo.
            StorageError: The bookie could not write. The ledger stays in limbo.
        """
        storage, ledger_id = self._parts.storage, acceptance.ledger_id
        doubt = storage.doubt
        self._require_in_limbo(ledger_id, doubt)
        report = await repair_ledger(self._parts, ledger_id, doubt, has_state=True)
        self._progress.note(ledger_id, report)
        if report.ended.outcome is RepairOutcome.CLEARED:
            return None
        metadata = self._metadata_of(acceptance, report)
        loss = AcceptedLoss(
            bookie_id=self._parts.bookie_id,
            ledger_id=ledger_id,
            epoch=doubt.epoch,
            state=metadata.state.name.lower(),
            last_entry_id=metadata.last_entry_id if metadata.is_closed else NO_ENTRY,
            entry_ids=report.ended.missing,
            entries_count=report.ended.missing_count,
            accepted_ms=self._clock.wall_ms(),
            accepted_by=acceptance.accepted_by[:TEXT_MAX],
            reason=acceptance.reason[:TEXT_MAX],
        )
        # After a crash between two of these steps, the operator must accept the loss again.
        await self._audit.append(loss)
        await self._losses.write(loss)
        code = await storage.clear_ledger(ledger_id, doubt.epoch, cleared_lac(metadata))
        if code is not Code.OK:
            raise LedgerError(
                f"the loss of ledger {ledger_id} is in the file AUDIT, but the bookie could not "
                f"store that the limbo ends ({code.value}): run this command again",
                ledger_id=ledger_id,
                retriable=True,
            )
        self._progress.note(ledger_id, RepairReport(RepairEnded(RepairOutcome.CLEARED)))
        _logger.warning(
            "loss_accepted",
            ledger_id=ledger_id,
            entries_count=loss.entries_count,
            accepted_by=loss.accepted_by,
            reason=loss.reason,
        )
        return loss

    def _require_in_limbo(self, ledger_id: int, doubt: Doubt) -> None:
        if not doubt.may_be_repaired and not doubt.is_over:
            raise LedgerError(
                "the metadata store does not have the doubt of the bookie yet: check that "
                "ZooKeeper runs, then run this command again",
                ledger_id=ledger_id,
                retriable=True,
            )
        is_listed = ledger_id in self._parts.storage.limbo_ledgers()
        is_unknown = not doubt.is_over and not self._parts.storage.is_known(ledger_id)
        if not is_listed and not is_unknown:
            raise LedgerError(
                f"ledger {ledger_id} is not in limbo on bookie {self._parts.bookie_id}; `ledgerlog "
                "bookie limbo list` shows the ledgers in limbo",
                ledger_id=ledger_id,
            )

    def _metadata_of(self, acceptance: Acceptance, report: RepairReport) -> LedgerMetadata:
        """Return the metadata of the ledger, or raise an error if it must not be given up now."""
        ended, ledger_id = report.ended, acceptance.ledger_id
        metadata = None if ended.record is None else ended.record.value
        if ended.outcome is RepairOutcome.DELETED:
            why, advice = "does not exist", "the next garbage collection deletes its entries"
        elif metadata is None:
            why = f"could not be repaired: {report.problem or ended.outcome.value}"
            advice = "wait for the next attempt"
        elif ended.outcome is RepairOutcome.INCOMPLETE and not acceptance.is_forced:
            why = f"may still be repaired: {report.problem or ended.outcome.value}"
            advice = (
                "start the bookies that have its entries, and wait for the repair. If they have "
                "lost the entries too, pass --force"
            )
        elif metadata.state is LedgerState.OPEN:
            why = "is open"
            advice = f"close it first, with `ledgerlog ledgers seal {ledger_id}`"
        elif metadata.state is LedgerState.IN_RECOVERY and not acceptance.is_unclosed:
            why = "is in recovery, which may still close it"
            advice = (
                "start its bookies, and wait for the recovery. If it can never succeed, pass "
                "--unclosed"
            )
        else:
            return metadata
        raise LedgerError(
            f"ledger {ledger_id} {why}. Nothing was given up: {advice}",
            ledger_id=ledger_id,
            retriable=ended.outcome is not RepairOutcome.DELETED,
        )
