"""How hosts wait: with a deadline, or with the reason why the wait ends without one.

If a wait never ends, the program hangs, and no error shows the place. The code that performs
machine effects never awaits a future, an event or a queue directly: it passes a deadline to
`within` or `Deadline`, or the reason why the wait ends to `forever`. It does not mistake a
`TimeoutError` of another source, such as a socket, for its own deadline.
tests/architecture/test_waits.py finds violations.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

T = TypeVar("T")


async def within(awaited: Awaitable[T], seconds: float) -> T:
    """Return the result of `awaited`, which is cancelled at the deadline.

    Raises:
        TimeoutError: It took longer.
    """
    async with asyncio.timeout(seconds):
        return await awaited


class Deadline:
    """Cancels the body of `async with` at a deadline, and raises an error of its own.

    A `TimeoutError` of the body itself passes through: that was another deadline.
    """

    __slots__ = ("_late", "_limit")

    def __init__(self, seconds: float | None, late: Callable[[], Exception]) -> None:
        """A deadline that does not run yet.

        The time is measured from its entry; None means no deadline. The error of `late`
        may have a cause.
        """
        self._limit = asyncio.timeout(seconds)
        self._late = late

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:  # raised for its own deadline alone
            late = self._late()
            raise late from late.__cause__


async def forever(awaited: Awaitable[T], reason: str) -> T:
    """Return the result of `awaited`, which ends by itself.

    The reason is for readers of the code.
    """
    assert reason, "a wait without a deadline has a reason"
    return await awaited
