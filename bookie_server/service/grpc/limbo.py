"""The calls about limbo: list ledgers, accept a loss, and begin a new epoch of doubt."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Protocol

from bookie_server.core.requests import ID_MAX
from bookie_server.errors import StorageError
from bookie_server.service.logging import get_logger
from bookie_server.service.repair.acceptance import Acceptance, LossAcceptance
from bookie_server.service.repair.ports import RepairStorage
from bookie_server.service.repair.progress import LimboLedger, RepairProgress
from ledgerlog_spark.errors import LedgerLogError, MetadataError
from ledgerlog_spark.transport import control_pb2 as pb

_logger = get_logger("limbo")

LEDGERS_MAX: Final = 1_000
TEXT_MAX: Final = 2_000
"""Maximum number of characters of a text in a reply."""


class DoubtStorage(RepairStorage, Protocol):
    """A storage for which an operator can begin a new epoch of doubt."""

    async def raise_doubt(self) -> None:
        """Begin an epoch of doubt, because records may be lost. The epoch is durable on return."""


class LimboCalls:
    """Answers the calls about the limbo of one bookie. One loss is accepted at a time."""

    def __init__(
        self, storage: DoubtStorage, progress: RepairProgress, acceptance: LossAcceptance
    ) -> None:
        self._storage = storage
        self._progress = progress
        self._acceptance = acceptance
        self._is_accepting = False

    def listed(self, request: pb.ListLimboRequest) -> pb.ListLimboReply:
        """Return a page of the ledgers in limbo."""
        ledgers = self._storage.limbo_ledgers()
        first = bisect_right(ledgers, request.after_ledger_id)
        page = ledgers[first : first + min(max(request.count_max, 1), LEDGERS_MAX)]
        doubt, progress = self._storage.doubt, self._progress
        return pb.ListLimboReply(
            ledgers=[_ledger(each, progress.in_limbo.get(each)) for each in page],
            has_more=first + len(page) < len(ledgers),
            epoch=doubt.epoch,
            is_in_doubt=not doubt.is_over,
            repair_state=progress.state.value,
            ledgers_left=progress.ledgers_left,
            entries_fetched=progress.counters.entries_fetched,
        )

    async def accept(self, request: pb.AcceptLossRequest) -> pb.AcceptLossReply:
        """Accept a loss. The reply contains the lost entries, or the reason for a refusal."""
        if not 0 <= request.ledger_id <= ID_MAX or not request.reason.strip():
            return _refused("the request needs the id of a ledger, and a reason")
        if self._is_accepting:
            return _refused("another loss is being accepted: run this command again", True)
        self._is_accepting = True
        try:
            loss = await self._acceptance.accept(
                Acceptance(
                    request.ledger_id,
                    request.reason,
                    request.accepted_by,
                    is_forced=request.is_forced,
                    is_unclosed=request.is_unclosed,
                )
            )
        except (LedgerLogError, StorageError) as error:
            is_retriable = error.retriable or isinstance(error, MetadataError)
            return _refused(str(error), is_retriable)
        finally:
            self._is_accepting = False
        if loss is None:
            return pb.AcceptLossReply()
        return pb.AcceptLossReply(
            is_lost=True, entry_ids=loss.entry_ids, entries_count=loss.entries_count
        )

    async def raise_doubt(self, request: pb.RaiseDoubtRequest) -> pb.RaiseDoubtReply:
        """Put all ledgers in limbo. If this fails, the reply contains the reason."""
        if not request.reason.strip():
            return pb.RaiseDoubtReply(refusal="the request needs a reason")
        reason, raised_by = request.reason[:TEXT_MAX], request.raised_by[:TEXT_MAX]
        try:
            await self._storage.raise_doubt()
        except StorageError as error:
            return pb.RaiseDoubtReply(refusal=str(error)[:TEXT_MAX])
        epoch = self._storage.doubt.epoch
        _logger.warning("doubt_requested", epoch=epoch, reason=reason, raised_by=raised_by)
        return pb.RaiseDoubtReply(epoch=epoch)


def _refused(why: str, is_retriable: bool = False) -> pb.AcceptLossReply:
    return pb.AcceptLossReply(refusal=why[:TEXT_MAX], is_retriable=is_retriable)


def _ledger(ledger_id: int, found: LimboLedger | None) -> pb.LimboLedger:
    if found is None:
        return pb.LimboLedger(ledger_id=ledger_id)
    return pb.LimboLedger(
        ledger_id=ledger_id,
        outcome=found.outcome.name.lower(),
        problem=found.problem[:TEXT_MAX],
        state="" if found.state is None else found.state.name.lower(),
        missing=found.missing,
        missing_count=found.missing_count,
    )
