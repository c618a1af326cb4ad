"""Computes the possible values of one column in some rows, from statistics.

Bounds and literals of one *family* of types are compared by *keys* in the order of Spark: NaN is
above every number, -0.0 equals 0.0, text is ordered by its bytes, and decimals of any scale are
compared as integers. A value that is not of the family has no key. A bound that has no key is
treated as unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types

from ledgerlog_spark.protocol.log.state.statistics import Bound, ColumnStatistics

DECIMAL_SCALE_MAX = 38
"""The largest scale of decimals in Spark. Decimals are compared as integers of this scale."""

_NUMBER_FAMILIES = ("integer", "date", "timestamp", "timestamp_ntz", "time", "interval")


@dataclass(frozen=True, slots=True)
class Facts:
    """The possible values of a column in some rows. A bound that is not known is None.

    Attributes:
        family: The family of the column's type; empty if values of the type cannot be compared.
        has_nulls: Whether a value may be null.
        has_values: Whether a value may be other than null.
        low: Key that is at most the smallest value.
        high: Key that is at least the largest value.
        null_count: Number of nulls, or None if the statistics do not contain this number.
    """

    family: str = ""
    has_nulls: bool = True
    has_values: bool = True
    low: Any = None
    high: Any = None
    null_count: int | None = None


ALL_NULL = Facts(has_values=False)
"""The `Facts` about a column that the stored rows do not have. All values of it are null."""


def family_of(kind: pa.DataType) -> str:  # noqa: PLR0911 - a table
    """Return the family of a stored type, or an empty text if its values have no bounds."""
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind):
        return "float"
    if types.is_decimal128(kind):
        return "decimal"
    if types.is_string(kind):
        return "string"
    if types.is_binary(kind):
        return "binary"
    if types.is_timestamp(kind) and kind.unit == "us":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return {pa.date32(): "date", pa.time64("ns"): "time", pa.duration("us"): "interval"}.get(
        kind, ""
    )


def key_of(family: str, value: Any, scale: int = 0) -> Any:  # noqa: PLR0911 - a table
    """Return the key of a bound or a literal, or None if `value` is not of the family.

    The `value` of a decimal is its unscaled integer. The `value` of text is a str, or its bytes.
    """
    if family == "boolean":
        return value if type(value) is bool else None
    if family in _NUMBER_FAMILIES:
        return value if type(value) is int else None
    if family == "float":
        if type(value) is not float:
            return None
        is_nan = math.isnan(value)
        return (is_nan, 0.0 if is_nan else value)
    if family == "decimal":
        is_valid = type(value) is int and scale <= DECIMAL_SCALE_MAX
        return value * int(10 ** (DECIMAL_SCALE_MAX - scale)) if is_valid else None
    if family == "string" and type(value) is str:
        return value.encode()
    if family in {"string", "binary"}:
        return value if type(value) is bytes else None
    return None


def facts_of(kind: pa.DataType, rows: int, column: ColumnStatistics | None) -> Facts:
    """Return the facts about a stored column in `rows` rows.

    If `column`, the statistics of the column, is None, only the family of the type is known.
    """
    family = family_of(kind)
    if column is None or not 0 <= column.null_count <= rows:
        return Facts(family)
    scale = kind.scale if family == "decimal" else 0

    def key(bound: Bound | None) -> Any:
        return None if bound is None else key_of(family, bound, scale)

    return Facts(
        family,
        has_nulls=column.null_count > 0,
        has_values=column.null_count < rows,
        low=key(column.minimum),
        high=key(column.maximum),
        null_count=column.null_count,
    )
