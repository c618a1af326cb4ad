"""The invariants of healing: the invariants of releases, and rules for workers.

- HELD: a worker names a bookie only for entries that it holds durably.
- WHOLE: a mark is deleted only if the ledger is deleted, or if each bookie of the mark holds its
  stripe or is no longer named.
- LISTED: a bookie lists all entries that it acknowledged or listed. So what it lists is durable.
- LOST: a worker reports an entry as lost only if no bookie of its write set holds it.
- ENDED (the audit): in the end every entry has all its copies, and no mark is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ledgerlog_spark.model import LedgerMetadata, LedgerState
from tests.sim.checker import require, write_set
from tests.sim.release.checker import ReleaseChecker, ReleaseCheckers

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.autorecovery.replicate.messages import UnreadableEntries
    from ledgerlog_spark.protocol.ledger.messages import SendAdd


def known_end(metadata: LedgerMetadata) -> int:
    """Return the entry after the last entry that a worker may copy."""
    if metadata.is_closed:
        return metadata.last_entry_id + 1
    return metadata.last_fragment.first_entry_id


class HealingChecker(ReleaseChecker):
    """All invariants of one ledger. Bookies acknowledge only what is durable."""

    def _moved(self, client: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        is_same = (old.state, old.last_entry_id, old.length) == (
            new.state,
            new.last_entry_id,
            new.length,
        )
        require(is_same, "L12", f"{client} wrote {new} over {old}")
        self._require_valid_fragments(client, new)
        if not old.is_closed:
            is_kept = old.last_fragment == new.last_fragment
            require(is_kept, "L20", f"{client} changed the last fragment of an open ledger")
        for entry_id in range(known_end(old)):
            before = old.fragment_of(entry_id).ensemble
            after = new.fragment_of(entry_id).ensemble
            for index in write_set(old.quorum, entry_id):
                name = after[index]
                if name != before[index]:
                    require(
                        entry_id in self._held.get(name, ()),
                        "HELD",
                        f"{client} names {name} for {entry_id}, which it does not hold",
                    )
        self.mark("fragment moved")
        if len(new.fragments) > len(old.fragments):
            self.mark("fragment split")
        if not old.is_closed:
            self.mark("moved while open")

    def _was_named(self, entry_id: int, effect: SendAdd) -> bool:
        """A worker may replace the bookie of a fragment that its writer has ended."""
        return entry_id < known_end(self.record) and any(
            one.value.fragment_of(entry_id).ensemble[effect.index] == effect.bookie_id
            for _, one in self.records
        )

    def emptied(self, bookie: str) -> None:
        """Record that a bookie has lost its directory. No record names this bookie."""
        self.copies.release(bookie)
        self._held.pop(bookie, None)
        self.fenced.pop(bookie, None)
        for holders in self.stored.values():
            holders.pop(bookie, None)

    def listing(self, bookie: str) -> Callable[[frozenset[int]], None]:
        """A bookie begins to list its entries. Return a function that checks the list."""
        owed = frozenset(self._held.get(bookie, ()))
        dropped = self.copies.released_at.get(bookie)

        def check(listed: frozenset[int]) -> None:
            if self.is_deleted or self.copies.released_at.get(bookie) != dropped:
                return
            missing = sorted(owed - listed)
            require(not missing, "LISTED", f"{bookie} does not list {missing}")
            self._held.setdefault(bookie, set()).update(listed)
            # A list has durable entries only, among them those of adds that were never answered.
            for entry_id in listed:
                self.stored.setdefault(entry_id, {}).setdefault(bookie, self.payloads[entry_id])

        return check

    def mark_deleted(self, worker: str, bookies: frozenset[str], lost: frozenset[str]) -> None:
        """Check a deleted mark. `lost`: the bookies that are away for a long time."""
        if self.is_deleted:
            return
        metadata = self.record
        for entry_id in range(known_end(metadata)):
            ensemble = metadata.fragment_of(entry_id).ensemble
            for index in write_set(metadata.quorum, entry_id):
                name = ensemble[index]
                require(
                    name not in bookies or self._is_held_or_repaired(name, entry_id),
                    "WHOLE",
                    f"{worker} deletes the mark of {sorted(bookies)}; {name} lacks {entry_id}",
                )
        for fragment in metadata.fragments:
            is_last_open = fragment is metadata.last_fragment and not metadata.is_closed
            is_used = fragment.first_entry_id < known_end(metadata) or is_last_open
            still = sorted(bookies & lost & set(fragment.ensemble)) if is_used else []
            require(
                not still,
                "WHOLE",
                f"{worker} deletes the mark of {sorted(bookies)}; {still} is away and is named",
            )
        self.mark("mark deleted")

    def _is_held_or_repaired(self, name: str, entry_id: int) -> bool:
        """Whether a bookie holds an entry, or repairs it by itself."""
        return entry_id in self._held.get(name, ())

    def reported(self, worker: str, entries: tuple[UnreadableEntries, ...]) -> None:
        """Check entries that a worker reports as lost."""
        for one in entries:
            self.mark("lost entries reported" if one.is_lost else "unreadable entries reported")
            if not one.is_lost or self.is_deleted:
                continue
            for entry_id in range(one.first_entry_id, one.last_entry_id + 1):
                ensemble = self.record.fragment_of(entry_id).ensemble
                named = {ensemble[index] for index in write_set(self.record.quorum, entry_id)}
                holders = sorted(n for n in named if entry_id in self._held.get(n, ()))
                require(not holders, "LOST", f"{worker} reports {entry_id}, which {holders} hold")

    def fenced_by_worker(self, worker: str, *, has_spare: bool, waited_ms: int) -> None:
        """Check that a worker closes a ledger only after the grace, and for a replacement."""
        require(waited_ms >= 0, "GRACE", f"{worker} fences the ledger before the grace")
        is_open = self.record.state is LedgerState.OPEN
        require(has_spare or not is_open, "SPARE", f"{worker} fences without a spare")
        self.mark("closed by a worker")

    def lacks(self, name: str, metadata: LedgerMetadata) -> list[int]:
        """Return the entries that a bookie must hold but did not store."""
        owed = []
        for entry_id in range(metadata.last_entry_id + 1):
            ensemble = metadata.fragment_of(entry_id).ensemble
            members = [ensemble[index] for index in write_set(metadata.quorum, entry_id)]
            if name in members and entry_id not in self._held.get(name, ()):
                owed.append(entry_id)
        return owed


class HealingCheckers(ReleaseCheckers):
    """One checker for each ledger."""

    def of(self, ledger_id: int) -> HealingChecker:
        checker = self.by_ledger.get(ledger_id)
        if checker is None:
            checker = self.by_ledger[ledger_id] = HealingChecker(self.marks, self.touchers)
            checker.has_moving_lacs = self.has_moving_lacs
        assert isinstance(checker, HealingChecker)
        return checker

    def emptied(self, bookie: str) -> None:
        for checker in self.by_ledger.values():
            assert isinstance(checker, HealingChecker)
            checker.emptied(bookie)
