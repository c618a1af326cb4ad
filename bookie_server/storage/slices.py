"""Divides long work into slices, and runs other tasks of the event loop between the slices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

UNITS_PER_TURN = 500
"""Number of states, pieces or ledgers that are processed before other tasks may run. Processing
them takes 0.5 to 2.5 ms."""


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in slices of `UNITS_PER_TURN` items."""
    for start in range(0, len(items), UNITS_PER_TURN):
        yield items[start : start + UNITS_PER_TURN]


async def run_in_slices(
    work: Generator[None, None, T], give_way: Callable[[], Awaitable[None]]
) -> T:
    """Run `work` and return the result. Other tasks run each time `work` yields."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await give_way()
