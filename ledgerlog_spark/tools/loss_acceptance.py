"""Accepts the loss of entries of a ledger, so that auto-recovery no longer tries to read them.

Only entries that auto-recovery has reported as unreadable can be given up. Before they are given
up, all their copies are read once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.errors import ConfigurationError, LedgerError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata, Version
from ledgerlog_spark.tools.copies import CopyReader
from ledgerlog_spark.transport.port import BookieTransport
from ledgerlog_spark.wire.ledger_loss import RANGES_MAX, TEXT_MAX, AcceptedRanges, LedgerLoss
from ledgerlog_spark.wire.repair_notes import Unreadable

READ_MAX = 10_000
"""Maximum number of lost entries whose copies are read again before the entries are given up.

If more entries are lost, only the copies of the first READ_MAX entries are read.
"""


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    """The unreadable entries of a ledger, as auto-recovery reported them.

    Attributes:
        metadata: The metadata of the ledger.
        note: The report of auto-recovery.
        version: The version of the node with this report.
    """

    ledger_id: int
    metadata: LedgerMetadata
    note: Unreadable
    version: Version

    @property
    def entries_count(self) -> int:
        """Number of unreadable entries."""
        return sum(each.last_entry_id - each.first_entry_id + 1 for each in self.note.ranges)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The unreadable entries, as pairs of first and last entry id."""
        return tuple((each.first_entry_id, each.last_entry_id) for each in self.note.ranges)


async def reported_loss(stores: MetadataStores, ledger_id: int, *, is_forced: bool) -> ReportedLoss:
    """Return the unreadable entries of a ledger.

    Raises:
        LedgerNotFoundError: The ledger does not exist.
        LedgerError: Auto-recovery has reported no unreadable entry. Or `is_forced` is false, and a
            bookie may still have a reported entry.
    """
    await stores.ledgers.sync()
    metadata = (await stores.ledgers.load(ledger_id)).value
    found = await stores.unreadable.load(ledger_id)
    if found is None:
        raise LedgerError(
            f"auto-recovery has reported no unreadable entry of ledger {ledger_id}, so there is no "
            "loss to accept. `ledgerlog autorecovery audit` requests an audit, and `ledgerlog "
            f"ledgers show {ledger_id} --replicas` reads all copies",
            ledger_id=ledger_id,
        )
    unknown = [each for each in found.value.ranges if not each.is_lost]
    if unknown and not is_forced:
        first = unknown[0]
        answers = ", ".join(f"{name}: {code}" for name, code in first.answers) or "no answer"
        raise LedgerError(
            f"entries {first.first_entry_id} to {first.last_entry_id} of ledger {ledger_id} may "
            f"still exist, because not all bookies deny these entries ({answers}); nothing "
            "was given up. Start these bookies, or pass --force if they never run again",
            ledger_id=ledger_id,
            retriable=True,
        )
    return ReportedLoss(ledger_id, metadata, found.value, found.version)


async def require_unreadable(
    transport: BookieTransport, loss: ReportedLoss, *, timeout_ms: int
) -> None:
    """Raise LedgerError if one of the reported entries has an intact copy now."""
    reader = CopyReader(transport, loss.ledger_id, loss.metadata, timeout_ms=timeout_ms)
    left = READ_MAX
    for first, last in loss.ranges:
        end = min(last, first + left - 1)
        report = await reader.read(first, end, lambda _: None)
        left -= report.entries
        intact = sum(counts["intact"] for counts in report.by_bookie.values())
        if intact:
            names = sorted(name for name, counts in report.by_bookie.items() if counts["intact"])
            raise LedgerError(
                f"{intact} copies of the entries {first} to {end} of ledger {loss.ledger_id} are "
                f"readable now, on {', '.join(names)}; nothing was given up. Auto-recovery copies "
                "them: `ledgerlog autorecovery audit` requests an audit",
                ledger_id=loss.ledger_id,
            )
        if left <= 0:
            return


async def accept_loss(
    stores: MetadataStores,
    loss: ReportedLoss,
    *,
    is_forced: bool,
    accepted_ms: int,
    accepted_by: str,
    reason: str,
) -> LedgerLoss:
    """Record that the reported entries are given up, and then delete the report.

    Raises:
        ConfigurationError: The report has too many ranges.
        LedgerError: The report has changed since it was read. The acceptance is recorded
            nevertheless.
    """
    if len(loss.ranges) > RANGES_MAX:
        raise ConfigurationError(
            f"the report has {len(loss.ranges):,} ranges, and one acceptance has at most "
            f"{RANGES_MAX:,}; nothing was given up. Copy the readable entries to a new ledger",
            ledger_id=loss.ledger_id,
        )
    acceptance = AcceptedRanges(
        ranges=loss.ranges,
        is_forced=is_forced,
        accepted_ms=accepted_ms,
        accepted_by=accepted_by[:TEXT_MAX],
        reason=reason[:TEXT_MAX],
    )
    losses = await stores.accepted_losses.accept(loss.ledger_id, acceptance)
    if not await stores.unreadable.delete(loss.ledger_id, loss.version):
        raise LedgerError(
            f"the loss of {loss.entries_count} entries of ledger {loss.ledger_id} is accepted, but "
            "auto-recovery has just changed its report: run the command again for the new report",
            ledger_id=loss.ledger_id,
            definite=False,
            retriable=True,
        )
    return losses
