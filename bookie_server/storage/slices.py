"""Slices: bounds the work in one turn of the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

UNITS_PER_TURN = 2_000
"""States, pieces or ledgers that are looked at or encoded before other tasks run: 2 to 10 ms."""


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in slices of one turn each."""
    for start in range(0, len(items), UNITS_PER_TURN):
        yield items[start : start + UNITS_PER_TURN]
