"""Turns of the event loop for large replies: to copy and encode one takes milliseconds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bookie_server.service.grpc.stream import give_back

if TYPE_CHECKING:
    from bookie_server.service.grpc.stream import Taken

LARGE_BYTES: Final = 65_536


class Turns:
    """Large replies are sent one after the other, each in a turn of the loop of its own."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self, size_bytes: int) -> None:
        """Return when a reply of this size may be sent; at once for a small one."""
        if size_bytes >= LARGE_BYTES:
            async with self._lock:
                await asyncio.sleep(0)

    async def wait_with(self, taken: Taken) -> None:
        """As `wait`, for a reply that holds this: given back when the call ends before."""
        try:
            await self.wait(taken[1])
        except BaseException:
            give_back(taken)
            raise
