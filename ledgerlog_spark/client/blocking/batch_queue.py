"""Passes batches from the loop to a thread, a few ahead of it.

The loop puts batches and the thread takes them, with one hop for each batch. The thread wakes the
loop only when the loop waits for room.
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
"""Batches that may wait in the queue before it requests no more."""

AHEAD_SIZE_BYTES_MAX: Final = 16 << 20
"""Maximum number of waiting bytes; one more batch may exceed it."""


class _End:
    """The end of the iteration, after the last batch; with its error, if any."""

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
        """No batch is requested before the first is wanted; `size_bytes_of` may approximate."""
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
        """Each batch as it arrives, then the error of the iteration if it has one.

        Closing this generator ends the iteration. It raises CancelledError when the loop ended.
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
            # Does not wait: a generator may be collected on any thread, the loop's included.
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
        # Batches that were taken before that would wake no waiter.
        if not self._has_room_again:
            await forever(self._room.wait(), "the thread takes a batch, or closes the iteration")
        self._is_full = False
