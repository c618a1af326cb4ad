"""A schema, and logs with their rows. Each log has this schema or can get it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from tests.differential.kinds import KINDS, LONG, TEXT, Kind

ROWS = 24
"""Number of rows of each log."""
VALUES = 6
"""Number of different values of a column in one log. Literals have the same values as rows."""
NULLS = 0.15


@dataclass(frozen=True)
class Column:
    """One column, or one place below a column, in predicates.

    Attributes:
        name: The name of the top-level column.
        path: The SQL expression of the place.
        kind: The kind of its values.
        values: The values that occur in the place, and similar values.
    """

    name: str
    path: str
    kind: Kind
    values: list[Any] = field(compare=False)


@dataclass(frozen=True)
class LogRows:
    """The rows of one log.

    Attributes:
        table: The rows in their written form.
        missing: Columns of the world that the log does not have.
    """

    table: pa.Table
    missing: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """One schema, several logs with this schema, and their rows.

    Attributes:
        sql: The type of each column of the schema, in order; `id` identifies a row.
        places: The columns and places that predicates use.
        logs: The logs in the order in which they are read.
    """

    sql: dict[str, str]
    places: list[Column]
    logs: list[LogRows]


def random_world(dice: Random, *, columns: int = 8) -> World:
    """A world of any size. The first log has every column in its widest type."""
    sql = {"id": "BIGINT"}
    places: list[Column] = [Column("id", "id", LONG, [0, 1, ROWS, 3 * ROWS])]
    flat = {f"c{at}": kind for at, kind in enumerate(dice.choices(KINDS, k=columns))}
    for name, kind in flat.items():
        sql[name] = kind.sql
        places.append(Column(name, name, kind, []))
    inner = {name: dice.choice(KINDS) for name in ("in_struct", "in_array", "in_map")}
    sql["s"] = f"STRUCT<a: {inner['in_struct'].sql}, b: STRING>"
    sql["l"] = f"ARRAY<{inner['in_array'].sql}>"
    sql["m"] = f"MAP<STRING, {inner['in_map'].sql}>"
    of_struct = Column("s", "s.a", inner["in_struct"], [])
    of_array = Column("l", "get(l, 0)", inner["in_array"], [])
    of_map = Column("m", "try_element_at(m, 'k')", inner["in_map"], [])
    places += [of_struct, Column("s", "s.b", TEXT, ["x", ""]), of_array, of_map]
    logs = []
    for number in range(dice.randint(1, 3)):
        kinds = {name: _stored(dice, kind, number) for name, kind in flat.items()}
        missing = tuple(n for n in (*flat, "s", "l", "m") if number and dice.random() < 0.1)
        data: dict[str, pa.Array] = {}
        for place in places:
            if place.name in kinds:
                data[place.name] = _drawn(dice, kinds[place.name], place)
        some = {at.name: [_drawn(dice, at.kind, at), at] for at in (of_struct, of_array, of_map)}
        data["s"] = _structs(dice, some["s"][0])
        data["l"] = pa.array(_lists(dice, some["l"][0]), pa.list_(of_array.kind.arrow))
        data["m"] = pa.array(_maps(dice, some["m"][0]), pa.map_(pa.string(), of_map.kind.arrow))
        rows = pa.table({name: data[name] for name in sql if name in data and name not in missing})
        order = _sorted(dice, rows, [name for name in kinds if name not in missing])
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        logs.append(LogRows(rows.take(order).add_column(0, "id", ids), missing))
    return World(sql, places, logs)


def _stored(dice: Random, kind: Kind, number: int) -> Kind:
    """The type of the column in a log. The first log has the widest type."""
    if number and kind.narrower and dice.random() < 0.6:
        return dice.choice(kind.narrower)
    return kind


def _drawn(dice: Random, kind: Kind, place: Column) -> pa.Array:
    values = [kind.draw(dice) for _ in range(dice.choice((1, 2, VALUES)))]
    place.values.extend(values)
    nulls = dice.choice((0.0, NULLS, NULLS, 1.0 if dice.random() < 0.2 else NULLS))
    return pa.array(
        [None if dice.random() < nulls else dice.choice(values) for _ in range(ROWS)], kind.arrow
    )


def _structs(dice: Random, inner: pa.Array) -> pa.Array:
    texts = pa.array([dice.choice(("x", "", None)) for _ in range(ROWS)], pa.string())
    mask = pa.array([dice.random() < NULLS for _ in range(ROWS)])
    return pa.StructArray.from_arrays([inner, texts], names=["a", "b"], mask=mask)


def _lists(dice: Random, inner: pa.Array) -> list[list[Any] | None]:
    return [
        None if dice.random() < NULLS else [each] * dice.randint(0, 2) for each in _values(inner)
    ]


def _maps(dice: Random, inner: pa.Array) -> list[list[tuple[str, Any]] | None]:
    return [
        None if dice.random() < NULLS else [(dice.choice("kj"), each)] for each in _values(inner)
    ]


def _values(array: pa.Array) -> list[Any]:
    """Arrow scalars, because Python's own values of a type may lose a part of the value."""
    return [scalar if scalar.is_valid else None for scalar in array]


def _sorted(dice: Random, rows: pa.Table, names: list[str]) -> list[int]:
    """The rows in the order of one column, so that the parts of a log have different bounds."""
    if not names or dice.random() < 0.2:
        return list(range(ROWS))
    keys = [repr(value) for value in rows.column(dice.choice(names)).to_pylist()]
    return sorted(range(ROWS), key=keys.__getitem__)
