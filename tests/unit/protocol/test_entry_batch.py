"""A batch of columns is a sequence of entries."""

from __future__ import annotations

import pytest

from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.messages import StoredEntry

ENTRIES = tuple(StoredEntry(7 + i, 2 + i, 10 * i + 5, b"x" * i) for i in range(4))
BATCH = EntryBatch.of(ENTRIES)


def test_entries_go_in_and_come_out_as_they_were() -> None:
    assert tuple(BATCH) == ENTRIES
    assert all(type(entry) is StoredEntry for entry in BATCH)
    assert BATCH[0] == ENTRIES[0]
    assert BATCH[-1] == ENTRIES[-1]
    assert BATCH[1:3] == ENTRIES[1:3]
    assert (len(BATCH), BATCH.last_entry_id, BATCH.size_bytes) == (4, 10, 6)
    assert ENTRIES[2] in BATCH
    assert BATCH == ENTRIES
    assert ENTRIES[:3] != BATCH
    assert EntryBatch.of(BATCH) is BATCH
    with pytest.raises(IndexError):
        BATCH[4]


@pytest.mark.parametrize("first", [0, 7, 8, 10, 11])
@pytest.mark.parametrize("last", [6, 7, 9, 10, 12])
def test_what_lies_between_two_ids_is_what_a_filter_finds(first: int, last: int) -> None:
    found = BATCH.between(first, last)
    expected = [entry for entry in ENTRIES if first <= entry.entry_id <= last]
    assert (list(found) if found is not None else []) == expected
    assert (found is None) == (not expected)


def test_joined_batches_are_the_entries_of_all_in_order() -> None:
    pieces = [EntryBatch.of(ENTRIES[:1]), EntryBatch.of(ENTRIES[1:3]), EntryBatch.of(ENTRIES[3:])]
    whole = EntryBatch.joined(pieces)
    assert whole == BATCH
    assert whole.size_bytes == BATCH.size_bytes
    assert EntryBatch.joined([BATCH]) is BATCH
