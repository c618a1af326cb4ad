"""Passes batches from the event loop to a thread, and reads a few batches ahead.

The loop puts batches into a queue, and the thread takes them from the queue. The thread wakes the
loop only if the loop waits for room in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.waits import forever

T = TypeVar("T")

AHEAD_MAX: Final = 8
"""Maximum number of batches that wait in the queue."""

AHEAD_SIZE_BYTES_MAX: Final = 16 << 20
"""Total size of waiting batches at which the loop adds no further batch, in bytes."""


class _End:
    """Marks the end of the iteration, after the last batch.

    `error` is the error that ended the iteration, or None.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


class BatchQueue(Generic[T]):
    """Passes the batches of one asynchronous iterator to one thread of the same process."""

    def __init__(
        self,
        batches: AsyncGenerator[T, None],
        thread: LoopThread,
        size_bytes_of: Callable[[T], int],
    ) -> None:
        """Create a queue.

        The call of `taken` begins the iteration. `size_bytes_of` returns the size of a batch in
        bytes, which may be an estimate.
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
        """Yield each batch when it arrives. If the iteration failed, raise its error at the end.

        If this generator is closed, the iteration ends. If the event loop ends, the generator
        raises CancelledError.
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
            # This clean-up must not wait, because it runs on the loop's thread if that thread
            # collects the generator.
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
        except Exception as error:  # noqa: BLE001 - `taken` raises it
            end = _End(error)
        finally:
            self._came.put(end)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        self._is_full = True
        # The thread wakes the loop only if `_is_full` is set. The thread may have made room before
        # `_is_full` was set, so the loop checks for room once more before it waits.
        if not self._has_room_again:
            await forever(self._room.wait(), "the thread takes a batch, or closes the iteration")
        self._is_full = False
