"""Rows in the bodies of leader logs' entries (ledgerlog_spark.arrow.leader_pieces)."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.arrow.leader_batches import decode_row_entries
from ledgerlog_spark.arrow.leader_pieces import (
    BODY_SIZE_BYTES_MAX,
    PIECE_SIZE_BYTES_MAX,
    SHARED_SIZE_BYTES_MAX,
    RowPiece,
    RowSplitter,
    leader_schema,
)
from ledgerlog_spark.arrow.spark_types import spark_schema
from ledgerlog_spark.arrow.stream_codec import ENTRY_ROWS_MAX, decode_schema
from ledgerlog_spark.errors import ConfigurationError, LocalProtocolError, SchemaMismatchError
from ledgerlog_spark.protocol.leader.entry import (
    LeaderCodec,
    LeaderEntryHeader,
    encode_entry_header,
)

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
RANDOM = random.Random(7)


def table(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    return pa.table([pa.array(numbers), [f"row {n}" for n in numbers]], schema=SCHEMA)


def noise(rows: int, size_bytes: int) -> pa.Table:
    texts = [RANDOM.randbytes(size_bytes // 2).hex() for _ in range(rows)]
    return pa.table({"text": pa.array(texts)})


def splitter(schema: pa.Schema = SCHEMA) -> RowSplitter:
    return RowSplitter("orders", leader_schema(schema))


def of_spark(field: pa.Field, **metadata: Any) -> pa.Field:
    """The field in the form of `DataFrame.toArrow`."""
    return field.with_metadata({b"SPARK::metadata::json": json.dumps(metadata).encode()})


def test_what_spark_put_beside_a_field_stays_at_every_level() -> None:
    collated = {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}
    inner = of_spark(pa.field("c", pa.string()), **collated)
    schema = pa.schema([
        of_spark(pa.field("c", pa.string()), **collated, comment="a word"),
        pa.field("l", pa.list_(pa.struct([inner]))),
        pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"}),
    ])  # fmt: skip
    stored = leader_schema(schema)
    word, words, number = json.loads(spark_schema(stored))["fields"]
    assert word["metadata"] == {**collated, "comment": "a word"}
    assert words["type"]["elementType"]["fields"][0]["metadata"] == collated
    assert number["metadata"] == {}
    cutting = RowSplitter("orders", stored)
    plain = pa.table({"c": ["A"], "l": [[{"c": "B"}]], "n": pa.array([1], pa.int32())})
    assert rows_in(cutting, cutting.split(plain)) == [{"c": "A", "l": [{"c": "B"}], "n": 1}]


@pytest.mark.parametrize("told", [b"no JSON", b"[1]"])
def test_metadata_that_spark_cannot_have_written_is_refused(told: bytes) -> None:
    field = pa.field("c", pa.string(), metadata={b"SPARK::metadata::json": told})
    with pytest.raises(SchemaMismatchError, match="column 'c' has metadata under"):
        leader_schema(pa.schema([field]))


@pytest.mark.parametrize("shape", ["geometry", "geography"])
def test_shapes_of_spark_are_no_structs(shape: str) -> None:
    wkb = pa.field("wkb", pa.binary(), metadata={shape: "true", "srid": "4326"})
    shapes = pa.struct([pa.field("srid", pa.int32()), wkb])
    with pytest.raises(SchemaMismatchError, match=f"'s' has the type {shape}"):
        leader_schema(pa.schema([("s", shapes)]))


def rows_in(cutting: RowSplitter, *entries: list[RowPiece]) -> list[dict[str, Any]]:
    """The rows that readers decode from the entries of these pieces."""
    payloads = []
    for pieces in entries:
        body = cutting.join(pieces)
        assert len(body) <= BODY_SIZE_BYTES_MAX
        count = sum(piece.rows for piece in pieces)
        header = LeaderEntryHeader(LeaderCodec.ARROW, 0, 0, count, len(body))
        payloads.append(encode_entry_header(header) + body)
    decoded = decode_row_entries(cutting.schema.serialize().to_pybytes(), payloads)
    return [row for one in decoded for row in one.batch.to_pylist()]


def test_small_appends_share_a_body_in_their_order() -> None:
    cutting = splitter()
    pieces = [piece for n in range(50) for piece in cutting.split(table(n, n + 1))]
    assert [(piece.rows, piece.append_rows, piece.body) for piece in pieces] == [(1, 1, None)] * 50
    assert rows_in(cutting, pieces) == table(0, 50).to_pylist()
    assert rows_in(cutting, pieces[3:4]) == table(3, 4).to_pylist()


def test_large_append_is_cut_by_rows_and_every_piece_has_an_entry_of_its_own() -> None:
    cutting = splitter()
    pieces = cutting.split(table(0, 200_000))
    assert max(piece.rows for piece in pieces) == ENTRY_ROWS_MAX
    assert {(len(piece), piece.append_rows) for piece in pieces} == {
        (PIECE_SIZE_BYTES_MAX, 200_000)
    }
    assert rows_in(cutting, *([piece] for piece in pieces)) == table(0, 200_000).to_pylist()


def test_pieces_are_cut_by_their_encoded_bytes() -> None:
    cutting = splitter(noise(1, 2).schema)
    rows = noise(3_000, 2_000)
    pieces = cutting.split(rows)
    sizes = [len(piece.body or b"") for piece in pieces[1:-1]]
    assert all(PIECE_SIZE_BYTES_MAX * 0.7 < size < PIECE_SIZE_BYTES_MAX * 1.3 for size in sizes)
    assert sizes
    assert rows_in(cutting, *([piece] for piece in pieces)) == rows.to_pylist()


def test_row_that_no_entry_can_hold_is_an_error_and_the_splitter_goes_on() -> None:
    cutting = splitter(noise(1, 2).schema)
    too_large = pa.table({"text": ["a", RANDOM.randbytes(5 << 20).hex(), "b"]})
    with pytest.raises(LocalProtocolError, match=f"at most {BODY_SIZE_BYTES_MAX}") as caught:
        cutting.split(too_large)
    assert caught.value.definite
    large = noise(1, 3 << 20)
    assert rows_in(cutting, cutting.split(large)) == large.to_pylist()


@given(counts=st.lists(st.integers(1, 9_000), min_size=1, max_size=12))
def test_pieces_that_fit_together_have_no_more_rows_than_an_entry_may_have(
    counts: list[int],
) -> None:
    flags = pa.schema([("flag", pa.bool_())])
    cutting = splitter(flags)
    pieces = [
        piece
        for count in counts
        for piece in cutting.split(pa.table([pa.array([True] * count)], schema=flags))
    ]
    for piece in pieces:
        assert piece.rows / len(piece) <= ENTRY_ROWS_MAX / PIECE_SIZE_BYTES_MAX
        assert (piece.body is None) == (len(piece) <= SHARED_SIZE_BYTES_MAX)
    assert sum(piece.rows for piece in pieces) == sum(counts)


def test_schema_of_a_log_is_what_spark_can_read_back() -> None:
    given_schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False, metadata={"a": "b"}),
            pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
            pa.field("at", pa.timestamp("ns", tz="Europe/Berlin")),
            pa.field("tags", pa.list_(pa.field("element", pa.large_string(), nullable=False))),
        ]
    )
    expected = pa.schema(
        [
            ("id", pa.int32()),
            ("kind", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("tags", pa.list_(pa.field("element", pa.string()))),
        ]
    )
    stored = decode_schema(leader_schema(given_schema))
    assert stored.equals(expected, check_metadata=True)
    cutting = splitter(given_schema)
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
    row = {"id": 1, "kind": "x", "at": moment, "tags": ["u", "v"]}
    assert rows_in(cutting, cutting.split(pa.Table.from_pylist([row], given_schema))) == [row]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema([]), "at least one column"),
        (pa.schema([("n", pa.uint32())]), "column 'n' has the type uint32"),
        (pa.schema([("n", pa.int8()), ("N", pa.int8())]), "same name to Spark"),
    ],
    ids=["no column", "type", "names"],
)
def test_schema_that_spark_cannot_read_back_is_refused(schema: pa.Schema, says: str) -> None:
    with pytest.raises(SchemaMismatchError, match=says):
        leader_schema(schema)


def test_what_is_no_schema_and_no_rows_is_named_as_what_it_is() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("a pyarrow.Schema, not str")):
        leader_schema("n long")
    with pytest.raises(LocalProtocolError, match="not list: create one"):
        splitter().split([{"n": 1}])


def test_rows_are_made_into_the_columns_of_the_log() -> None:
    cutting = splitter()
    narrow = pa.table({"n": pa.array([1, None], pa.int16())})
    swapped = pa.table({"text": pa.array(["a"], pa.large_string()), "n": pa.array([2], pa.int64())})
    pieces = [*cutting.split(narrow), *cutting.split(swapped), *cutting.split(table(3, 4))]
    assert rows_in(cutting, pieces) == [
        {"n": 1, "text": None},
        {"n": None, "text": None},
        {"n": 2, "text": "a"},
        {"n": 3, "text": "row 3"},
    ]
    assert cutting.split(table(0, 0)) == []


@pytest.mark.parametrize(
    ("rows", "column", "says"),
    [
        ({"n": ["1"]}, "n", "is long, but the rows have string"),
        ({"n": [1.5]}, "n", "is long, but the rows have double"),
        (
            {"n": [1], "more": [2]},
            "more",
            "the rows have 'more', which log 'orders' does not have. The log's columns are n, text",
        ),
        ({"N": [1]}, "N", "is a column named n"),
    ],
    ids=["type", "narrower", "more", "case"],
)
def test_rows_of_another_schema_are_an_error_that_names_the_difference(
    rows: dict[str, list[Any]], column: str, says: str
) -> None:
    cutting = splitter()
    with pytest.raises(SchemaMismatchError, match=re.escape(says)) as caught:
        cutting.split(pa.table(rows))
    assert (caught.value.column, caught.value.log, caught.value.definite) == (
        column,
        "orders",
        True,
    )
    assert rows_in(cutting, cutting.split(table(0, 1))) == table(0, 1).to_pylist()


def test_value_that_the_type_of_the_column_cannot_have_is_an_error() -> None:
    moments = pa.array([1_001], pa.timestamp("ns"))
    cutting = splitter(pa.schema([("at", pa.timestamp("us"))]))
    with pytest.raises(SchemaMismatchError, match="column 'at'"):
        cutting.split(pa.table({"at": moments}))
