"""Threads of users in virtual time, for the blocking API of the client.

The loop stands still while a thread runs. A thread stands still while it waits for a condition, for
a queue, or for a time. So only one of them runs at any moment, and a schedule with threads can be
repeated like any other. Before the loop takes a lock that threads also take, a pausing thread may
run, as a real thread may at any place.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.blocking.add_future import SharedCondition
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from tests.fixtures.kinds import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.handles.world import HandleWorld

PREEMPTED = 0.2
"""Probability that a pausing thread runs before the loop takes a lock."""

HURRIED_PAUSES_MAX = 6

_wait_of_real_threads = threading.Condition.wait


class GivenUpError(BaseException):
    """The schedule is over, so the thread ends at its wait."""


class _Wait:
    """One wait of one thread. The thread of the loop releases it once."""

    def __init__(self, thread: UserThread) -> None:
        self._thread = thread
        self._is_released = False

    def release(self, *, at_once: bool = False) -> None:
        if self._is_released:
            return
        self._is_released = True
        if at_once:
            self._thread.resume()
        else:
            self._thread.world.loop.call_soon(self._thread.resume)

    def __del__(self) -> None:
        del self._thread


class UserThread(threading.Thread):
    """A thread that runs `work`. `done` gets the exception that `work` raised.

    Attributes:
        pause_wait: The wait of a pause that the thread makes by itself; None otherwise.
    """

    def __init__(self, world: HandleWorld, work: Callable[[UserThread], None]) -> None:
        super().__init__(name="user", daemon=True)
        self.world = world
        self.done: asyncio.Future[None] = world.loop.create_future()
        self.pause_wait: _Wait | None = None
        self._work = work
        self._pauses_left_out = 0
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._is_given_up = False
        self._is_over = False
        self._error: BaseException | None = None
        self._go.acquire()
        self._back.acquire()
        world.threads.append(self)

    def begin(self) -> None:
        self.start()
        self.resume()

    # --- on the loop's thread ---

    def resume(self) -> None:
        """Let the thread run until it waits again or ends."""
        if now(self._is_over):
            return
        self._go.release()
        self._back.acquire()
        if self._is_over and not self.done.done():
            self.join()
            if self._error is None:
                self.done.set_result(None)
            elif isinstance(self._error, GivenUpError):
                self.done.cancel()
            else:
                self.done.set_exception(self._error)

    def hurry(self) -> None:
        """End the pause of the thread now, and prevent further pauses for a while."""
        if self.pause_wait is not None:
            self._pauses_left_out = self.world.random.randint(0, HURRIED_PAUSES_MAX)
            self.pause_wait.release(at_once=True)

    def give_up(self) -> None:
        self._is_given_up = True
        while not self._is_over:
            self.resume()

    # --- on its own thread ---

    def run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_given_up:
                self._work(self)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the schedule gets it
            self._error = error
        finally:
            self._is_over = True
            self._back.release()

    def park(self) -> None:
        """Wait until the loop lets the thread continue."""
        if self._is_given_up:
            raise GivenUpError
        self._back.release()
        self._go.acquire()
        if self._is_given_up:
            raise GivenUpError

    def pause(self, seconds: float) -> None:
        if self._pauses_left_out:
            self._pauses_left_out -= 1
            return
        wait = self.pause_wait = _Wait(self)
        timer = self.world.loop.call_later(seconds, wait.release)
        try:
            self.park()
        finally:
            self.pause_wait = None
            timer.cancel()


def wait_in_virtual_time(condition: Any, timeout: float | None = None) -> bool:
    """Replaces `threading.Condition.wait`."""
    thread = threading.current_thread()
    if not isinstance(thread, UserThread):
        return _wait_of_real_threads(condition, timeout)
    assert timeout is None
    condition._waiters.append(_Wait(thread))
    kept = condition._release_save()
    try:
        thread.park()
    finally:
        condition._acquire_restore(kept)
    return True


class PreemptedCondition(SharedCondition):
    """A condition before whose lock by the loop a pausing thread may run."""

    def __enter__(self) -> bool:
        if not isinstance(threading.current_thread(), UserThread):
            preempt()
        return super().__enter__()


class SimQueue:
    """Replaces `queue.SimpleQueue`. The loop puts items, and one thread takes them."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._wait: _Wait | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._wait is not None:
            self._wait.release()

    def get(self) -> Any:
        thread = threading.current_thread()
        assert isinstance(thread, UserThread)
        while not self._items:
            self._wait = _Wait(thread)
            thread.park()
        self._wait = None
        return self._items.popleft()

    def qsize(self) -> int:
        """Return the size. In the thread of the loop, it may be outdated immediately."""
        size = len(self._items)
        if not isinstance(threading.current_thread(), UserThread):
            preempt()
        return size


class SimLoopThread(LoopThread):
    """The thread of the simulation's loop, for the blocking API."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = os.getpid()
        self.loop = loop
        self.closers = set()
        self._thread = threading.current_thread()


class Threads(list[UserThread]):
    """All threads that a schedule began."""

    current: Threads | None = None

    def __init__(self, world: HandleWorld) -> None:
        super().__init__()
        self.world = world
        self.loop_thread = SimLoopThread(world.loop)
        Threads.current = self

    def give_up(self) -> None:
        for thread in self:
            thread.give_up()
        Threads.current = None


def loop_thread() -> LoopThread:
    """Replaces the function that returns the loop thread of the process."""
    assert Threads.current is not None
    return Threads.current.loop_thread


def preempt() -> None:
    """Perhaps let a pausing thread run now."""
    if Threads.current is None:
        return
    random = Threads.current.world.random
    for thread in Threads.current:
        if thread.pause_wait is not None and random.random() < PREEMPTED:
            thread.hurry()
            return
