"""The invariants of ledgers whose copies are moved and released.

They are those of `tests.sim.loss.checker` without losses, and "HELD": a bookie drops no ledger
whose record names it, and a worker names only a bookie that holds its part of the fragment. A
bookie that has released a ledger may deny its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bookie_server.core.repair import ends_of, owed_of
from bookie_server.core.requests import StoredAdd
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Versioned
from tests.sim.checker import require
from tests.sim.copies import NEVER, Copies, Copy, Promise
from tests.sim.loss.checker import LossChecker, LossCheckers


class ReleasedCopies(Copies):
    """The copies of one ledger, some of which were released."""

    def __init__(self) -> None:
        super().__init__()
        self.released_at: dict[str, int] = {}

    def release(self, bookie: str) -> None:
        """Record that a bookie has begun to delete everything that it acknowledged.

        The ledger is closed, so its LAC is in its record.
        """
        self._lac.pop(bookie, None)
        self._now += 1
        self.released_at[bookie] = self._now
        self._last.pop(bookie, None)
        for (name, _), copies in self._copies.items():
            if name == bookie:
                copies[:] = [one for one in copies if one.acked == NEVER]


class ReleaseChecker(LossChecker):
    """All invariants of one ledger.

    Attributes:
        touchers: Bookies, which may write a closed record again without a change.
    """

    copies: ReleasedCopies

    def __init__(self, marks: dict[str, int], touchers: set[str]) -> None:
        super().__init__(marks, set())
        self.copies = ReleasedCopies()
        self._touchers = touchers
        self._held: dict[str, set[int]] = {}  # acknowledged or listed since the last drop

    def released(self, bookie: str) -> Callable[[], None]:
        """Check that the record does not name a bookie that begins to drop the ledger.

        Return a function that takes the drop back, because the process died before it was durable.
        """
        fragments = self.record.fragments
        is_named = any(bookie in fragment.ensemble for fragment in fragments)
        require(not is_named, "HELD", f"{bookie} drops the ledger, whose record names it")
        self.mark("released")
        self.copies.release(bookie)
        held = self._held.pop(bookie, set())
        stored = {one: holders.pop(bookie, None) for one, holders in self.stored.items()}

        def take_back() -> None:
            self._held[bookie] = held
            for one, entry in stored.items():
                if entry is not None:
                    self.stored[one][bookie] = entry

        return take_back

    def add_answered(
        self, bookie: str, request: StoredAdd, code: Code, sent: Sequence[Copy]
    ) -> None:
        super().add_answered(bookie, request, code, sent)
        if code is Code.OK:
            self._held.setdefault(bookie, set()).update(request.entry_ids)

    def read_answered(
        self, bookie: str, request: Any, code: Code, stored: bytes | None, promise: Promise
    ) -> None:
        super().read_answered(bookie, request, code, stored, self._kept(bookie, promise))

    def batch_answered(
        self, bookie: str, code: Code, stored: Sequence[bytes], promise: Promise
    ) -> None:
        super().batch_answered(bookie, code, stored, self._kept(bookie, promise))

    def _served(
        self, bookie: str, stored: bytes, promise: Promise, *, is_newest: bool = True
    ) -> None:
        if self.copies.released_at.get(bookie, -1) < promise.asked:
            super()._served(bookie, stored, promise, is_newest=is_newest)

    def _kept(self, bookie: str, promise: Promise) -> Promise:
        """Return what a bookie still promises. It may have dropped the ledger during a read."""
        if self.copies.released_at.get(bookie, -1) < promise.asked:
            return promise
        return Promise(
            NO_ENTRY, promise.lac, promise.entry_id, has_entry=False, asked=promise.asked
        )

    def written(
        self,
        client: str,
        ledger_id: int,
        before: Versioned[LedgerMetadata],
        after: Versioned[LedgerMetadata],
    ) -> None:
        if client in self._touchers:
            require(after.value == before.value, "L12", f"{client} wrote {after} over {before}")
            self.records.append((client, after))
            self.mark("touched")
            return
        super().written(client, ledger_id, before, after)

    def _moved(self, client: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        super()._moved(client, old, new)
        for (was, end), now in zip(ends_of(old), new.fragments, strict=True):
            for bookie in set(now.ensemble) - set(was.ensemble):
                owed = set(owed_of(now, end, new.quorum, bookie))
                missing = sorted(owed - self._held.get(bookie, set()))
                require(not missing, "HELD", f"{client} names {bookie}, which lacks {missing}")


class ReleaseCheckers(LossCheckers):
    """One checker for each ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.touchers: set[str] = set()

    def of(self, ledger_id: int) -> ReleaseChecker:
        checker = self.by_ledger.get(ledger_id)
        if checker is None:
            checker = self.by_ledger[ledger_id] = ReleaseChecker(self.marks, self.touchers)
            checker.has_moving_lacs = self.has_moving_lacs
        assert isinstance(checker, ReleaseChecker)
        return checker
