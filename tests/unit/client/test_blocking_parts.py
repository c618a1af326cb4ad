"""The parts of the blocking API that need no cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from typing import Any

import pytest

from ledgerlog_spark.client.blocking.add_future import (
    AddFuture,
    SharedCondition,
    complete_all,
    completed,
)
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.client.blocking.writer import DOZE_SIZE_BYTES_MAX, Inbox
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import AddTimeoutError, ConfigurationError, LocalProtocolError


@pytest.fixture
def condition() -> SharedCondition:
    return SharedCondition(threading.RLock(), None)


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


def test_a_future_gives_what_another_thread_set(condition: SharedCondition) -> None:
    futures: list[AddFuture[int]] = [AddFuture(condition) for _ in range(3)]
    assert not any(future.done() for future in futures)
    setter = threading.Timer(
        0, complete_all, (condition, [(future, n) for n, future in enumerate(futures)])
    )
    setter.start()
    assert [future.result(30) for future in futures] == [0, 1, 2]
    setter.join()


def test_waiting_for_one_future_is_not_ended_by_its_neighbour(condition: SharedCondition) -> None:
    first: AddFuture[int] = AddFuture(condition)
    second: AddFuture[int] = AddFuture(condition)
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(second.result(30)))
    waiting.start()
    complete_all(condition, [(first, 1)])
    complete_all(condition, [(second, 2)])
    waiting.join()
    assert got == [2]


def test_a_future_not_done_in_time_raises_and_the_append_goes_on(
    condition: SharedCondition,
) -> None:
    future: AddFuture[int] = AddFuture(condition)
    with pytest.raises(TimeoutError):
        future.result(0)
    assert not future.cancel()
    complete_all(condition, [(future, 5)])
    assert future.result() == 5
    assert future.exception() is None


def test_a_failed_future_raises_what_the_append_did(condition: SharedCondition) -> None:
    future: AddFuture[int] = AddFuture(condition)
    error = AddTimeoutError("no ack quorum")
    future.set_exception(error)
    assert future.exception() is error
    with pytest.raises(AddTimeoutError):
        future.result()


def test_futures_work_with_wait_as_completed_and_callbacks(condition: SharedCondition) -> None:
    futures: list[AddFuture[int]] = [AddFuture(condition) for _ in range(4)]
    called: list[int] = []
    futures[2].add_done_callback(lambda future: called.append(future.result()))
    complete_all(condition, [(futures[2], 2)])
    assert called == [2]
    assert wait(futures, 30, FIRST_COMPLETED).done == {futures[2]}
    setter = threading.Timer(0, complete_all, (condition, [(futures[n], n) for n in (0, 1, 3)]))
    setter.start()
    assert {future.result() for future in as_completed(futures, 30)} == {0, 1, 2, 3}
    setter.join()
    assert completed(condition, range(0)).result() == range(0)


def test_a_callback_that_waits_for_an_append_is_refused_instead_of_waiting_for_ever() -> None:
    condition = SharedCondition(threading.RLock(), threading.get_ident())
    future: AddFuture[int] = AddFuture(condition)
    with pytest.raises(LocalProtocolError, match="wait in another thread"):
        future.result()


def test_an_inbox_that_is_full_blocks_until_something_left_it(loop_thread: LoopThread) -> None:
    inbox = Inbox(ClientSettings(backlog_entries_max=2), loop_thread)
    futures: list[AddFuture[int]] = [AddFuture(inbox.condition) for _ in range(3)]
    assert inbox.put(b"a", futures[0], 1, 1) is True
    assert inbox.put(b"b", futures[1], 1, 1) is False
    blocked = threading.Thread(target=inbox.put, args=(b"c", futures[2], 1, 1))
    blocked.start()
    assert len(inbox.items) == 2
    inbox.on_sent(1, 1)
    blocked.join()
    assert [payload for payload, _ in inbox.items] == [b"a", b"b", b"c"]


def test_appends_of_a_callback_are_refused_far_beyond_the_backlog(loop_thread: LoopThread) -> None:
    inbox = Inbox(ClientSettings(backlog_entries_max=2), loop_thread)

    async def from_a_callback() -> None:
        for _ in range(1_000):
            inbox.put(b"x", AddFuture(inbox.condition), 1, 1)

    with pytest.raises(LocalProtocolError, match="append from another thread"):
        loop_thread.call(from_a_callback())
    assert len(inbox.items) == 32


@pytest.fixture
def inbox(loop_thread: LoopThread) -> Inbox:
    return Inbox(ClientSettings(), loop_thread)


def wakes(inbox: Inbox, size_bytes: int = 1) -> bool:
    """Whether an append of this size wakes the loop."""
    return inbox.put(b"x" * size_bytes, AddFuture(inbox.condition), 1, size_bytes)


def test_small_appends_wake_the_loop_once_and_not_while_earlier_ones_linger(inbox: Inbox) -> None:
    looks: list[int] = []
    inbox.look_soon = lambda: looks.append(1)
    assert (wakes(inbox), wakes(inbox)) == (True, False)
    inbox.look()
    inbox.doze()
    assert not any(wakes(inbox) for _ in range(100))
    inbox.on_sent(1, 1)
    inbox.on_sent(1, 1)
    assert (looks, wakes(inbox)) == ([1], False)
    inbox.look()
    assert wakes(inbox)
    inbox.on_sent(1, 1)
    assert looks == [1]


def test_much_wakes_a_loop_that_dozes_and_wakes_it_once(inbox: Inbox) -> None:
    inbox.look()
    inbox.doze()
    assert not wakes(inbox, DOZE_SIZE_BYTES_MAX - 1)
    assert (wakes(inbox), wakes(inbox)) == (True, False)


def test_append_that_came_before_the_loop_dozes_off_is_looked_for_all_the_same(
    inbox: Inbox,
) -> None:
    inbox.look()
    assert wakes(inbox)
    inbox.doze()
    assert not wakes(inbox)
    inbox.look()
    assert wakes(inbox)


def test_what_came_meanwhile_is_handed_over_with_an_acknowledgement(inbox: Inbox) -> None:
    taken: list[object] = []
    inbox.hand_over = lambda: taken.extend(inbox.items)
    future: AddFuture[int] = AddFuture(inbox.condition)
    inbox.complete([(future, 7)])
    assert (taken, future.result(30)) == ([], 7)
    wakes(inbox)
    inbox.complete([])
    assert taken == list(inbox.items)


def test_the_loop_thread_returns_results_and_raises_errors(loop_thread: LoopThread) -> None:
    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise AddTimeoutError("late")

    assert loop_thread.call(answer()) == 42
    with pytest.raises(AddTimeoutError):
        loop_thread.call(fail())


def test_a_blocking_call_on_the_loop_thread_itself_is_refused(loop_thread: LoopThread) -> None:
    async def nested() -> None:
        loop_thread.call(asyncio.sleep(0))

    with pytest.raises(LocalProtocolError, match="aio"):
        loop_thread.call(nested())


def test_stopping_the_loop_thread_closes_what_was_left_open() -> None:
    thread = LoopThread()
    closed: list[str] = []

    async def close() -> None:
        closed.append("client")

    thread.closers.add(close)
    thread.stop()
    assert closed == ["client"]
    assert thread.loop.is_closed()


def test_a_setting_below_one_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ClientSettings(add_timeout_ms=0)
    assert refused.value.key == "add_timeout_ms"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("add_timeout_ms", "5000", "add_timeout_ms must be of type int, got '5000'"),
        ("linger_ms", True, "linger_ms must be of type int, got True"),
        ("backlog_entries_max", 2.5, "backlog_entries_max must be of type int, got 2.5"),
        ("writer", None, "writer must be of type WriterSettings, got None"),
    ],
)
def test_a_setting_of_another_type_is_refused_by_its_name(name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        ClientSettings(**{name: value})
    assert refused.value.key == name
