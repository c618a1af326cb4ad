"""Types of columns, values that are hard for them, and how SQL spells both."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any

import pyarrow as pa

WIDE = Context(prec=80)
PREFIX = "p" * 30
"""Bounds of text are cut at 32 bytes."""
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - also of timestamps without a zone


@dataclass(frozen=True)
class Kind:
    """One type of column.

    Attributes:
        sql: Its name in SQL.
        arrow: The type of the rows that are passed to Spark.
        draw: Returns a random value, never None.
        spell: Returns a value as an SQL expression of this type.
        narrower: Types whose values a column of this type accepts.
    """

    sql: str
    arrow: pa.DataType
    draw: Callable[[Random], Any]
    spell: Callable[[Any], str]
    narrower: tuple[Kind, ...] = ()


def _cast(sql: str) -> Callable[[Any], str]:
    return lambda value: f"CAST('{value}' AS {sql})"


def _integer(sql: str, arrow: pa.DataType, *narrower: Kind) -> Kind:
    most = 2 ** (arrow.bit_width - 1)
    edges = (0, -1, 1, most - 1, -most)
    return Kind(
        sql,
        arrow,
        lambda dice: dice.choice(edges) if dice.random() < 0.3 else dice.randint(-20, 20),
        _cast(sql),
        narrower,
    )


def decimal_of(precision: int, scale: int, *narrower: Kind) -> Kind:
    """Decimals, of which many differ only in the last digit of `precision`."""
    most = 10**precision - 1

    def draw(dice: Random) -> Decimal:
        near = dice.choice(
            (0, most - 3, -most + 3, 10 ** (precision - 1), dice.randint(-most, most))
        )
        return Decimal(near + dice.randint(-3, 3)).scaleb(-scale, WIDE)

    def spell(value: Decimal) -> str:
        return f"CAST('{Decimal(value):f}' AS {sql})"

    sql = f"DECIMAL({precision},{scale})"
    return Kind(sql, pa.decimal128(precision, scale), draw, spell, narrower)


def _float(dice: Random) -> float:
    edges = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5)
    return dice.choice(edges) if dice.random() < 0.6 else _single(dice.uniform(-3, 3))


def _single(value: float) -> float:
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number


def _text(dice: Random) -> str:
    tail = "".join(dice.choices("ab\x7fé\U0010ffff\uffff", k=dice.randint(0, 5)))
    return PREFIX[: dice.choice((0, 0, 1, 27, 28, 29, 30))] + tail


def _bytes(dice: Random) -> bytes:
    tail = bytes(dice.choices((0, 1, 0x7F, 0x80, 0xFF), k=dice.randint(0, 5)))
    return b"\xff" * dice.choice((0, 0, 1, 28, 32, 40)) + tail


def _day(dice: Random) -> date:
    return date(1970, 1, 1) + timedelta(
        days=dice.choice((0, -1, -30_000, 20_000)) + dice.randint(0, 9)
    )


def _moment(dice: Random) -> datetime:
    days = timedelta(days=dice.choice((0, -1, -20_000, 19_000)))
    return (
        EPOCH + days + timedelta(microseconds=dice.choice((0, 1, 999_999, dice.randint(0, 10**12))))
    )


def _time(dice: Random) -> time:
    return time(dice.choice((0, 5, 23)), dice.randint(0, 59), 59, dice.choice((0, 1, 999_999)))


def _span(dice: Random) -> timedelta:
    return timedelta(days=dice.randint(-3, 3), microseconds=dice.choice((0, 1, -1, 999_999)))


def _spelled_span(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 10**6)
    days, seconds = divmod(seconds, 86_400)
    minutes, seconds = divmod(seconds, 60)
    sign = "-" if micros < 0 else ""
    text = f"{days} {minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{fraction:06}"
    return f"INTERVAL '{sign}{text}' DAY TO SECOND"


BYTE = _integer("TINYINT", pa.int8())
SHORT = _integer("SMALLINT", pa.int16(), BYTE)
INTEGER = _integer("INT", pa.int32(), SHORT, BYTE)
LONG = _integer("BIGINT", pa.int64(), INTEGER, SHORT)
FLOAT = Kind("FLOAT", pa.float32(), _float, _cast("FLOAT"))
DOUBLE = Kind("DOUBLE", pa.float64(), _float, _cast("DOUBLE"), (FLOAT, INTEGER))
TEXT = Kind(
    "STRING", pa.string(), _text, lambda value: f"CAST(X'{value.encode().hex()}' AS STRING)"
)

KINDS = (
    Kind("BOOLEAN", pa.bool_(), lambda dice: dice.random() < 0.5, lambda value: str(value).lower()),
    BYTE,
    INTEGER,
    LONG,
    FLOAT,
    DOUBLE,
    decimal_of(20, 4, decimal_of(10, 2)),
    decimal_of(38, 0, decimal_of(28, 0), decimal_of(9, 0)),
    decimal_of(38, 10, decimal_of(29, 3)),
    decimal_of(38, 38),
    decimal_of(29, 1),
    TEXT,
    Kind("BINARY", pa.binary(), _bytes, lambda value: f"X'{value.hex()}'"),
    Kind("DATE", pa.date32(), _day, lambda value: f"DATE'{value}'"),
    Kind(
        "TIMESTAMP",
        pa.timestamp("us", "UTC"),
        lambda dice: _moment(dice).replace(tzinfo=UTC),
        lambda value: f"TIMESTAMP'{value.isoformat(sep=' ')}'",
    ),
    Kind(
        "TIMESTAMP_NTZ",
        pa.timestamp("us"),
        _moment,
        lambda value: f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'",
    ),
    Kind("TIME(6)", pa.time64("ns"), _time, lambda value: f"TIME'{value.isoformat()}'"),
    Kind("INTERVAL DAY TO SECOND", pa.duration("us"), _span, _spelled_span),
)
