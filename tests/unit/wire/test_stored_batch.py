"""The entries of a batch, of one size and of several."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.stored_batch import StoredBatch

CASES: tuple[list[bytes], ...] = (
    [],
    [b""],
    [b"", b""],
    [b"abcdef"],
    [b"abc", b"xyz", b"123"],
    [b"abc", b"", b"x" * 300],
)


def laid_out(entries: list[bytes]) -> memoryview:
    pieces = [len(entry).to_bytes(4, "big") + entry for entry in entries]
    return memoryview(bytearray(b"".join(pieces)))


@pytest.mark.parametrize("entries", CASES)
def test_a_batch_is_the_sequence_of_its_entries(entries: list[bytes]) -> None:
    batch = StoredBatch(laid_out(entries))
    assert list(batch) == entries
    assert all(type(entry) is bytes for entry in batch)
    assert len(batch) == len(entries)
    assert batch == entries
    assert batch == StoredBatch.of(entries)
    assert batch[1:] == tuple(entries[1:])
    assert batch.size_bytes_min == min(map(len, entries), default=0)
    assert bool(batch) == bool(entries)
    with pytest.raises(IndexError):
        batch[len(entries)]


@pytest.mark.parametrize("entries", [[b"abcdef"], [b"abcdef", b"uvwxyz"], [b"abcdef", b"123"]])
def test_a_batch_is_cut_into_columns(entries: list[bytes]) -> None:
    heads, middles, rests = StoredBatch(laid_out(entries)).cut(1, 2)
    assert list(heads) == [entry[:1] for entry in entries]
    assert list(middles) == [entry[1:3] for entry in entries]
    assert list(rests) == [entry[3:] for entry in entries]
    assert all(type(rest) is bytes for rest in rests)


@pytest.mark.parametrize("entries", [[b"abc", b"xyz"], [b"abc", b"", b"z"]])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_batch_that_ends_within_an_entry_is_refused(entries: list[bytes], cut: int) -> None:
    with pytest.raises(WireFormatError):
        StoredBatch(laid_out(entries)[:-cut])


@pytest.mark.parametrize("length", [-1, -(1 << 31), 4, (1 << 31) - 1])
def test_a_length_that_no_entry_has_is_refused(length: int) -> None:
    for entries in ([b"abc"], [b"abc", b"defgh"]):
        body = laid_out(entries)
        body[:4] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(WireFormatError):
            StoredBatch(body)
