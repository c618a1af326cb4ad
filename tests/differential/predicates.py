"""Random conditions on the columns of a world, as SQL."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.kinds import TEXT
from tests.differential.worlds import Column, World

COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=", "<>", "=", "<", ">")
COMPOSITE = 0.25


def random_predicate(dice: Random, world: World) -> str:
    """A condition that fails for no row, with any value of `spark.sql.ansi.enabled`."""
    if dice.random() < COMPOSITE:
        word = dice.choice(("AND", "AND", "OR"))
        left, right = (_simple(dice, dice.choice(world.places)) for _ in range(2))
        text = f"({left}) {word} ({right})"
    else:
        text = _simple(dice, dice.choice(world.places))
    return f"NOT ({text})" if dice.random() < 0.15 else text


def _simple(dice: Random, place: Column) -> str:
    path = place.path
    form = dice.random()
    if form < 0.12:
        return f"{path} IS {dice.choice(('', 'NOT '))}NULL"
    if form < 0.27:
        values = ", ".join(_literal(dice, place) for _ in range(dice.randint(1, 3)))
        return f"{path} {dice.choice(('', 'NOT '))}IN ({values})"
    if form < 0.33:
        low, high = _literal(dice, place), _literal(dice, place)
        return f"{path} BETWEEN {low} AND {high}"
    if place.kind is TEXT and form < 0.55:
        words = ("startswith", "startswith", "endswith", "contains")
        return f"{dice.choice(words)}({path}, {_part(dice, place)})"
    return _comparison(dice, place)


def _comparison(dice: Random, place: Column) -> str:
    path = place.path
    if path == "get(l, 0)" and dice.random() < 0.1:
        return f"size(l) > 1 AND array_contains(l, {_literal(dice, place)})"
    if dice.random() < 0.05:
        return f"{path} {dice.choice(('=', '<=>', '<>'))} CAST(NULL AS {place.kind.sql})"
    left, right = path, _literal(dice, place)
    if dice.random() < 0.2:
        left, right = right, left
    return f"{left} {dice.choice(COMPARISONS)} {right}"


def _value(dice: Random, place: Column) -> Any:
    return dice.choice(place.values) if dice.random() < 0.75 else place.kind.draw(dice)


def _literal(dice: Random, place: Column) -> str:
    return place.kind.spell(_value(dice, place))


def _part(dice: Random, place: Column) -> str:
    text = _value(dice, place)
    return TEXT.spell(text[: dice.randint(0, len(text))])
