"""The index of the auditor, in memory: the bookies that each record names.

The index proposes ledgers. A proposed ledger is marked only after its record was read again,
because the record may have changed since the last walk (AUTORECOVERY.md#N6).

Each set of bookies is stored only once, because most ledgers have one of a few sets. The index of
100,000 ledgers takes about 20 MB of memory during a walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class LedgerIndex:
    """The bookies that each record named in the last whole walk, and in the present walk."""

    def __init__(self) -> None:
        """Create an empty index."""
        self._numbers: dict[frozenset[str], int] = {}  # the number of each set of bookies
        self._sets: list[frozenset[str]] = []
        self._whole: dict[int, int] = {}  # ledger id to number of its set, in the last whole walk
        self._newer: dict[int, int] = {}  # ledger id to number of its set, in the present walk
        self.is_whole = False

    def __len__(self) -> int:
        """Return the number of ledgers in the last whole walk."""
        return len(self._whole)

    @property
    def named(self) -> frozenset[str]:
        """All bookies that a record names."""
        return frozenset().union(*self._sets) if self._sets else frozenset()

    def begin(self) -> None:
        """Begin a walk."""
        self._newer = {}

    def note(self, ledger_id: int, names: frozenset[str]) -> None:
        """Add the bookies of a record that the walk has read."""
        number = self._numbers.get(names)
        if number is None:
            number = self._numbers[names] = len(self._sets)
            self._sets.append(names)
        self._newer[ledger_id] = number

    def end(self) -> None:
        """End the walk after its last record, and drop the sets that no record names any more."""
        used = sorted(set(self._newer.values()))
        again = {number: place for place, number in enumerate(used)}
        self._sets = [self._sets[number] for number in used]
        self._numbers = {names: place for place, names in enumerate(self._sets)}
        self._whole = {ledger_id: again[number] for ledger_id, number in self._newer.items()}
        self._newer = {}
        self.is_whole = True

    def naming(self, bookie_ids: Iterable[str]) -> list[int]:
        """Return ids of ledgers that named one of these bookies in the last whole walk, sorted."""
        wanted = frozenset(bookie_ids)
        numbers = {place for place, names in enumerate(self._sets) if names & wanted}
        return sorted(each for each, number in self._whole.items() if number in numbers)
