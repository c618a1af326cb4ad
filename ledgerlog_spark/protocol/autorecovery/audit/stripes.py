"""Determines which copies a bookie must have, and which of them its list of entries lacks.

The functions compare the whole list. To check only the first and the last entry of a fragment would
not be enough, because a bookie that was busy may lack an entry between them (AUTORECOVERY.md#N10).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.ledger.quorum import owns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum


def confirmed_fragments(metadata: LedgerMetadata) -> Iterator[tuple[Fragment, int]]:
    """Yield the fragments whose entries are all confirmed, each with the id after its last entry.

    If the ledger is not closed, its last fragment is omitted. If the ledger is closed, entries
    after its last entry are omitted, because no reader needs them.
    """
    fragments = metadata.fragments
    ends = [(one, following.first_entry_id) for one, following in pairwise(fragments)]
    if metadata.is_closed:
        beyond = metadata.last_entry_id + 1
        ends = [(one, min(end, beyond)) for one, end in (*ends, (fragments[-1], beyond))]
    yield from ((one, end) for one, end in ends if one.first_entry_id < end)


def owned_before(quorum: Quorum, index: int, end: int) -> int:
    """Return the number of entries from 0 to `end` (exclusive) that belong to an index."""
    cycles, rest = divmod(end, quorum.ensemble_size)
    return cycles * quorum.write_quorum + sum(owns(quorum, index, each) for each in range(rest))


def owned_count(quorum: Quorum, index: int, first: int, end: int) -> int:
    """Return the number of entries from `first` to `end` (exclusive) that belong to an index."""
    return owned_before(quorum, index, end) - owned_before(quorum, index, first)


def lacking(
    quorum: Quorum, index: int, first: int, end: int, ranges: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Return the first and the last entry of a stripe that are not listed; None if all are.

    Args:
        quorum: The quorum of the ledger.
        index: The place of the bookie in the ensemble.
        first: The first entry of the fragment.
        end: The entry after the last entry of the fragment.
        ranges: The first and the last id of each stretch that the bookie lists, ascending.
    """
    lowest: int | None = None
    highest = -1
    position = first
    for low, high in [*ranges, (end, end)]:
        gap_end = min(low, end)
        if position < gap_end and owned_count(quorum, index, position, gap_end):
            if lowest is None:
                lowest = next(
                    each for each in range(position, gap_end) if owns(quorum, index, each)
                )
            highest = next(
                each for each in range(gap_end - 1, position - 1, -1) if owns(quorum, index, each)
            )
        position = max(position, high + 1)
    return None if lowest is None else (lowest, highest)
