"""A range whose first entries are read before a caller takes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ledgerlog_spark.protocol.ledger.read_room import ReadPlace


class BegunRange:
    """Batches of a range; the first is read from the start.

    Call all methods on the event loop that it was made on.
    """

    def __init__(
        self, batches: AsyncGenerator[Sequence[Any], None], place: ReadPlace | None = None
    ) -> None:
        """Begins to read; call `aclose` or read all batches in any case.

        Args:
            batches: The batches of the range.
            place: Bounds the bytes of this and other ranges; the range leaves it at its end.
        """
        self._batches = batches
        self._place = place
        self._first: asyncio.Task[Sequence[Any] | None] | None = asyncio.ensure_future(self._next())

    async def following(self) -> Sequence[Any] | None:
        """The next batch, None at the end; raises the errors of the read."""
        if self._place is not None:
            self._place.take_turn()
        first, self._first = self._first, None
        batch = await self._next() if first is None else await forever(first, "its reader ends")
        if batch is None:
            self._leave()
        return batch

    async def aclose(self) -> None:
        """Drop entries that are being read, and their errors; closing twice does nothing."""
        first, self._first = self._first, None
        if first is not None:
            first.cancel()
            await forever(asyncio.wait([first]), "a task that is cancelled ends")
            if not first.cancelled():
                first.exception()
        await self._batches.aclose()
        self._leave()

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()

    async def _next(self) -> Sequence[Any] | None:
        return await anext(self._batches, None)
