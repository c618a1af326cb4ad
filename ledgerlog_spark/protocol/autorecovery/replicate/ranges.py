"""Computes runs of entry ids: the stripe of an index, the gaps of a list, and parts of a fragment.

A run is a pair of the first and the last id, both inclusive. Runs are generated one by one, so that
a ledger of millions of entries needs little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.autorecovery.replicate.messages import EntryRange
from ledgerlog_spark.protocol.ledger.quorum import owns


def healable_fragments(metadata: LedgerMetadata) -> list[tuple[Fragment, int]]:
    """Return the fragments that a worker may change, each with the entry after its last entry.

    If the ledger is not CLOSED, its last fragment is omitted, because the entries of this fragment
    may not be confirmed. If the ledger is CLOSED, entries after its last entry do not count, so a
    fragment may have no entry (AUTORECOVERY.md#X3).
    """
    fragments = metadata.fragments
    ends = [(one, following.first_entry_id) for one, following in pairwise(fragments)]
    if metadata.is_closed:
        beyond = metadata.last_entry_id + 1
        ends = [(one, min(end, beyond)) for one, end in (*ends, (fragments[-1], beyond))]
    return ends


def gaps(first: int, end: int, ranges: Iterable[EntryRange]) -> Iterator[EntryRange]:
    """Yield the runs from `first` to `end` (exclusive) that ascending `ranges` do not cover."""
    position = first
    for low, high in ranges:
        if low >= end:
            break
        if position < low:
            yield position, low - 1
        position = max(position, high + 1)
    if position < end:
        yield position, end - 1


def owned_runs(quorum: Quorum, index: int, run: EntryRange) -> Iterator[EntryRange]:
    """Yield the parts of `run` that consist of entries which the bookie at `index` must have."""
    first, last = run
    if not quorum.is_striped:
        yield run
        return
    position = first
    while position <= last:
        if not owns(quorum, index, position):
            position += 1
            continue
        begin = position
        while position < last and owns(quorum, index, position + 1):
            position += 1
        yield begin, position
        position += 1


def lacking_runs(
    quorum: Quorum, index: int, first: int, end: int, held: Iterable[EntryRange]
) -> Iterator[EntryRange]:
    """Yield the runs of an index's stripe that the ascending ranges `held` do not contain."""
    for gap in gaps(first, end, held):
        yield from owned_runs(quorum, index, gap)


def joined(ranges: Iterable[EntryRange]) -> list[EntryRange]:
    """Return the ids of these ranges as ascending ranges with gaps between them."""
    found: list[EntryRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def covers(ranges: Sequence[EntryRange], entry_id: int) -> bool:
    """Whether one of the ranges contains the entry."""
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][1] < entry_id:
            low = middle + 1
        else:
            high = middle
    return low < len(ranges) and ranges[low][0] <= entry_id


def replaced(
    metadata: LedgerMetadata,
    fragment: Fragment,
    end: int,
    index: int,
    target: str,
    holes: Sequence[EntryRange],
) -> LedgerMetadata:
    """Return metadata in which `target` has an index of a fragment, except in the holes.

    The fragment is split around the holes, so that the old bookie remains a member only in the
    holes (AUTORECOVERY.md#X8).

    Args:
        metadata: The metadata that contains the fragment.
        fragment: The fragment in which a bookie is replaced.
        end: The entry after the last entry of the fragment.
        index: The place of the old bookie in the ensemble.
        target: The bookie that has the entries of this index.
        holes: Ascending ranges of entries that the target does not have.
    """
    members = list(fragment.ensemble)
    members[index] = target
    ensemble = tuple(members)
    pieces: list[Fragment] = []
    position = fragment.first_entry_id
    for low, high in holes:
        if position < low:
            pieces.append(Fragment(position, ensemble))
        pieces.append(Fragment(low, fragment.ensemble))
        position = high + 1
    if position < end or not pieces:
        pieces.append(Fragment(position, ensemble))
    place = metadata.fragments.index(fragment)
    before, after = metadata.fragments[:place], metadata.fragments[place + 1 :]
    return metadata.with_fragments((*before, *pieces, *after))
