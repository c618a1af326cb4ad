"""Computes `count`, `min` and `max` of whole ranges from the statistics in the list of a log.

The values are exact. Where the statistics do not determine a value, `NotExactError` is raised.
There are three such cases: the bound of a long text is shortened, the statistics of a column with
NaN have no largest value, and the statistics do not contain the sign of a zero.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ledgerlog_spark.arrow.spark_types import place_of
from ledgerlog_spark.datasource.skipping.facts import family_of, key_of
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns
from ledgerlog_spark.protocol.log.state.records import Item
from ledgerlog_spark.protocol.log.state.statistics import (
    Bound,
    ColumnStatistics,
    decode_statistics,
)

COUNT, MIN, MAX = "count", "min", "max"


class NotExactError(Exception):
    """Raised if only a scan can compute a value."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of a column.

    If `column` is None, the function is `count`, and it counts all rows.
    """

    function: str
    column: str | None = None


class _Known(NamedTuple):
    """One column in one range. If the stored rows do not have the column, `statistics` is None."""

    rows: int
    statistics: ColumnStatistics | None
    family: str
    scale: int


def exact_values(
    aggregates: Sequence[Aggregate], ranges: Iterable[tuple[StoredColumns, Item]]
) -> list[Any]:
    """Return the values of the aggregates over all rows of the ranges. None means null.

    The values have the form that `predicates.literal_of` describes for `value`.

    Raises:
        NotExactError: Only a scan can compute at least one of the values.
    """
    wanted = {each.column for each in aggregates if each.column is not None}
    known: dict[str, list[_Known]] = {column: [] for column in wanted}
    rows = 0
    for stored, item in ranges:
        rows += item.rows
        by_place = {each.column: each for each in decode_statistics(item.statistics)}
        for column, found in known.items():
            found.append(_known(column, stored, item, by_place))
    return [
        rows if each.column is None else _value(each.function, known[each.column])
        for each in aggregates
    ]


def _known(
    column: str, stored: StoredColumns, item: Item, by_place: dict[int, ColumnStatistics]
) -> _Known:
    place = place_of(column, stored.schema.names)
    if place is None:
        return _Known(item.rows, None, "", 0)
    statistics = by_place.get(place)
    if statistics is None or statistics.null_count > item.rows:
        raise NotExactError
    kind = stored.schema.field(place).type
    family = family_of(kind)
    return _Known(item.rows, statistics, family, kind.scale if family == "decimal" else 0)


def _value(function: str, ranges: Sequence[_Known]) -> Any:
    present = [
        (each, each.statistics)
        for each in ranges
        if each.statistics is not None and each.statistics.null_count < each.rows
    ]
    if function == COUNT:
        return sum(each.rows - statistics.null_count for each, statistics in present)
    if not present:
        return None
    first, _ = present[0]
    # Bounds of different types cannot be compared.
    form = (first.family, first.scale)
    if not first.family or any((each.family, each.scale) != form for each, _ in present):
        raise NotExactError
    bounds = [
        (s.minimum, s.is_minimum_exact) if function == MIN else (s.maximum, s.is_maximum_exact)
        for _, s in present
    ]
    pick = min if function == MIN else max
    keys = [(key_of(first.family, bound), bound, is_exact) for bound, is_exact in bounds]
    if any(key is None for key, _, _ in keys):
        raise NotExactError
    outermost = pick(key for key, _, _ in keys)
    exact = [bound for key, bound, is_exact in keys if key == outermost and is_exact]
    if not exact or exact[0] is None:
        raise NotExactError
    return _plain(exact[0])


def _plain(bound: Bound) -> Any:
    if isinstance(bound, float):
        if bound == 0:
            raise NotExactError
        return str(bound) if math.isfinite(bound) else f"{'-' * (bound < 0)}Infinity"
    if isinstance(bound, str | bytes):
        text = bound.encode() if isinstance(bound, str) else bound
        return base64.b64encode(text).decode("ascii")
    return bound
