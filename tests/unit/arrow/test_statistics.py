"""Bounds of columns (ledgerlog_spark.arrow.statistics)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.protocol.log.state.statistics import (
    ColumnStatistics,
    decode_statistics,
    encode_statistics,
)
from tests.fixtures.examples import examples


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


def test_text_that_is_not_utf_8_is_no_bound() -> None:
    raw = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    (column,) = batch_statistics(pa.record_batch([raw], names=["x"]))
    assert (column.minimum, column.maximum) == ("a", None)
    (column,) = batch_statistics(pa.record_batch([raw.slice(1)], names=["x"]))
    assert (column.minimum, column.maximum) == (None, None)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}E-{scale}"))


PREFIX = "p" * 30
LONG_TEXT = st.builds(
    lambda size, tail: PREFIX[:size] + tail,
    st.integers(26, 30),
    st.text("\x00a\x7f\u0080\u07ff\ud7ff\ue000\uffff\U00010000\U0010ffff", max_size=8),
)
LONG_BYTES = st.builds(
    lambda size, tail: PREFIX[:size].encode() + tail,
    st.integers(0, 30),
    st.binary(max_size=4) | st.integers(0, 12).map(lambda count: b"\xff" * count),
)
FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324]) | st.floats()
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001 - both kinds
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan])),
    (pa.float64(), FLOATS),
    (pa.decimal128(5, 2), decimals(5, 2)),
    (pa.decimal128(38, 0), decimals(38, 0)),
    (pa.decimal128(38, 38), decimals(38, 38)),
    (pa.string(), LONG_TEXT | st.text(max_size=3)),
    (pa.binary(), LONG_BYTES),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    (pa.time64("ns"), st.times()),
    (pa.duration("us"), st.timedeltas(timedelta(days=-(10**8)), timedelta(days=10**8))),
]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def in_order(value: Any, kind: pa.DataType) -> Any:
    """A value in the unit of the bounds, so that Python orders it as Spark does."""
    scalar = pa.scalar(value, kind)
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale, context=Context(prec=80)))
    if pa.types.is_temporal(kind):
        return scalar.value
    if isinstance(value, str):
        return value.encode()
    return scalar.as_py()


@settings(deadline=None, max_examples=examples(80))
@given(st.data())
def test_stored_bounds_hold_for_every_value_in_sparks_order(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(COLUMNS))
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    batch = pa.record_batch([pa.array(rows, kind)], names=["x"])
    union = RangeStatistics()
    cut = data.draw(st.integers(0, len(rows)))
    for part in (batch.slice(0, cut), batch.slice(cut)):
        if part.num_rows:
            union.add(part.num_rows, batch_statistics(part))
    (stored,) = decode_statistics(encode_statistics(union.columns, size_bytes_max=1024))
    assert stored.null_count == rows.count(None)
    found = [in_order(value, kind) for value in rows if value is not None]
    low, high = (
        bound.encode() if isinstance(bound, str) else bound
        for bound in (stored.minimum, stored.maximum)
    )
    numbers = [value for value in found if not is_nan(value)]
    assert low is None or all(low <= value for value in numbers)
    assert high is None or all(value <= high for value in found)
    if found and numbers == found:
        assert low is not None
    if low is not None and stored.is_minimum_exact:
        assert low in numbers
    if high is not None and stored.is_maximum_exact:
        assert high in found
