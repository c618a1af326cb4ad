"""Compares the record of a ledger with the bookies' lists, and decides which copies are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

from ledgerlog_spark.model import Code, Fragment, LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.replicate.messages import (
    WHOLE_LEDGER,
    EntriesListed,
    EntryRange,
    RegisteredListed,
    Task,
    TaskQueue,
)
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import (
    gaps,
    healable_fragments,
    lacking_runs,
    owned_runs,
)


class Kind(Enum):
    """The operation that a member needs."""

    REPLACE = "another bookie replaces the member"
    FILL = "the member gets the entries that it lacks"
    PROBE = "the member cannot list its entries, so each entry is read"


@dataclass(frozen=True, slots=True)
class LackingCopies:
    """A member of a fragment that needs an operation, because copies are missing.

    Attributes:
        end: The entry after the last entry of the fragment.
        index: The place of the member in the ensemble.
        damaged: Entries that must be written even if the member lists them.
    """

    kind: Kind
    fragment: Fragment
    end: int
    index: int
    damaged: tuple[EntryRange, ...] = ()

    @property
    def member(self) -> str:
        """The bookie at the index `index` of the ensemble."""
        return self.fragment.ensemble[self.index]


@dataclass(slots=True)
class LackingByLists:
    """The result of one comparison of the lists.

    Attributes:
        items: The members that need an operation, in the order of the fragments.
        waits_for: Members whose entries are unknown at present, each with the reason. Because of
            them, it is unknown whether the ledger has all copies.
        mends_last: Whether the ledger is not closed, and its last fragment names a lost bookie.
    """

    items: list[LackingCopies] = field(default_factory=list)
    waits_for: dict[str, str] = field(default_factory=dict)
    mends_last: bool = False

    @property
    def reason(self) -> str:
        """At most three members that the pass waits for, with reasons, as a text for operators."""
        return "; ".join(f"{name} {why}" for name, why in islice(self.waits_for.items(), 3))


def members_to_list(
    metadata: LedgerMetadata, registered: RegisteredListed, task: Task
) -> tuple[str, ...]:
    """Return the registered members whose entries the pass must list, each once."""
    if task.queue is TaskQueue.MOVE:
        return ()
    members = (name for one, _ in healable_fragments(metadata) for name in one.ensemble)
    return tuple(name for name in dict.fromkeys(members) if is_registered(registered, name))


def is_registered(registered: RegisteredListed, bookie_id: str) -> bool:
    """Whether a bookie is registered, writable or read-only."""
    return bookie_id in registered.read_only or bookie_id in registered.writable


def find_needs(
    metadata: LedgerMetadata,
    registered: RegisteredListed,
    lists: Mapping[str, EntriesListed],
    task: Task,
    settled: Collection[tuple[str, int]] = (),
) -> LackingByLists:
    """Compare the record with the lists of its members (AUTORECOVERY.md#X4).

    `settled` contains pairs of a member and the first entry of a fragment. For these, the job has
    already written the damaged copies, or has read the copies because the member cannot list them.
    """
    found = LackingByLists()
    for fragment, end in healable_fragments(metadata):
        for index, name in enumerate(fragment.ensemble):
            if _must_go(task, registered, fragment, name):
                found.items.append(LackingCopies(Kind.REPLACE, fragment, end, index))
            elif task.queue is TaskQueue.MOVE:
                continue
            elif not is_registered(registered, name):
                if fragment.first_entry_id < end:
                    found.waits_for[name] = "is not registered, and no mark names it"
            else:
                need = LackingCopies(Kind.FILL, fragment, end, index)
                is_settled = (name, fragment.first_entry_id) in settled
                _compare(metadata, lists, task, need, found, is_settled=is_settled)
    if not metadata.is_closed:
        _look_at_last(metadata.last_fragment, registered, task, found)
    return found


def _look_at_last(
    last: Fragment, registered: RegisteredListed, task: Task, found: LackingByLists
) -> None:
    """Add the members of the last fragment of a ledger that is not closed to `found`.

    The ledger is never fenced because of a registered bookie. If such a bookie must be replaced,
    the writer of the ledger replaces it.
    """
    for name in last.ensemble:
        if is_registered(registered, name):
            if _must_go(task, registered, last, name):
                found.waits_for[name] = "is still in the last fragment of an open ledger"
        elif _must_go(task, registered, last, name):
            found.mends_last = True
        elif task.queue is TaskQueue.MARK:
            found.waits_for[name] = "is not registered, and no mark names it"


def _must_go(task: Task, registered: RegisteredListed, fragment: Fragment, name: str) -> bool:
    if task.queue is TaskQueue.MARK:
        return name in task.lost and not is_registered(registered, name)
    first = fragment.first_entry_id
    return (name, first) in task.moves or (name, WHOLE_LEDGER) in task.moves


def _compare(
    metadata: LedgerMetadata,
    lists: Mapping[str, EntriesListed],
    task: Task,
    need: LackingCopies,
    found: LackingByLists,
    *,
    is_settled: bool,
) -> None:
    name, fragment = need.member, need.fragment
    listed = lists[name]
    damaged: tuple[EntryRange, ...] = ()
    if not is_settled:
        runs = damaged_runs(metadata, task, need)
        damaged = tuple(part for low, high in runs for part in gaps(low, high + 1, listed.given_up))
    if listed.code is Code.OK:
        if damaged or has_gap(metadata, need, listed.ranges):
            found.items.append(LackingCopies(Kind.FILL, fragment, need.end, need.index, damaged))
    elif listed.code is not Code.BAD_REQUEST:
        found.waits_for[name] = f"does not list its entries: {listed.code.value}"
    elif not is_settled and (name in task.lost or task.queue is TaskQueue.HOLE):
        found.items.append(LackingCopies(Kind.PROBE, fragment, need.end, need.index, damaged))


def has_gap(
    metadata: LedgerMetadata,
    need: LackingCopies,
    ranges: Sequence[EntryRange],
    holes: Sequence[EntryRange] = (),
) -> bool:
    """Whether an entry of the member's stripe is neither in one of `ranges` nor in a hole."""
    first, end = need.fragment.first_entry_id, need.end
    held = sorted((*ranges, *holes))
    return any(lacking_runs(metadata.quorum, need.index, first, end, held))


def damaged_runs(metadata: LedgerMetadata, task: Task, need: LackingCopies) -> Iterator[EntryRange]:
    """Yield the runs of entries of a member's stripe that are damaged according to the task."""
    first, end = need.fragment.first_entry_id, need.end
    for one in task.damaged:
        is_here = one.bookie_id in ("", need.member)
        if not is_here or one.first_entry_id not in (WHOLE_LEDGER, first):
            continue
        for low, high in one.ranges or ((first, end - 1),):
            inside = max(low, first), min(high, end - 1)
            if inside[0] <= inside[1]:
                yield from owned_runs(metadata.quorum, need.index, inside)


def missing_runs(
    metadata: LedgerMetadata, need: LackingCopies, held: Sequence[EntryRange]
) -> Iterator[EntryRange]:
    """Yield the runs that a bookie needs in addition to `held`, to have the whole stripe."""
    damaged = sorted(need.damaged)
    first, end = need.fragment.first_entry_id, need.end
    # Damaged copies count as missing.
    intact: list[EntryRange] = []
    for low, high in held:
        inside = max(low, first), min(high, end - 1)
        if inside[0] <= inside[1]:
            intact.extend(gaps(inside[0], inside[1] + 1, damaged))
    yield from lacking_runs(metadata.quorum, need.index, first, end, intact)
