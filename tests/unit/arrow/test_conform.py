"""Batches that are converted to a schema (ledgerlog_spark.arrow.conform)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.errors import SchemaMismatchError

STRICT_LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))


def target(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable=nullable)])


def conform(array: pa.Array, kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    batch = pa.record_batch([array], names=["x"])
    wanted = target(kind, nullable=nullable)
    conformed = Conformer(wanted).conform(batch)
    conformed.validate(full=True)
    assert conformed.schema.equals(wanted)
    return conformed.column(0)


def test_a_batch_of_the_right_schema_is_returned_as_it_is() -> None:
    batch = pa.record_batch({"x": pa.array([1])})
    conformer = Conformer(target(pa.int64()))
    assert conformer.conform(batch) is batch


def test_columns_are_matched_by_name_ordered_and_filled_with_nulls() -> None:
    wanted = pa.schema([("late", pa.string()), ("b", pa.int64()), ("a", pa.int64())])
    batch = pa.record_batch({"a": pa.array([1]), "gone": pa.array(["x"]), "b": pa.array([2])})
    assert Conformer(wanted).conform(batch).to_pylist() == [{"late": None, "b": 2, "a": 1}]


def test_no_columns_keep_their_row_count() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2, 3])})
    assert Conformer(pa.schema([])).conform(batch).num_rows == 3


def test_one_conformer_takes_batches_of_several_schemas_in_turn() -> None:
    conformer = Conformer(target(pa.int64()))
    narrow = pa.record_batch({"x": pa.array([1], pa.int32())})
    wide = pa.record_batch({"x": pa.array([2], pa.int64())})
    batches = [conformer.conform(batch) for batch in (narrow, wide, narrow, narrow, wide)]
    assert [batch.column(0).to_pylist() for batch in batches] == [[1], [2], [1], [1], [2]]
    assert all(batch.schema.equals(conformer.target) for batch in batches)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
        (pa.array([b"ab", None], pa.large_binary()), pa.binary()),
        (pa.array([1, None], pa.int32()), pa.int64()),
        (pa.array([1, None], pa.uint16()), pa.int64()),
        (pa.array([1, None], pa.int32()), pa.float64()),
        (pa.array([1.5, None], pa.float32()), pa.float64()),
        (pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)), pa.decimal128(10, 3)),
        (pa.array([None, None], pa.null()), pa.int64()),
        (pa.array([[1, 2], None, []], pa.large_list(pa.int32())), pa.list_(pa.int64())),
        (pa.array([[("a", 1)], None], pa.map_(pa.large_string(), pa.int8())),
         pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)  # fmt: skip
def test_values_survive_the_change_of_type(array: pa.Array, kind: pa.DataType) -> None:
    for rows in (array, array.slice(1)):
        assert conform(rows, kind).to_pylist() == rows.to_pylist()


def test_timestamps_take_sparks_unit_and_zone() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 6, UTC)
    array = pa.array([moment, None], pa.timestamp("ns", "+00:00"))
    assert conform(array, pa.timestamp("us", "UTC")).to_pylist() == [moment, None]


def test_structs_match_fields_by_name_at_every_level_and_keep_their_nulls() -> None:
    inner = pa.struct([("b", pa.large_string()), ("a", pa.int32())])
    rows: list[Any] = [[{"b": "x", "a": 1}, None], None, [{"b": None, "a": 2}]]
    array = pa.array(rows, pa.list_(inner))
    wanted = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float32())]))
    expected = [
        [{"a": 1, "b": "x", "c": None}, None], None, [{"a": 2, "b": None, "c": None}]
    ]  # fmt: skip
    assert conform(array, wanted).to_pylist() == expected
    assert conform(array.slice(1), wanted).to_pylist() == expected[1:]


def nested(number: pa.DataType) -> pa.DataType:
    return pa.struct([("n", number), ("l", pa.list_(number)), ("m", pa.map_(number, number))])


NESTED: list[Any] = [
    None,
    {"n": 1, "l": None, "m": [(1, 2), (3, None)]},
    {"n": None, "l": [], "m": None},
    {"n": 2, "l": [3, None, 4], "m": []},
    {"n": 3, "l": [5], "m": [(4, 4)]},
]


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("first", range(5))
def test_a_part_of_nested_values_keeps_its_values_and_its_nulls(first: int, length: int) -> None:
    narrow, wide = nested(pa.int32()), nested(pa.int64())
    values: list[Any] = NESTED + NESTED
    lists = [None if value is None else [value, None, value] for value in values]
    maps = [None if value is None else [(1, value), (2, None)] for value in values]
    for given, got, wanted in (
        (values, narrow, wide),
        (lists, pa.list_(narrow), pa.list_(wide)),
        (maps, pa.map_(pa.int32(), narrow), pa.map_(pa.int64(), wide)),
    ):
        part = pa.array(given, got).slice(first, length)
        assert conform(part, wanted).to_pylist() == given[first : first + length]


@pytest.mark.parametrize("first", range(4))
def test_maps_to_structs_that_are_null_while_their_fields_are_not(first: int) -> None:
    numbers = pa.array([1, None, None, 4], pa.int32())  # as Spark fills the field of a null struct
    strict = pa.field("n", pa.int32(), nullable=False)
    mask = pa.array([False, True, True, False])
    structs = pa.StructArray.from_arrays([numbers], fields=[strict], mask=mask)
    absent = pa.array([False, True, False, False, False])
    keys = pa.array([1, 2, 3, 4])
    maps = pa.MapArray.from_arrays([0, 2, 2, 2, 3, 4], keys, structs, mask=absent)
    values = [[(1, {"n": 1}), (2, None)], None, [], [(3, None)], [(4, {"n": 4})]]
    assert maps.to_pylist() == values
    wanted = pa.map_(pa.int64(), pa.struct([("n", pa.int64())]))
    assert conform(maps.slice(first, 3), wanted).to_pylist() == values[first : first + 3]


def test_entries_below_a_null_map_are_none_of_its_neighbours() -> None:
    keys, items = pa.array([1, 2, 3]), pa.array([10, 20, 30])
    hidden = pa.MapArray.from_arrays([0, 1, 2, 3], keys, items, mask=pa.array([False, True, False]))
    wanted = pa.map_(pa.int64(), pa.float64())
    assert conform(hidden, wanted).to_pylist() == [[(1, 10.0)], None, [(3, 30.0)]]
    assert conform(hidden.slice(1), wanted).to_pylist() == [None, [(3, 30.0)]]
    assert conform(hidden.slice(1, 1), wanted).to_pylist() == [None]
    assert conform(hidden.slice(3), wanted).to_pylist() == []


@pytest.mark.parametrize("values", [[{"n": 1}, {"n": 2}], [{"n": 1}, None]])
def test_structs_without_fields_are_as_many_as_there_were(values: list[Any]) -> None:
    array = pa.array(values, pa.struct([("n", pa.int32())]))
    expected: list[Any] = [None if value is None else {} for value in values]
    assert conform(array, pa.struct([])).to_pylist() == expected
    assert conform(pa.array([values] * 2), pa.list_(pa.struct([]))).to_pylist() == [expected] * 2


def test_nullability_flags_become_the_targets_when_there_are_no_nulls() -> None:
    conform(pa.array([1, 2]), pa.int64(), nullable=False)
    assert conform(pa.array([[1], [2]]), STRICT_LIST).to_pylist() == [[1], [2]]


def test_a_null_in_a_column_that_has_none_names_the_column() -> None:
    with pytest.raises(SchemaMismatchError, match="'x' must be int64 not null"):
        conform(pa.array([1, None]), pa.int64(), nullable=False)


def test_a_null_element_in_a_list_that_has_none_names_the_column() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'x\.element'"):
        conform(pa.array([[1, None]]), STRICT_LIST)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([300]), pa.int8()),
        (pa.array([0.1]), pa.float32()),
        (pa.array([Decimal("1.50")]), pa.decimal128(4, 1)),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([[1]]), pa.int64()),
        (pa.array([{"a": 1}]), pa.struct([pa.field("b", pa.int64(), nullable=False)])),
        (pa.array([Decimal("123.45")]), pa.decimal128(4, 2)),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_an_error_that_names_column_expected_and_got(
    array: pa.Array, kind: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        conform(array, kind)
    assert caught.value.column.startswith("x")
    assert caught.value.expected
    assert caught.value.got
