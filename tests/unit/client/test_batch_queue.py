"""Batches that the loop gathers ahead of the thread that takes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError

import pytest

from ledgerlog_spark.client.blocking.batch_queue import AHEAD_MAX, AHEAD_SIZE_BYTES_MAX, BatchQueue
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.errors import AddTimeoutError, LocalProtocolError

SECONDS_MAX = 30


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


class Counted:
    """Batches of one number each, from 0 on."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.asked = 0
        self.has_ended = threading.Event()
        self._count = count
        self._error = error

    async def batches(self) -> AsyncGenerator[list[int], None]:
        try:
            for number in range(self._count):
                self.asked += 1
                yield [number]
            if self._error is not None:
                raise self._error
        finally:
            self.has_ended.set()


def test_all_batches_come_in_order_however_many_there_are(thread: LoopThread) -> None:
    counted = Counted(1_000)
    taken = BatchQueue(counted.batches(), thread, len).taken()
    assert list(taken) == [[number] for number in range(1_000)]
    assert counted.has_ended.is_set()


def test_error_of_the_iteration_is_raised_after_its_batches(thread: LoopThread) -> None:
    taken = BatchQueue(Counted(3, AddTimeoutError("late")).batches(), thread, len).taken()
    assert [next(taken) for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(AddTimeoutError):
        next(taken)
    assert list(taken) == []


def test_no_more_is_asked_for_than_a_few_batches_ahead(thread: LoopThread) -> None:
    counted = Counted(1_000)
    taken = BatchQueue(counted.batches(), thread, len).taken()
    for number in range(100):
        assert next(taken) == [number]
        assert counted.asked <= number + 2 + AHEAD_MAX


def test_nothing_is_asked_for_before_the_first_batch_is_wanted(thread: LoopThread) -> None:
    counted = Counted(3)
    taken = BatchQueue(counted.batches(), thread, len).taken()
    thread.call(_turn())
    assert counted.asked == 0
    assert next(taken) == [0]


def test_iteration_ends_when_nobody_takes_any_more(thread: LoopThread) -> None:
    for ahead in (1, 1_000):
        counted = Counted(ahead)
        taken = BatchQueue(counted.batches(), thread, len).taken()
        next(taken)
        del taken
        assert counted.has_ended.wait(SECONDS_MAX)


def test_taking_on_the_loops_own_thread_is_refused(thread: LoopThread) -> None:
    async def nested() -> None:
        next(BatchQueue(Counted(1).batches(), thread, len).taken())

    with pytest.raises(LocalProtocolError, match="aio"):
        thread.call(nested())


def test_loop_that_ends_ends_the_taking() -> None:
    thread = LoopThread()

    async def endless() -> AsyncGenerator[list[int], None]:
        yield [0]
        await never.wait()

    never = asyncio.Event()
    taken = BatchQueue(endless(), thread, len).taken()
    assert next(taken) == [0]
    thread.stop()
    with pytest.raises(CancelledError):
        next(taken)


async def _turn() -> None:
    """One turn of the loop."""


def test_large_batches_are_gathered_by_their_bytes(thread: LoopThread) -> None:
    asked = 0
    few = threading.Event()

    async def batches() -> AsyncGenerator[bytes, None]:
        nonlocal asked
        try:
            for _ in range(8):
                asked += 1
                yield bytes(AHEAD_SIZE_BYTES_MAX // 2)
        finally:
            few.set()

    taken = BatchQueue(batches(), thread, len).taken()
    next(taken)
    for _ in range(100):
        thread.call(asyncio.sleep(0))
    assert 2 <= asked <= 4
    assert len(list(taken)) == 7
    assert few.wait(SECONDS_MAX)
