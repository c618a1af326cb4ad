"""Computes the bounds of a batch's columns, and combines the bounds of several entries.

The bounds are computed in Spark's order of values: NaN is above every number, -0.0 equals 0.0, and
text is compared by its bytes. A bound of a date, time, timestamp or duration is a number in the
column's unit. A bound of a decimal is a number in units of the column's scale. A bound of text that
is not valid UTF-8 is omitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ledgerlog_spark.protocol.log.state.statistics import COLUMNS_MAX, Bound, ColumnStatistics


def batch_statistics(batch: pa.RecordBatch) -> tuple[ColumnStatistics, ...]:
    """Return null counts of the first 32 columns, and bounds of those with an ordered type."""
    found = []
    for place, column in enumerate(batch.columns[:COLUMNS_MAX]):
        nulls = column.null_count
        minimum, maximum = (None, None) if nulls == len(column) else _bounds(column)
        found.append(ColumnStatistics(place, nulls, minimum, maximum))
    return tuple(found)


class RangeStatistics:
    """The combined statistics of all entries of a range that were added up to now."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: tuple[ColumnStatistics, ...] = ()

    def add(self, rows: int, columns: Sequence[ColumnStatistics]) -> None:
        """Add an entry of `rows` rows (at least 1). All entries have the same columns."""
        if self._rows:
            self._columns = tuple(
                _union(known, self._rows, added, rows)
                for known, added in zip(self._columns, columns, strict=True)
            )
        else:
            self._columns = tuple(columns)
        self._rows += rows

    @property
    def columns(self) -> tuple[ColumnStatistics, ...]:
        """Statistics of all rows that were added up to now."""
        return self._columns


def _union(a: ColumnStatistics, rows_a: int, b: ColumnStatistics, rows_b: int) -> ColumnStatistics:
    nulls = a.null_count + b.null_count
    # An entry with only nulls in the column does not change the bounds. If an entry has other
    # values than null but no bound, the bound for all entries is unknown.
    if b.null_count == rows_b:
        return replace(a, null_count=nulls)
    if a.null_count == rows_a:
        return replace(b, null_count=nulls)
    return replace(
        a,
        null_count=nulls,
        minimum=_outer(a.minimum, b.minimum, min),
        maximum=_outer(a.maximum, b.maximum, max),
    )


def _outer(one: Any, other: Any, pick: Callable[[Any, Any], Bound]) -> Bound | None:
    return None if one is None or other is None else pick(one, other)


def _bounds(column: pa.Array) -> tuple[Bound | None, Bound | None]:  # noqa: PLR0911 - a table
    kind = column.type
    if types.is_string(kind) or types.is_binary(kind):
        # `_extreme` is 3 times as fast as `min_max`, because `min_max` copies each new extreme.
        return _extreme(column, "ascending"), _extreme(column, "descending")
    if types.is_floating(kind):
        minimum, maximum = _min_max(column)
        if pc.any(pc.is_nan(column)).as_py():
            return (None if math.isnan(minimum) else minimum), None
        return minimum, maximum
    if types.is_decimal(kind):
        minimum, maximum = _min_max(column)
        return _unscaled(minimum, kind.scale), _unscaled(maximum, kind.scale)
    if types.is_temporal(kind):
        unit = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
        return _min_max(column.view(unit))
    if types.is_integer(kind) or types.is_boolean(kind):
        return _min_max(column)
    return None, None


def _min_max(column: pa.Array) -> tuple[Any, Any]:
    both = pc.min_max(column)
    return both["min"].as_py(), both["max"].as_py()


def _extreme(column: pa.Array, order: str) -> Bound | None:
    values = column.drop_null() if column.null_count else column
    place = pc.select_k_unstable(values, 1, sort_keys=[("", order)])[0].as_py()
    try:
        bound: Bound = values[place].as_py()
    except UnicodeDecodeError:  # a string in Spark can contain any bytes
        return None
    return bound


def _unscaled(value: Any, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * int(10 ** (exponent + scale))
    return -number if sign else number
