"""Whether a range may hold rows that a query's filters want, told from its statistics.

Spark applies every filter again to what it reads: a range is left out only when no row of it can
pass. Nulls pass no comparison; NaN is above every number (Spark's order).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.log_statistics import ColumnStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COMPARISONS = (
    "=",
    "<=>",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "is null",
    "is not null",
    "starts with",
    "<>",
)


@dataclass(frozen=True, slots=True)
class Predicate:
    """One filter on one top-level column; all filters of a query hold together.

    Attributes:
        column: Its name.
        comparison: One of COMPARISONS.
        value: In the unit of the statistics (dates in days, timestamps in us, decimals unscaled);
            a tuple for `in`, None for the null checks.
    """

    column: str
    comparison: str
    value: Any = None


def may_match(
    predicates: Sequence[Predicate],
    columns: Sequence[ColumnStatistics],
    places: Mapping[str, int],
    rows: int,
) -> bool:
    """Whether some row may pass all predicates.

    Args:
        predicates: All have to hold.
        columns: Statistics of the rows; columns that are not described may hold anything.
        places: Name to place among the columns that the rows were written with; a name that is
            not there reads as null in every row.
        rows: How many rows, at least 1.
    """
    described = {column.column: column for column in columns}
    for predicate in predicates:
        place = places.get(predicate.column)
        if place is None:
            known: ColumnStatistics | None = ColumnStatistics(-1, rows)
        else:
            known = described.get(place)
        if known is not None and not _may_hold(predicate, known, rows):
            return False
    return True


def _may_hold(predicate: Predicate, known: ColumnStatistics, rows: int) -> bool:
    comparison, value = predicate.comparison, predicate.value
    if comparison == "is null" or (comparison == "<=>" and value is None):
        return known.null_count > 0
    if known.null_count == rows:
        return False
    if comparison == "is not null":
        return True
    check = _CHECKS.get(comparison)
    try:
        return check is None or check(known, value)
    except TypeError:
        # A literal of another type than the column's bounds shows nothing.
        return True


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _may_equal(known: ColumnStatistics, value: Any) -> bool:
    if value is None:
        return False
    if _is_nan(value):
        return known.maximum is None
    return _may_be_at_most(known, value) and _may_be_at_least(known, value)


def _may_be_at_most(known: ColumnStatistics, value: Any) -> bool:
    return known.minimum is None or _is_nan(value) or bool(known.minimum <= value)


def _may_be_at_least(known: ColumnStatistics, value: Any) -> bool:
    return known.maximum is None or (not _is_nan(value) and bool(known.maximum >= value))


def _may_be_below(known: ColumnStatistics, value: Any) -> bool:
    return known.minimum is None or _is_nan(value) or bool(known.minimum < value)


def _may_be_above(known: ColumnStatistics, value: Any) -> bool:
    # Nothing is above NaN; with NaN among the rows the maximum is open.
    if _is_nan(value):
        return False
    return known.maximum is None or bool(known.maximum > value)


def _may_be_in(known: ColumnStatistics, values: Sequence[Any]) -> bool:
    return any(_may_equal(known, value) for value in values)


def _may_differ(known: ColumnStatistics, value: Any) -> bool:
    is_one_value = known.minimum is not None and known.minimum == known.maximum == value
    return not (is_one_value and known.is_minimum_exact and known.is_maximum_exact)


def _may_start_with(known: ColumnStatistics, prefix: Any) -> bool:
    lower, upper = known.minimum, known.maximum
    if not isinstance(prefix, str):
        return True
    if isinstance(upper, str) and upper < prefix:
        return False
    return not (isinstance(lower, str) and lower > prefix and not lower.startswith(prefix))


_CHECKS: dict[str, Callable[[ColumnStatistics, Any], bool]] = {
    "=": _may_equal,
    "<=>": _may_equal,
    "<": _may_be_below,
    "<=": _may_be_at_most,
    ">": _may_be_above,
    ">=": _may_be_at_least,
    "in": _may_be_in,
    "<>": _may_differ,
    "starts with": _may_start_with,
}
