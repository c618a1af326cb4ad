"""Batches on their way from the loop to a thread that waits for them, a few ahead of it.

One hop for each batch and none back: the loop puts, the thread takes. The thread wakes the loop
only when that waits for room.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from ledgerlog_spark.client.blocking.loop_thread import LoopThread

T = TypeVar("T")

AHEAD_MAX: Final = 8
"""Batches that wait to be taken before no more are asked for."""

AHEAD_SIZE_BYTES_MAX: Final = 16 << 20
"""Bytes of them, after which one more may come."""


class _End:
    """After the last batch; with what the iteration raised."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


class BatchQueue(Generic[T]):
    """One async iteration, taken by one thread of the process that has the loop."""

    def __init__(
        self,
        batches: AsyncGenerator[T, None],
        thread: LoopThread,
        size_bytes_of: Callable[[T], int],
    ) -> None:
        """Nothing is asked for before the first batch is wanted.

        Args:
            batches: To be taken.
            thread: Has the loop.
            size_bytes_of: What a batch holds, about.
        """
        self._size_bytes_of = size_bytes_of
        self._put_size_bytes = 0
        self._taken_size_bytes = 0
        self._batches = batches
        self._thread = thread
        self._came: SimpleQueue[T | _End] = SimpleQueue()
        self._room = asyncio.Event()
        self._is_full = False
        self._task: asyncio.Task[None] | None = None

    def taken(self) -> Iterator[T]:
        """Each batch as it comes; the iteration ends when this one is closed.

        Raises:
            LocalProtocolError: Called on the loop's own thread.
            CancelledError: The loop ended.
            Exception: What the iteration raised, after its batches.
        """
        self._thread.call(self._begin())
        try:
            while not isinstance(batch := self._came.get(), _End):
                self._taken_size_bytes += self._size_bytes_of(batch)
                if self._is_full and self._has_room_again:
                    self._is_full = False
                    self._thread.loop.call_soon_threadsafe(self._room.set)
                yield batch
            if batch.error is not None:
                raise batch.error
        finally:
            # Not waited for: a generator may be collected on any thread, the loop's included.
            loop = self._thread.loop
            if self._thread.pid == os.getpid() and not loop.is_closed():
                loop.call_soon_threadsafe(self._cancel)

    @property
    def _is_large(self) -> bool:
        return self._put_size_bytes - self._taken_size_bytes >= AHEAD_SIZE_BYTES_MAX

    @property
    def _has_room_again(self) -> bool:
        return self._came.qsize() <= AHEAD_MAX // 2 and not self._is_large

    async def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._put_all())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _put_all(self) -> None:
        end = _End(CancelledError())
        try:
            async with contextlib.aclosing(self._batches) as batches:
                async for batch in batches:
                    self._put_size_bytes += self._size_bytes_of(batch)
                    self._came.put(batch)
                    if self._came.qsize() >= AHEAD_MAX or self._is_large:
                        await self._wait_for_room()
            end = _End()
        except Exception as error:  # noqa: BLE001 - raised where the batches are taken
            end = _End(error)
        finally:
            self._came.put(end)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        self._is_full = True
        # What was taken before that would wake nobody.
        if not self._has_room_again:
            await forever(self._room.wait(), "the thread takes a batch, or closes the iteration")
        self._is_full = False
