"""Waits of coroutines for other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.fixtures.patience import PATIENCE_SECONDS, PAUSE_SECONDS


async def eventually(
    condition: Callable[[], Awaitable[bool]], running: asyncio.Task[None] | None = None
) -> None:
    """Wait until the condition holds. If the task `running` ends before, fail."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            assert running is None or not running.done(), running
            await asyncio.sleep(PAUSE_SECONDS)
