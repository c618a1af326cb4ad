"""Runs readings: generators that yield a `Need` each time that they need bytes (`reads.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from itertools import count
from typing import TypeVar

from bookie_server.errors import FreedFileError, StorageError
from bookie_server.ports import Future, Tasks
from bookie_server.storage.files.entry_log_file import Need
from bookie_server.storage.files.pool import Pins
from bookie_server.storage.wake_ups import guarded, resolve

R = TypeVar("R")

NEEDS_PER_TURN = 8
"""Number of index blocks (together 3,272 pieces) that a listing of a ledger's entry ids reads
before other tasks run."""

RECORDS_PER_TURN = 64
"""Number of records that readings of one kind read before other tasks run. With 4,096 entries in
each record, these reads take 1 to 6 ms."""

RECORD_BYTES = 65_536
"""Number of bytes for which an entry counts as one further record, because copying and sending
4 MiB takes milliseconds."""


class Readings:
    """Runs the readings of one directory.

    A reading yields a `Need` when it needs bytes, and None after each portion of its work. A
    reading waits in line after each portion and after each read from the device, because many reads
    from the device may end at the same time. There are separate lines for batches, single entries,
    and comparisons of adds.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._batches_line, self._entries_line, self._adds_line = (_Line(tasks) for _ in range(3))
        self._batches = 0

    def run(
        self,
        reading: Generator[Need | None, bytes, R],
        on_result: Callable[[R], None],
        on_error: Callable[[StorageError], None],
        *,
        is_batch: bool = False,
    ) -> None:
        """Run a new reading.

        The reading runs immediately until a portion ends, or until it needs bytes that are not in
        the page cache. It then continues in a task. A callback may run before this method returns.
        A batch waits in line while other batches are running, because it may have several portions.
        """
        need: Need | None = None
        if not (is_batch and self._batches):
            data: bytes | None = None
            try:
                while True:
                    need = reading.send(data)  # type: ignore[arg-type]
                    data = None if need is None else need.handle.read_now(need.offset, need.size)
                    if data is None:
                        break
            except StopIteration as end:
                on_result(end.value)
                return
            except StorageError as error:
                on_error(error)
                return
        self._batches += is_batch
        going_on = self._go_on(
            reading,
            need,
            guarded(self._tasks, on_result),
            guarded(self._tasks, on_error),
            is_batch=is_batch,
        )
        self._tasks.spawn("cold read", going_on)

    async def compare(self, reading: Generator[Need | None, bytes, R], count: int) -> R:
        """Wait in line, then run a reading that compares an add with the stored entries.

        The comparison counts as `count` records in the line.
        """

        def wait_in_line(_size_bytes: int = 0) -> Awaitable[None]:
            return self._adds_line.wait(count)

        await wait_in_line()
        return await finish(reading, wait_in_line=wait_in_line)

    async def _go_on(
        self,
        reading: Generator[Need | None, bytes, R],
        need: Need | None,
        on_result: Callable[[R], None],
        on_error: Callable[[StorageError], None],
        *,
        is_batch: bool,
    ) -> None:
        def wait_in_line(size_bytes: int = 0) -> Awaitable[None]:
            if is_batch:
                return self._batches_line.wait(RECORDS_PER_TURN)
            return self._entries_line.wait(1 + size_bytes // RECORD_BYTES)

        try:
            if need is None:
                await wait_in_line()
            result = await finish(reading, need, wait_in_line=wait_in_line)
        except StorageError as error:
            on_error(error)
        else:
            on_result(result)
        finally:
            self._batches -= is_batch


class _Line:
    """Readings that wait in line. Other tasks run after each `RECORDS_PER_TURN` records."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._is_moving = False

    async def wait(self, records: int) -> None:
        """Wait until the current turn has room for `records` records.

        More than `RECORDS_PER_TURN` records count as a whole turn.
        """
        turn: Future[None] = self._tasks.future()
        self._waiting.append((turn, records))
        if not self._is_moving:
            self._is_moving = True
            self._tasks.spawn("line of readings", self._move())
        await turn

    async def _move(self) -> None:
        while self._waiting:
            left = RECORDS_PER_TURN
            while self._waiting and left >= min(self._waiting[0][1], RECORDS_PER_TURN):
                turn, records = self._waiting.popleft()
                left -= records
                resolve(turn, None)
            await self._tasks.sleep(0)
        self._is_moving = False


async def finish(
    reading: Generator[Need | None, bytes, R],
    need: Need | None = None,
    give_way: Callable[[], Awaitable[None]] | None = None,
    wait_in_line: Callable[[int], Awaitable[None]] | None = None,
) -> R:
    """Run a reading to its end, and wait for all bytes that it needs.

    If the reading reads a file from the device, this file is not freed before the reading ends.

    `need` is the first need if the reading has already begun. `give_way` is called after each
    `NEEDS_PER_TURN` needs. `wait_in_line` is called with 0 after each portion, and with the number
    of bytes after each read from the device.
    """
    with Pins() as pins:
        try:
            if need is None:
                need = next(reading)
            for number in count(1):
                while need is None:
                    assert wait_in_line is not None, "this reading has no portions"
                    await wait_in_line(0)
                    need = next(reading)
                data = need.handle.read_now(need.offset, need.size)
                if data is None:
                    pins.add(need.handle)
                    try:
                        data = await need.handle.read(need.offset, need.size)
                    except FreedFileError as error:
                        need = reading.throw(error)  # searches for the entry again
                        continue
                    if wait_in_line is not None:
                        await wait_in_line(len(data))
                if give_way is not None and number % NEEDS_PER_TURN == 0:
                    await give_way()
                need = reading.send(data)
        except StopIteration as end:
            result: R = end.value
            return result
    raise AssertionError("a reading ends")
