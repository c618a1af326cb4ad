"""Bounds of columns (ledgerlog_spark.arrow.statistics)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.protocol.log_statistics import ColumnStatistics


def bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any, int]:
    (column,) = batch_statistics(pa.record_batch([pa.array(values, kind)], names=["x"]))
    return column.minimum, column.maximum, column.null_count


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([3, None, 1], pa.int8(), (1, 3, 1)),
        ([3, 2**62], pa.int64(), (3, 2**62, 0)),
        ([True, None], pa.bool_(), (True, True, 1)),
        ([1.5, -0.5], pa.float32(), (-0.5, 1.5, 0)),
        (["b", "a", None, "é"], pa.string(), ("a", "é", 1)),
        ([b"\xff", b"\x00"], pa.binary(), (b"\x00", b"\xff", 0)),
        ([Decimal("-1.50"), Decimal("2.00")], pa.decimal128(10, 2), (-150, 200, 0)),
        ([date(1970, 1, 2)], pa.date32(), (1, 1, 0)),
        ([datetime(1970, 1, 1, 0, 0, 1, 0, UTC)], pa.timestamp("us", "UTC"), (10**6, 10**6, 0)),
        ([time(0, 0, 1)], pa.time64("ns"), (10**9, 10**9, 0)),
        ([timedelta(seconds=-1)], pa.duration("us"), (-(10**6), -(10**6), 0)),
        ([None, None], pa.int64(), (None, None, 2)),
        ([[1], None], pa.list_(pa.int64()), (None, None, 1)),
        ([None], pa.null(), (None, None, 1)),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_are_in_the_columns_own_unit(
    values: list[Any], kind: pa.DataType, expected: tuple[Any, Any, int]
) -> None:
    assert bounds(values, kind) == expected


def test_nan_leaves_the_maximum_open_because_spark_puts_it_above_every_number() -> None:
    assert bounds([1.0, math.nan, 2.0], pa.float64()) == (1.0, None, 0)
    assert bounds([math.nan], pa.float64()) == (None, None, 0)


def test_bounds_of_a_slice_are_those_of_its_rows() -> None:
    batch = pa.record_batch([pa.array(["z", "b", "a"]), pa.array([9, 1, 2])], names=["s", "n"])
    text, number = batch_statistics(batch.slice(1))
    assert (text.minimum, text.maximum, number.minimum, number.maximum) == ("a", "b", 1, 2)


def test_only_the_first_32_columns_are_described() -> None:
    batch = pa.record_batch([pa.array([1])] * 40, names=[f"c{n}" for n in range(40)])
    assert len(batch_statistics(batch)) == 32


def test_a_column_of_nulls_keeps_the_other_entries_bounds() -> None:
    known = ColumnStatistics(0, 1, 5, 9)
    empty = ColumnStatistics(0, 3)
    for order in ((known, 4, empty, 3), (empty, 3, known, 4)):
        union = RangeStatistics()
        union.add(order[1], [order[0]])
        union.add(order[3], [order[2]])
        assert union.columns == (ColumnStatistics(0, 4, 5, 9),)


def test_an_entry_of_unknown_bounds_makes_the_union_unknown() -> None:
    union = RangeStatistics()
    union.add(4, [ColumnStatistics(0, 0, 5.0, 9.0)])
    union.add(4, [ColumnStatistics(0, 0, 1.0, None)])
    assert union.columns == (ColumnStatistics(0, 0, 1.0, None),)


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=8), min_size=1))
def test_the_union_of_entries_is_the_statistics_of_all_their_rows(
    entries: list[list[str | None]],
) -> None:
    union = RangeStatistics()
    for values in entries:
        batch = pa.record_batch([pa.array(values, pa.string())], names=["x"])
        union.add(len(values), batch_statistics(batch))
    every = [value for values in entries for value in values]
    batch = pa.record_batch([pa.array(every, pa.string())], names=["x"])
    assert union.columns == batch_statistics(batch)
