"""Random filters in the JSON of the JVM engine, and their results in a row."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.differential.kinds import KINDS, WIDE, Kind

if TYPE_CHECKING:
    from random import Random

Row = Mapping[str, Any]
Result = bool | None

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


@dataclass(frozen=True)
class Filter:
    """An expression, and its result in a row."""

    expression: dict[str, Any]
    of: Callable[[Row], Result]


@dataclass(frozen=True)
class Column:
    """A column, and values that are in it or close to them."""

    name: str
    kind: Kind
    values: Sequence[Any]


def random_columns(dice: Random, rows: int) -> dict[str, Column]:
    """Columns of all types. Some have nulls, some hardly differ, and some are sorted."""
    found = {}
    for place, kind in enumerate(KINDS):
        few = [kind.draw(dice) for _ in range(dice.choice((1, 2, 20)))]
        nulls = dice.choice((0.0, 0.2, 1.0))
        values = [None if dice.random() < nulls else dice.choice(few) for _ in range(rows)]
        if dice.random() < 0.5:
            values.sort(key=lambda value: (value is None, order_of(value)))
        found[f"c{place}"] = Column(f"c{place}", kind, values)
    return found


def table_of(columns: Mapping[str, Column]) -> pa.RecordBatch:
    return pa.record_batch(
        {name: pa.array(column.values, column.kind.arrow) for name, column in columns.items()}
    )


def order_of(value: Any) -> Any:
    """The place of a value in Spark's order."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    return 0 if value is None else value


def literal(value: Any, kind: Kind) -> dict[str, Any]:
    """A literal of the type of a column, as the JVM engine sends it."""
    family = family_name(kind)
    if value is None:
        return {"type": family, "value": None}
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        assert isinstance(exponent, int)
        return {"type": family, "value": number, "scale": -exponent}
    return {"type": family, "value": plain(value)}


def plain(value: Any) -> Any:  # noqa: PLR0911 - a table
    if isinstance(value, (str, bytes)):
        return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))
    if isinstance(value, datetime):
        naive = datetime(1970, 1, 1, tzinfo=UTC if value.tzinfo else None)
        return (value - naive) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 10**6 + value.microsecond) * 1000
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value


def family_name(kind: Kind) -> str:
    by_sql = {
        "BOOLEAN": "boolean", "TINYINT": "integer", "INT": "integer", "BIGINT": "integer",
        "FLOAT": "float", "DOUBLE": "float", "STRING": "string", "BINARY": "binary",
        "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz",
        "TIME(6)": "time", "INTERVAL DAY TO SECOND": "interval",
    }  # fmt: skip
    return by_sql.get(kind.sql, "decimal")


def random_filter(dice: Random, columns: Mapping[str, Column], depth: int = 3) -> Filter:
    form = dice.random()
    if depth and form < 0.15:
        inner = random_filter(dice, columns, depth - 1)
        return Filter({"op": "NOT", "of": [inner.expression]}, lambda row: _not(inner.of(row)))
    if depth and form < 0.5:
        one, other = (random_filter(dice, columns, depth - 1) for _ in range(2))
        operands = [one.expression, other.expression]
        if form < 0.35:
            return Filter(
                {"op": "AND", "of": operands}, lambda row: _and(one.of(row), other.of(row))
            )
        return Filter(
            {"op": "OR", "of": operands},
            lambda row: _not(_and(_not(one.of(row)), _not(other.of(row)))),
        )
    return _leaf(dice, dice.choice(list(columns.values())))


def _leaf(dice: Random, column: Column) -> Filter:
    name, of_name = column.name, {"column": column.name}
    form = dice.random()
    if form < 0.15:
        is_null = dice.random() < 0.5
        operator = "IS_NULL" if is_null else "IS_NOT_NULL"
        return Filter({"op": operator, "of": [of_name]}, lambda row: (row[name] is None) is is_null)
    if form < 0.35:
        chosen = [_value(dice, column) for _ in range(dice.randint(1, 4))]
        literals = [literal(value, column.kind) for value in chosen]
        return Filter({"op": "IN", "of": [of_name, *literals]}, lambda row: _in(row[name], chosen))
    value = _value(dice, column)
    constant = literal(value, column.kind)
    if form < 0.45:
        return Filter(
            {"op": "<=>", "of": [of_name, constant]},
            lambda row: (
                (row[name] is None) == (value is None) and order_of(row[name]) == order_of(value)
            ),
        )
    if form < 0.6 and isinstance(value, str):
        prefix = value[: dice.randint(0, len(value))]
        return Filter(
            {"op": "STARTS_WITH", "of": [of_name, literal(prefix, column.kind)]},
            lambda row: None if row[name] is None else row[name].startswith(prefix),
        )
    operator = dice.choice(list(COMPARISONS))
    if dice.random() < 0.2:
        return Filter(
            {"op": operator, "of": [constant, of_name]},
            lambda row: _compared(operator, value, row[name]),
        )
    return Filter(
        {"op": operator, "of": [of_name, constant]},
        lambda row: _compared(operator, row[name], value),
    )


def _value(dice: Random, column: Column) -> Any:
    if dice.random() < 0.05:
        return None
    known = [value for value in column.values if value is not None]
    value = dice.choice(known) if known and dice.random() < 0.7 else column.kind.draw(dice)
    if isinstance(value, Decimal) and dice.random() < 0.3:
        return value.normalize(WIDE) + Decimal(dice.choice((0, 1, -1))).scaleb(-40, WIDE) * 100
    return value


def _compared(operator: str, one: Any, other: Any) -> Result:
    if one is None or other is None:
        return None
    return COMPARISONS[operator](order_of(one), order_of(other))


def _in(value: Any, chosen: Sequence[Any]) -> Result:
    if value is None:
        return None
    if any(each is not None and order_of(each) == order_of(value) for each in chosen):
        return True
    return None if None in chosen else False


def _not(result: Result) -> Result:
    return None if result is None else not result


def _and(one: Result, other: Result) -> Result:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True
