"""The invariants of ledgers whose bookies lose records.

They are those of `tests.sim.checker` with these differences. A bookie that lost records may serve
an older copy of an entry. It may deny that a lost entry exists if no client counts on it
(`LossChecker.owes`). A forced recovery may reopen a closed ledger, as Apache's tools do, and never
closes it at an earlier entry after this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bookie_server.core.requests import StoredAdd
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, LedgerState, Versioned
from tests.sim.checker import Checker, Violation, require, write_set
from tests.sim.checkers import Checkers
from tests.sim.copies import Copy, Promise, head_of

if TYPE_CHECKING:
    from tests.sim.client import SimClient


def names(metadata: LedgerMetadata, bookie: str, entry_id: int) -> bool:
    """Whether the record names a bookie for an entry."""
    ensemble = metadata.fragment_of(entry_id).ensemble
    return bookie in (ensemble[index] for index in write_set(metadata.quorum, entry_id))


class LossChecker(Checker):
    """All invariants of one ledger.

    Attributes:
        has_moving_lacs: Whether a recovery sends its LAC in headers, as Apache's does. Then readers
            may see a LAC above the end (PROTOCOL.md#C10).
        is_thin: Whether the ledger was closed over an entry with too few copies, because another
            recovery took a moving LAC for confirmed.
        ignores_answers: Whether wrong answers of bookies are not reported, so that a script shows
            what follows from them.
        forced: Names of the clients that may reopen a closed ledger.
        workers: Names of the workers that may replace a bookie in the record of a closed ledger.
        closed_ends: The ends at which the ledger was closed.
    """

    def __init__(self, marks: dict[str, int] | None, lossy: set[str]) -> None:
        super().__init__(marks)
        self.has_moving_lacs = False
        self.forced: set[str] = set()
        self.workers: set[str] = set()
        self.ignores_answers = False
        self.is_thin = False
        self.closed_ends: list[int] = []
        self._lossy = lossy
        self._acked: dict[tuple[str, int], int] = {}  # number of records at the last one

    @property
    def was_closed(self) -> bool:
        return self.record.is_closed or bool(self.closed_ends)

    def add_answered(
        self, bookie: str, request: StoredAdd, code: Code, sent: Sequence[Copy]
    ) -> None:
        if self.ignores_answers:
            self.fenced.pop(bookie, None)
        super().add_answered(bookie, request, code, sent)
        if code is Code.OK:
            for entry_id in request.entry_ids:
                self._acked[bookie, entry_id] = len(self.records)

    def owes(self, bookie: str, entry_id: int) -> bool:
        """Whether a client may count on a copy that the bookie acknowledged.

        A writer drops the acknowledgements of a bookie that it replaces, even if it uses the bookie
        again. A recovery writes back to bookies that only its closing write names. A forced
        recovery may reopen a ledger that was closed before the entry.
        """
        acked = self._acked.get((bookie, entry_id))
        if acked is None:
            return False
        since = [record.value for _, record in self.records[acked - 1 :]]
        if any(one.is_closed and one.last_entry_id < entry_id for one in since):
            return False
        if self.record.is_closed and not names(self.record, bookie, entry_id):
            return False
        open_ones = [one for one in since if one.state is LedgerState.OPEN]
        counted = open_ones if self.record.is_closed else since
        return all(names(one, bookie, entry_id) for one in counted)

    def read_answered(
        self, bookie: str, request: Any, code: Code, stored: bytes | None, promise: Promise
    ) -> None:
        self._check_denied(bookie, code, stored, promise)
        super().read_answered(bookie, request, code, stored, self._weaker(bookie, promise))

    def batch_answered(
        self, bookie: str, code: Code, stored: Sequence[bytes], promise: Promise
    ) -> None:
        self._check_denied(bookie, code, stored[0] if stored else None, promise)
        super().batch_answered(bookie, code, stored, self._weaker(bookie, promise))

    def _weaker(self, bookie: str, promise: Promise) -> Promise:
        """The entry that a bookie must still serve after a loss."""
        if bookie not in self._lossy:
            return promise
        return Promise(NO_ENTRY, promise.lac, promise.entry_id, has_entry=False, asked=0)

    def _check_denied(
        self, bookie: str, code: Code, stored: bytes | None, promise: Promise
    ) -> None:
        """Check PROTOCOL.md#L32 for a bookie that has lost something."""
        if bookie not in self._lossy or self.is_deleted or self.ignores_answers:
            return
        asked = promise.entry_id
        if asked != NO_ENTRY:
            is_denied = code.is_absent and promise.has_entry and self.owes(bookie, asked)
            require(not is_denied, "L32", f"{bookie} denies {asked}, which it acknowledged")
            return
        last = head_of(stored)[1] if stored is not None else NO_ENTRY
        if stored is None and not code.is_absent:
            return
        owed = [e for (who, e) in self._acked if who == bookie and e > last]
        wrong = [e for e in owed if e <= promise.last_entry_id and self.owes(bookie, e)]
        require(not wrong, "L32", f"{bookie} says that its last entry is {last}, owed are {wrong}")

    def _served(
        self, bookie: str, stored: bytes, promise: Promise, *, is_newest: bool = True
    ) -> None:
        super()._served(bookie, stored, promise, is_newest=is_newest and bookie not in self._lossy)

    def lac_served(self, who: str, lac: int) -> None:
        if not self.has_moving_lacs and lac > max(self.closed_ends, default=NO_ENTRY):
            super().lac_served(who, lac)

    def lac_answered(self, bookie: str, code: Code, lac: int, promise: Promise) -> None:
        is_named = any(bookie in one.ensemble for one in self.record.fragments)
        # The record shows a reader that the entries before the last fragment are confirmed.
        is_shown = promise.lac < self.record.last_fragment.first_entry_id
        if self.ignores_answers or (bookie in self._lossy and (is_shown or not is_named)):
            return
        is_closed = self.record.is_closed and not self.is_deleted
        if is_closed and lac < promise.lac and bookie in self._lossy:
            require(not code.is_absent, "L33", f"{bookie} denies the LAC {promise.lac}")
            require(
                code is not Code.OK or lac >= self.record.last_entry_id,
                "L33",
                f"{bookie} answers LAC {lac}, it had {promise.lac}",
            )
            return
        super().lac_answered(bookie, code, lac, promise)

    def written(
        self,
        client: str,
        ledger_id: int,
        before: Versioned[LedgerMetadata],
        after: Versioned[LedgerMetadata],
    ) -> None:
        if client in self.forced and before.value.is_closed:
            require(after.value.state is LedgerState.IN_RECOVERY, "L12", f"{client} wrote {after}")
            self.records.append((client, after))
            self.ends.clear()
            self.mark("closed ledger reopened")
            return
        if client in self.workers:
            self._moved(client, before.value, after.value)
            self.records.append((client, after))
            return
        super().written(client, ledger_id, before, after)
        if after.value.is_closed:
            end = after.value.last_entry_id
            earlier = max(self.closed_ends, default=NO_ENTRY)
            require(end >= earlier, "L1", f"{client} closed at {end}, it was closed at {earlier}")
            self.closed_ends.append(end)

    def _require_copies(self, client: str, closed: LedgerMetadata, entry_id: int) -> None:
        if not self.has_moving_lacs or entry_id <= self.last_confirmed:
            super()._require_copies(client, closed, entry_id)
            return
        try:
            super()._require_copies(client, closed, entry_id)
        except Violation:
            self.is_thin = True
            self.mark("closed over too few copies")

    def _moved(self, client: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Check that a worker changes one member of a closed ledger."""
        is_same_end = (old.is_closed, old.last_entry_id) == (new.is_closed, new.last_entry_id)
        require(is_same_end and old.is_closed, "L12", f"{client} wrote {new} over {old}")
        self._require_valid_fragments(client, new)
        self.mark("fragment moved")

    def _closed(self, client: SimClient, metadata: LedgerMetadata) -> None:
        if len(self.closed_ends) <= 1 and not self.forced:
            super()._closed(client, metadata)


class LossCheckers(Checkers):
    """One checker for each ledger.

    Attributes:
        lossy: Bookies that have lost something.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lossy: set[str] = set()
        self.has_moving_lacs = False

    def of(self, ledger_id: int) -> LossChecker:
        checker = self.by_ledger.get(ledger_id)
        if checker is None:
            checker = self.by_ledger[ledger_id] = LossChecker(self.marks, self.lossy)
            checker.has_moving_lacs = self.has_moving_lacs
        assert isinstance(checker, LossChecker)
        return checker

    def lost(self, bookie: str) -> None:
        """Record that a bookie has lost something."""
        self.lossy.add(bookie)
