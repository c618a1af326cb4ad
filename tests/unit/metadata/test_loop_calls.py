"""Calls that threads pass to the event loop."""

from __future__ import annotations

import asyncio

import pytest

from ledgerlog_spark.metadata.zookeeper.loop_calls import LoopCalls


class CountedLoop:
    """The running loop, which counts how often it is woken and how often it looks again."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.wakes = 0
        self.looks = 0
        self.call_soon = self._loop.call_soon

    def call_soon_threadsafe(self, function: object) -> None:
        self.wakes += 1
        self._loop.call_soon_threadsafe(function)  # type: ignore[arg-type]

    def call_later(self, _: float, function: object) -> None:
        self.looks += 1
        self._loop.call_soon(function)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_busy", [False, True])
async def test_calls_of_a_thread_keep_their_order(is_busy: bool) -> None:
    loop, taken, ended = CountedLoop(), list[int](), asyncio.Event()
    calls = LoopCalls(loop, lambda: is_busy)  # type: ignore[arg-type]

    def add() -> None:
        for number in range(1_000):
            calls.add(taken.append, number)
        calls.add(ended.set)

    await asyncio.to_thread(add)
    await ended.wait()
    assert taken == list(range(1_000))


async def test_calls_that_come_together_wake_the_loop_once() -> None:
    loop, ended = CountedLoop(), asyncio.Event()
    calls = LoopCalls(loop, lambda: False)  # type: ignore[arg-type]
    for _ in range(10):
        calls.add(lambda: None)
    calls.add(ended.set)
    await ended.wait()
    assert (loop.wakes, loop.looks) == (1, 0)
    calls.add(ended.clear)
    assert loop.wakes == 2


async def test_busy_loop_without_calls_does_not_look_again() -> None:
    """Otherwise many long waits would wake the loop a thousand times a second."""
    loop = CountedLoop()
    calls = LoopCalls(loop, lambda: True)  # type: ignore[arg-type]
    for turn in range(1, 4):
        ended = asyncio.Event()
        calls.add(ended.set)
        await ended.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (loop.wakes, loop.looks) == (turn, turn)


async def test_closed_loop_is_not_called() -> None:
    other = asyncio.new_event_loop()
    other.close()
    calls = LoopCalls(other, lambda: False)
    calls.add(lambda: None)
