"""Finds entries of a ledger with too few copies, from lists that bookies send. Pure: no I/O.

A bookie lists ranges of the entries that it has. A range is a pair: the first and the last entry,
both inclusive. The ranges are ascending, and there is a gap between two ranges. There is no list of
a bookie that does not answer, or that may have lost entries. The copies of such a bookie count as
unknown, not as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.ledger.quorum import write_set

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ShortRange:
    """Consecutive entries that do not have all copies, or have copies that are unknown.

    In a striped ledger, some entries of the range may nevertheless have all copies.

    Attributes:
        first_entry_id: Id of the first entry.
        last_entry_id: Id of the last entry, inclusive.
        copies: Number of copies of the entry of the range that has the fewest copies.
        copies_unknown: Number of unknown copies of the same entry.
        lacking: The bookies that should have entries of the range, but do not list them.
        unknown: The bookies that should have entries of the range, but sent no list.
    """

    first_entry_id: int
    last_entry_id: int
    copies: int
    copies_unknown: int
    lacking: tuple[str, ...]
    unknown: tuple[str, ...]

    def is_lost(self, quorum: Quorum) -> bool:
        """Whether an entry certainly has fewer copies than the ack quorum."""
        return self.copies + self.copies_unknown < quorum.ack_quorum


def fragments_to_check(metadata: LedgerMetadata) -> Iterator[tuple[Fragment, int]]:
    """Yield each fragment whose entries must have copies, with the id of its last entry.

    If the ledger is closed, these are all its fragments. Otherwise, the last fragment is omitted,
    because a writer may still be storing copies of its entries.
    """
    ends = [after.first_entry_id - 1 for _, after in pairwise(metadata.fragments)]
    if metadata.is_closed:
        ends.append(metadata.last_entry_id)
    for fragment, end in zip(metadata.fragments, ends, strict=False):
        last = min(end, metadata.last_entry_id) if metadata.is_closed else end
        if last >= fragment.first_entry_id:
            yield fragment, last


def short_ranges(
    metadata: LedgerMetadata, lists: Mapping[str, Ranges | None]
) -> Iterator[ShortRange]:
    """Yield the ranges of entries that do not have all copies, in ascending order.

    Args:
        metadata: Metadata of the ledger.
        lists: Maps each bookie to the ranges of the ledger that it lists, or to None if it sent no
            list.
    """
    for fragment, last in fragments_to_check(metadata):
        yield from _short_of(metadata.quorum, fragment, last, lists)


def _short_of(
    quorum: Quorum, fragment: Fragment, last: int, lists: Mapping[str, Ranges | None]
) -> Iterator[ShortRange]:
    """Yield the short ranges of one fragment.

    The ends of all listed ranges cut the fragment into parts. In a part, each bookie lists either
    all entries or no entry. If the ledger is striped, a part may have no entry that a bookie must
    store.
    """
    first = fragment.first_entry_id
    cuts = {first, last + 1}
    for name in set(fragment.ensemble):
        for begin, end in lists.get(name) or ():
            cuts |= {at for at in (begin, end + 1) if first < at <= last}
    places = dict.fromkeys(fragment.ensemble, 0)
    gap_max = quorum.ensemble_size - 1 if quorum.is_striped else 0
    before: ShortRange | None = None
    for begin, after in pairwise(sorted(cuts)):
        holders = {name for name in places if _lists(lists.get(name), places, name, begin)}
        found = _short_between(quorum, fragment, begin, after - 1, holders, lists)
        if found is None:
            continue
        if before is not None and _is_alike(before, found, gap_max):
            before = _joined(before, found)
            continue
        if before is not None:
            yield before
        before = found
    if before is not None:
        yield before


def _lists(ranges: Ranges | None, places: dict[str, int], name: str, entry_id: int) -> bool:
    """Whether the ranges contain the entry.

    `places` has the current place in each bookie's list.
    """
    if ranges is None:
        return False
    place = places[name]
    while place < len(ranges) and ranges[place][1] < entry_id:
        place += 1
    places[name] = place
    return place < len(ranges) and ranges[place][0] <= entry_id


def _short_between(
    quorum: Quorum,
    fragment: Fragment,
    first: int,
    last: int,
    holders: set[str],
    lists: Mapping[str, Ranges | None],
) -> ShortRange | None:
    """Return the short range from `first` to `last`, or None if all entries have all copies."""
    worst: tuple[int, int] | None = None
    lacking: set[str] = set()
    unknown: set[str] = set()
    for entry_id in range(first, min(last, first + quorum.ensemble_size - 1) + 1):
        names = {fragment.ensemble[index] for index in write_set(quorum, entry_id)}
        without_list = {name for name in names if lists.get(name) is None}
        held = len(names & holders)
        if held < quorum.write_quorum:
            lacking |= names - holders - without_list
            unknown |= without_list
            copies = (held, len(without_list))
            worst = copies if worst is None else min(worst, copies, key=_order)
    if worst is None:
        return None
    return ShortRange(first, last, *worst, tuple(sorted(lacking)), tuple(sorted(unknown)))


def _is_alike(before: ShortRange, after: ShortRange, gap_max: int) -> bool:
    """Whether the same bookies lack two neighbouring ranges, so that they are shown as one range.

    In a striped ledger, a bookie does not store the entries between two of its entries.
    """
    gap = after.first_entry_id - before.last_entry_id - 1
    return gap <= gap_max and (before.lacking, before.unknown) == (after.lacking, after.unknown)


def _joined(before: ShortRange, after: ShortRange) -> ShortRange:
    worst = min((before, after), key=lambda each: _order((each.copies, each.copies_unknown)))
    return replace(worst, first_entry_id=before.first_entry_id, last_entry_id=after.last_entry_id)


def _order(copies: tuple[int, int]) -> tuple[int, int]:
    """Return the sort key of an entry, by its copies. Unknown copies count as existing copies."""
    held, unknown = copies
    return held + unknown, held
