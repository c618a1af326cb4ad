"""Which bookies failed this ledger, which index waits for a replacement, and what to write.

One change runs at a time (PROTOCOL.md#B1): failures that are reported while it runs are collected
here for the next one. Placement remembers who failed, so that a bookie that was dead a moment ago
is the last choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState
from ledgerlog_spark.protocol.messages import Failure
from ledgerlog_spark.protocol.metadata_update import Refusal
from ledgerlog_spark.protocol.placement import Replacements, replace_failed

if TYPE_CHECKING:
    from collections.abc import Mapping


class FailedBookies:
    """Failures of bookies that have not been replaced yet, and the memory of all of them.

    Attributes:
        counts: How often each bookie failed this ledger.
        rounds: For an index without a replacement, how many times that was found.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.rounds: dict[int, int] = {}
        self._failed: dict[int, str] = {}

    def __bool__(self) -> bool:
        """Whether some index waits for a replacement."""
        return bool(self._failed)

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes that wait for a replacement, rising."""
        return tuple(sorted(self._failed))

    def report(self, index: int, bookie_id: str) -> None:
        """Note that the bookie at `index` failed; once for each time it was tried."""
        if self._failed.get(index) != bookie_id:
            self._failed[index] = bookie_id
            self.counts[bookie_id] = self.counts.get(bookie_id, 0) + 1

    def choose(self, ensemble: tuple[str, ...], candidates: tuple[str, ...]) -> Replacements:
        """Replacements for all indexes that wait, as far as candidates go."""
        found = replace_failed(ensemble, self.indexes, candidates, self.counts)
        for index in found.unreplaced:
            self.rounds[index] = self.rounds.get(index, 0) + 1
        return found

    def settle(self, index: int) -> None:
        """The bookie at `index` was replaced, or is being tried again."""
        self._failed.pop(index, None)

    def forget_indexes(self) -> None:
        """Begin anew with another ensemble; only the memory of who failed stays."""
        self._failed.clear()
        self.rounds.clear()

    def recovered(self, index: int) -> None:
        """The bookie at `index` answered: count rounds without a replacement anew."""
        self.rounds.pop(index, None)


@dataclass(frozen=True, slots=True)
class FragmentChange:
    """A writer's change of the last fragment, as a decision over the record (PROTOCOL.md#B6).

    Attributes:
        first_entry_id: Last add confirmed + 1: where the new fragment starts.
        replacements: Index to (bookie that failed, bookie that takes its place).
    """

    first_entry_id: int
    replacements: Mapping[int, tuple[str, str]]

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        """The record with the new ensemble, or why it may not be written."""
        if current.state is LedgerState.CLOSED:
            return Refusal(Failure.CLOSED)
        if current.state is LedgerState.IN_RECOVERY:
            return Refusal(Failure.FENCED)
        ensemble = self.ensemble_after(current.last_fragment.ensemble)
        if ensemble == current.last_fragment.ensemble:
            return Refusal(None)
        if current.last_fragment.first_entry_id > self.first_entry_id:
            return Refusal(Failure.METADATA_CHANGED)
        fragments = with_fragment(current.fragments, Fragment(self.first_entry_id, ensemble))
        return current.with_fragments(fragments)

    def ensemble_after(self, ensemble: tuple[str, ...]) -> tuple[str, ...]:
        """`ensemble` with each failed bookie that still sits at its index replaced."""
        members = list(ensemble)
        for index, (failed, replacement) in self.replacements.items():
            if members[index] == failed:
                members[index] = replacement
        return tuple(members)


def with_fragment(fragments: tuple[Fragment, ...], new: Fragment) -> tuple[Fragment, ...]:
    """`fragments` and `new`, which takes the place of a last one that starts where it does.

    A fragment of no entries is never left behind (PROTOCOL.md#B4).
    """
    assert new.first_entry_id >= fragments[-1].first_entry_id, "fragments rise"
    kept = fragments[:-1] if new.first_entry_id == fragments[-1].first_entry_id else fragments
    return (*kept, new)
