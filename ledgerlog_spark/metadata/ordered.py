"""Requests that run at the same time, with their results in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from ledgerlog_spark.waits import forever

T = TypeVar("T")
R = TypeVar("R")


async def in_order(
    items: AsyncGenerator[T, None], request: Callable[[T], Awaitable[R | None]], depth: int
) -> AsyncGenerator[R, None]:
    """Yield the results of `request` that are not None, in the order of the items.

    At most `depth` requests run at the same time, so the memory of their results is bounded. An
    error of a request ends the iteration. At the end of the iteration, the other requests are
    cancelled.
    """
    running: deque[asyncio.Future[R | None]] = deque()
    try:
        async for item in items:
            running.append(asyncio.ensure_future(request(item)))
            while running and (running[0].done() or len(running) >= depth):
                result = await forever(running.popleft(), "each request has a deadline")
                if result is not None:
                    yield result
        while running:
            result = await forever(running.popleft(), "each request has a deadline")
            if result is not None:
                yield result
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await items.aclose()
