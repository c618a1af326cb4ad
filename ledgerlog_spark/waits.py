"""How hosts wait: with a deadline, or with the reason why the wait ends without one.

A wait that nothing ends hangs a program, and no error says where. So the code that performs the
machines' effects never awaits a future, an event or a queue directly: it passes a deadline to
`within`, or tells `forever` what ends the wait. tests/architecture/test_waits.py finds the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def within(awaited: Awaitable[T], seconds: float) -> T:
    """The result of `awaited`, which is cancelled at the deadline.

    Raises:
        TimeoutError: It took longer.
    """
    async with asyncio.timeout(seconds):
        return await awaited


async def forever(awaited: Awaitable[T], reason: str) -> T:
    """The result of `awaited`, without a deadline here.

    Args:
        awaited: Ends by itself.
        reason: What ends it; for readers of the code.
    """
    assert reason, "a wait without a deadline has a reason"
    return await awaited
