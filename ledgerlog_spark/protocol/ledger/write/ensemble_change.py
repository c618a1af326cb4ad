"""Collects a ledger's failed bookies, and makes the metadata for ensemble changes and the close.

Only one change runs at a time (PROTOCOL.md#B1). Failures during a change are collected here for the
next change. The failures of each bookie are counted, so that a bookie that has failed recently is
chosen last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.ledger.messages import BookiesListed, Failure
from ledgerlog_spark.protocol.ledger.metadata_update import Refusal
from ledgerlog_spark.protocol.placement.replacement import Replacements, replace_failed

FAILURES_IN_A_ROW_MAX = 3
"""Number of failures after which a bookie is not chosen until the next wait has ended. A dead
bookie stays registered until its session ends. Without this limit, two dead bookies could replace
each other a thousand times before their sessions end.
"""


class FailedBookies:
    """The failed bookies that wait for a replacement, and all failures in this ledger.

    A bookie that failed too often is no longer chosen. When there is no replacement for an index,
    the owner waits. After the wait, all bookies may be chosen again.
    """

    def __init__(self) -> None:
        # the answer that made a bookie fail, until the bookie answers again or is replaced; the
        # newest answer is last
        self.codes: dict[str, Code] = {}
        self.counts: dict[str, int] = {}  # number of failures of each bookie in this ledger
        # for each index: how often the owner has waited for a replacement since the bookie at this
        # index last answered
        self.rounds: dict[int, int] = {}
        # bookie of each index that waits for a replacement, and the answer that made it fail;
        # empty on the usual path
        self.by_index: dict[int, tuple[str, Code]] = {}
        self._counts_lately: dict[str, int] = {}
        self._waiting: set[int] = set()
        self._waited: set[int] = set()

    def __bool__(self) -> bool:
        """Whether at least one index waits for a replacement."""
        return bool(self.by_index)

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes that wait for a replacement, in ascending order."""
        return tuple(sorted(self.by_index))

    @property
    def answers(self) -> tuple[tuple[str, Code], ...]:
        """The bookies that wait for a replacement, or have not answered since they failed.

        Each bookie is paired with the answer that made it fail. The newest failure of `codes` is
        last, because messages show only the last bookies.
        """
        answered = [failed for failed in self.by_index.values() if failed[0] not in self.codes]
        return (*answered, *self.codes.items())

    def answers_at(self, indexes: Iterable[int]) -> tuple[tuple[str, Code], ...]:
        """Return the failed bookie of each index, and the answer that made it fail."""
        return tuple(self.by_index[index] for index in indexes)

    def report(self, index: int, bookie_id: str, code: Code) -> None:
        """Record that the bookie at `index` failed.

        Until `settle` is called, later failures of this bookie are not counted.
        """
        self.codes.pop(bookie_id, None)
        self.codes[bookie_id] = code
        before, _ = self.by_index.get(index, (None, code))
        self.by_index[index] = (bookie_id, code)
        if before != bookie_id:
            for counts in (self.counts, self._counts_lately):
                counts[bookie_id] = counts.get(bookie_id, 0) + 1

    def choose(
        self, quorum: Quorum, ensemble: tuple[str, ...], listed: BookiesListed
    ) -> Replacements:
        """Choose replacements for the waiting indexes, as far as there are suitable candidates."""
        lately = self._counts_lately
        eligible = [n for n in listed.candidates if lately.get(n, 0) < FAILURES_IN_A_ROW_MAX]
        return replace_failed(
            quorum, ensemble, self.indexes, eligible, self.counts, listed.bookies, listed.policy
        )

    def wait(self, index: int) -> None:
        """Make the bookie at `index` wait before its retry. Do nothing if it already waits."""
        if index not in self._waiting:
            self._waiting.add(index)
            self.rounds[index] = self.rounds.get(index, 0) + 1

    def waits_are_over(self) -> None:
        """End all waits.

        Allow retries of the bookies that waited, and allow the choice of all bookies.
        """
        self._waited |= self._waiting
        self._waiting.clear()
        self._counts_lately.clear()

    @property
    def waiting(self) -> tuple[int, ...]:
        """Indexes without a replacement whose bookies wait for a retry, in ascending order."""
        return tuple(sorted(self._waiting))

    def has_waited(self, index: int) -> bool:
        """Whether the bookie at `index` may be retried, if it is still registered."""
        return index in self._waited

    def settle(self, index: int) -> None:
        """Record that `index` no longer waits for a replacement."""
        self.by_index.pop(index, None)
        self._waiting.discard(index)
        self._waited.discard(index)

    def replaced(self, index: int, bookie_id: str) -> None:
        """Forget the failure of this bookie, because the metadata has another bookie at `index`."""
        self.settle(index)
        self.codes.pop(bookie_id, None)

    def forget_indexes(self) -> None:
        """Forget all indexes before a new attempt. Keep the failures of each bookie."""
        for forgotten in (self.by_index, self.rounds, self._waiting, self._waited):
            forgotten.clear()
        self._counts_lately.clear()

    def recovered(self, index: int, bookie_id: str) -> None:
        """Record that the bookie at `index` answered. Its waits are counted from 0 again."""
        self.rounds.pop(index, None)
        self.codes.pop(bookie_id, None)


@dataclass(frozen=True, slots=True)
class FragmentChange:
    """A writer's ensemble change. Calling it returns the metadata to write (PROTOCOL.md#B6)."""

    first_entry_id: int  # last add confirmed + 1
    replacements: Mapping[int, tuple[str, str]]  # index -> (failed bookie, its replacement)
    # index -> bookie that was absent. If this mapping is not empty, the new fragment may have the
    # same ensemble as the last fragment (PROTOCOL.md#B20).
    returned: Mapping[int, str] = field(default_factory=dict)

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes whose bookies get the unconfirmed entries, in ascending order."""
        return tuple(sorted((*self.replacements, *self.returned)))

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        """Return the metadata with the new fragment, or the reason why it must not be written."""
        if current.state is LedgerState.CLOSED:
            return Refusal(Failure.CLOSED)
        if current.state is LedgerState.IN_RECOVERY:
            return Refusal(Failure.FENCED)
        last = current.last_fragment
        ensemble = self.ensemble_after(last.ensemble)
        is_begun = last.first_entry_id == self.first_entry_id
        if ensemble == last.ensemble and (is_begun or not self.returned):
            return Refusal(None)
        if last.first_entry_id > self.first_entry_id:
            return Refusal(Failure.METADATA_CHANGED)
        fragments = with_fragment(current.fragments, Fragment(self.first_entry_id, ensemble))
        return current.with_fragments(fragments)

    def ensemble_after(self, ensemble: tuple[str, ...]) -> tuple[str, ...]:
        """Replace each failed bookie of `ensemble` that is still at its index."""
        members = list(ensemble)
        for index, (failed, replacement) in self.replacements.items():
            if members[index] == failed:
                members[index] = replacement
        return tuple(members)


@dataclass(frozen=True, slots=True)
class LedgerClose:
    """A writer's close at its last add confirmed.

    Calling it returns the metadata to write (PROTOCOL.md#D3).
    """

    last_entry_id: int
    length: int

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        """Return the CLOSED metadata, or the reason why it must not be written."""
        if current.state is LedgerState.IN_RECOVERY:
            return Refusal(Failure.FENCED)
        if current.state is LedgerState.CLOSED:
            same = (current.last_entry_id, current.length) == (self.last_entry_id, self.length)
            return Refusal(None if same else Failure.CLOSED)
        fragments = fragments_up_to(current.fragments, self.last_entry_id)
        kept = current.with_fragments(fragments)
        return kept.closed(last_entry_id=self.last_entry_id, length=self.length)


def with_fragment(fragments: tuple[Fragment, ...], new: Fragment) -> tuple[Fragment, ...]:
    """Return `fragments` with the fragment `new` at the end.

    If the last fragment begins at the same entry, `new` replaces it, because a fragment without
    entries is not kept (PROTOCOL.md#B4).
    """
    assert new.first_entry_id >= fragments[-1].first_entry_id, "fragments rise"
    kept = fragments[:-1] if new.first_entry_id == fragments[-1].first_entry_id else fragments
    return (*kept, new)


def fragments_up_to(fragments: tuple[Fragment, ...], last_entry_id: int) -> tuple[Fragment, ...]:
    """Return the fragments of a ledger that is closed at `last_entry_id` (PROTOCOL.md#D4).

    A fragment that begins after the end of the ledger has no entries, and is dropped. But the first
    fragment is always kept.
    """
    first, *others = fragments
    return (first, *(one for one in others if one.first_entry_id <= last_entry_id))
