"""Spark's filters as predicates on statistics (design 7).

Only what statistics can decide is translated; Spark applies all filters again anyway.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyarrow import types
from pyspark.sql import datasource as spark

from ledgerlog_spark.datasource.filters import Predicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone
_MICROSECOND = timedelta(microseconds=1)
_COMPARISONS: dict[type, str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
    spark.IsNull: "is null",
    spark.IsNotNull: "is not null",
    spark.StringStartsWith: "starts with",
}
_NEGATED = {"=": "<>", "is null": "is not null", "is not null": "is null"}


def predicates_of(filters: Iterable[Any], schema: pa.Schema) -> tuple[Predicate, ...]:
    """The filters that statistics can decide, in the units of the statistics.

    Args:
        filters: Spark's filters, all of which have to hold.
        schema: Of the scan; filters on nested fields and unknown columns are passed over.
    """
    return tuple(predicate for wanted in filters for predicate in _translated(wanted, schema))


def _translated(wanted: Any, schema: pa.Schema) -> Iterator[Predicate]:
    negated = isinstance(wanted, spark.Not)
    inner = wanted.child if negated else wanted
    comparison = _COMPARISONS.get(type(inner))
    if negated and comparison is not None:
        comparison = _NEGATED.get(comparison)
    if comparison is None:
        return
    if len(inner.attribute) != 1 or inner.attribute[0] not in schema.names:
        return
    column = inner.attribute[0]
    try:
        value = _in_unit(getattr(inner, "value", None), schema.field(column).type)
    except (TypeError, ValueError, ArithmeticError):
        return
    yield Predicate(column, comparison, value)


def _in_unit(value: Any, kind: pa.DataType) -> Any:
    """A literal in the unit of the column's statistics.

    Raises:
        TypeError: It cannot be compared with them.
    """
    if isinstance(value, list | tuple):
        return tuple(_in_unit(one, kind) for one in value)
    if value is None:
        return None
    for is_kind, wanted, convert in _UNITS:
        if is_kind(kind) and isinstance(value, wanted):
            return convert(value, kind)
    raise TypeError(value)


def _number(value: Any, _: pa.DataType) -> Any:
    return value


def _unscaled(value: Decimal, kind: pa.DataType) -> Any:
    return Decimal(value).scaleb(kind.scale)


def _days(value: date, _: pa.DataType) -> int:
    return (value - _EPOCH_DAY).days


def _microseconds(value: datetime, kind: pa.DataType) -> int:
    if kind.tz is None:
        return (value.replace(tzinfo=None) - _EPOCH_NAIVE) // _MICROSECOND
    # A literal without a zone is in this process's, which is how pyspark hands timestamps over.
    return (value.astimezone(UTC) - _EPOCH) // _MICROSECOND


def _nanoseconds(value: time, _: pa.DataType) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) * 1_000


def _duration(value: timedelta, _: pa.DataType) -> int:
    return value // _MICROSECOND


_UNITS: tuple[tuple[Any, Any, Any], ...] = (
    (types.is_boolean, bool, _number),
    (types.is_integer, int, _number),
    (types.is_floating, (int, float), _number),
    (types.is_decimal, (int, Decimal), _unscaled),
    (types.is_string, str, _number),
    (types.is_binary, (bytes, bytearray), _number),
    (types.is_date32, date, _days),
    (types.is_timestamp, datetime, _microseconds),
    (types.is_time64, time, _nanoseconds),
    (types.is_duration, timedelta, _duration),
)
