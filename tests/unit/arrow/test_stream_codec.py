"""The IPC stream in a ledger (ledgerlog_spark.arrow.stream_codec)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.stream_codec import (
    COMPRESSIONS,
    BatchEncoder,
    IndexedEntry,
    decode_entries,
    decode_index,
    decode_schema,
    encode_schema,
    write_options,
)
from ledgerlog_spark.errors import ConfigurationError, LedgerNotFoundError, WireFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = pa.record_batch(
    {"n": pa.array(range(1000)), "text": pa.array([f"row {row}" for row in range(1000)])}
)
SCHEMA_ENTRY = encode_schema(BATCH.schema)
ENTRY = BatchEncoder(BATCH.schema).encode(BATCH, 0)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_entries_one_after_the_other_are_an_arrow_stream(compression: str) -> None:
    encoder = BatchEncoder(BATCH.schema, compression)
    entries = [encoder.encode(BATCH, 0), encoder.encode(BATCH, 1000)]
    entries.append(encoder.encode_index([IndexedEntry(1000, len(e)) for e in entries]))
    reader = pa.ipc.open_stream(SCHEMA_ENTRY + b"".join(entries))
    assert reader.read_all() == pa.Table.from_batches([BATCH, BATCH])


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_decoded_entries_have_their_rows_first_row_and_index(compression: str) -> None:
    encoder = BatchEncoder(BATCH.schema, compression)
    index = (IndexedEntry(1000, 77, b"\x00\xff"), IndexedEntry(1000, 78))
    entries = [
        encoder.encode(BATCH, 0),
        encoder.encode(BATCH.slice(7, 10), 1000),
        encoder.encode_index(index),
    ]
    decoded = list(decode_entries(SCHEMA_ENTRY, entries))
    assert [d.first_row for d in decoded] == [0, 1000, 1010 + 990]
    assert decoded[0].batch == BATCH
    assert decoded[1].batch == BATCH.slice(7, 10)
    assert decoded[2].batch.num_rows == 0
    assert [d.index for d in decoded] == [None, None, index]


def test_decoding_some_columns_keeps_the_ledgers_order_and_passes_over_unknown_names() -> None:
    (decoded,) = decode_entries(SCHEMA_ENTRY, [ENTRY], columns=["later", "text"])
    assert decoded.batch == BATCH.select(["text"])


def test_decoding_no_columns_still_counts_rows() -> None:
    (decoded,) = decode_entries(SCHEMA_ENTRY, [ENTRY], columns=[])
    assert (decoded.batch.num_rows, decoded.batch.num_columns) == (1000, 0)


def test_uncompressed_columns_point_into_the_entry() -> None:
    entry = BatchEncoder(BATCH.schema, "none").encode(BATCH, 0)
    (decoded,) = decode_entries(SCHEMA_ENTRY, [entry])
    start = pa.py_buffer(entry).address
    assert start <= decoded.batch.column(0).buffers()[1].address < start + len(entry)


@pytest.mark.parametrize(
    "bad",
    [b"", b"x", ENTRY[:100], ENTRY[:-9], ENTRY + b"123", ENTRY * 2, SCHEMA_ENTRY, b"\xff" * 3000],
    ids=["empty", "one byte", "cut head", "cut body", "tail", "two", "schema", "ones"],
)
def test_an_entry_that_is_no_record_batch_is_a_format_error(bad: bytes) -> None:
    with pytest.raises(WireFormatError):
        list(decode_entries(SCHEMA_ENTRY, [ENTRY, bad, ENTRY]))


def test_what_reading_entries_raises_comes_through_unchanged() -> None:
    def entries() -> Iterator[bytes]:
        yield ENTRY
        raise LedgerNotFoundError("gone", ledger_id=7)

    decoded = decode_entries(SCHEMA_ENTRY, entries())
    assert next(decoded).batch == BATCH
    with pytest.raises(LedgerNotFoundError) as caught:
        next(decoded)
    assert caught.value.ledger_id == 7


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_decoders_take_any_bytes_without_another_error(data: bytes) -> None:
    for decode in (decode_schema, decode_index):
        with pytest.raises(WireFormatError):
            decode(data)
    with pytest.raises(WireFormatError):
        list(decode_entries(SCHEMA_ENTRY, [data]))


@pytest.mark.parametrize("mark", [b"\0\0\0\0", b"\xff\xff\xff\xff\0\0\0\0"])
def test_an_end_mark_in_an_entry_hides_no_rows_behind_it(mark: bytes) -> None:
    with pytest.raises(WireFormatError, match="end mark"):
        list(decode_entries(SCHEMA_ENTRY, [ENTRY, mark, ENTRY]))


@settings(deadline=None)
@given(st.integers(0, len(ENTRY) - 1), st.integers(1, 255))
def test_a_changed_byte_is_rows_or_a_format_error(place: int, flip: int) -> None:
    changed = bytearray(ENTRY)
    changed[place] ^= flip
    try:
        decoded = list(decode_entries(SCHEMA_ENTRY, [bytes(changed)]))
    except WireFormatError:
        return
    assert len(decoded) <= 1


def test_an_index_of_a_later_format_is_refused() -> None:
    with pytest.raises(WireFormatError, match="format 2"):
        decode_index(b'{"format":2,"rows":[],"bytes":[]}')


def test_an_index_that_would_be_too_large_leaves_out_the_statistics() -> None:
    entries = [IndexedEntry(1, 1, bytes(1024))] * 2000
    encoder = BatchEncoder(BATCH.schema)
    (decoded,) = decode_entries(SCHEMA_ENTRY, [encoder.encode_index(entries)])
    assert decoded.index == (IndexedEntry(1, 1),) * 2000


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(ConfigurationError, match="zstd, lz4, none, got 'gzip'"):
        write_options("gzip")
