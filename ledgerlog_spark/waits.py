"""The waits of hosts. Each wait has a deadline, or a reason why it ends without a deadline.

If a wait never ends, the program hangs, and no error shows the place of the wait. Therefore the
code of hosts never awaits a future, an event or a queue directly. Instead, it uses `within` or
`Deadline` with a deadline, or `forever` with the reason why the wait ends. `Deadline` does not
treat a `TimeoutError` of another source, such as a socket, as its own deadline.
tests/architecture/test_waits.py finds code that breaks this rule.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

T = TypeVar("T")


async def within(awaited: Awaitable[T], seconds: float) -> T:
    """Wait for `awaited` and return its result. After `seconds`, cancel it.

    Raises:
        TimeoutError: `awaited` took longer than `seconds`.
    """
    async with asyncio.timeout(seconds):
        return await awaited


class Deadline:
    """Cancels the body of `async with` at a deadline, and raises the error that `late` returns.

    A `TimeoutError` that the body itself raises is not replaced, because another deadline caused
    it.
    """

    __slots__ = ("_late", "_limit")

    def __init__(self, seconds: float | None, late: Callable[[], Exception]) -> None:
        """Create a deadline whose time begins when the `async with` block is entered.

        If `seconds` is None, there is no deadline. If the error that `late` returns has a
        `__cause__`, this cause is kept.
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
        except TimeoutError:  # raised only for its own deadline
            late = self._late()
            raise late from late.__cause__


async def forever(awaited: Awaitable[T], reason: str) -> T:
    """Wait for `awaited` without a deadline, and return its result.

    `reason` explains to readers of the code why the wait ends.
    """
    assert reason, "a wait without a deadline needs a reason"
    return await awaited
