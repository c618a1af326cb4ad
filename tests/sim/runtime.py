"""Coroutines in virtual time: one thread, one heap, no asyncio.

A `Scheduler` owns the time. Each simulated machine is a `Host` on the scheduler, with the Clock and
Tasks ports. If a host is killed, its coroutines stop where they are. Events run in the order of
(time, number of the event), so a run depends only on the calls.
"""

from __future__ import annotations

import heapq
import inspect
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakSet

from bookie_server.ports import Priority

T = TypeVar("T")


class SimFuture(Generic[T]):
    """A value that is set later. Coroutines of one host await it."""

    __slots__ = ("_error", "_is_done", "_result", "_waiters", "host")

    def __init__(self, host: Host) -> None:
        self.host = host
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Callable[[], None]] = []

    def done(self) -> bool:
        return self._is_done

    def result(self) -> T:
        assert self._is_done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def set_result(self, result: T, /) -> None:
        assert not self._is_done, "a future is set once"
        self._result = result
        self._finish()

    def set_exception(self, error: BaseException, /) -> None:
        assert not self._is_done, "a future is set once"
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self.host.call_soon(waiter)

    def cancel(self) -> None:
        """Cancel the future, as asyncio does if the task that waits for it is cancelled."""
        if not self._is_done:
            self._error = CancelledError()
            self._finish()

    def add_waiter(self, waiter: Callable[[], None]) -> None:
        if self._is_done:
            self.host.call_soon(waiter)
        else:
            self._waiters.append(waiter)

    def __await__(self) -> Generator[SimFuture[T], None, T]:
        if not self._is_done:
            yield self
        return self.result()


class Scheduler:
    """Virtual time in microseconds, and what happens when.

    Attributes:
        unfinished: All schedulers (an attribute of the class) that are not yet freed, so that tests
            can close them.
        turns: Number of turns that an event loop would have made. One turn runs everything that is
            due when the turn begins.
    """

    unfinished: ClassVar[WeakSet[Scheduler]] = WeakSet()

    def __init__(self) -> None:
        self.unfinished.add(self)
        self.now_us = 0
        self.events = 0
        self.turns = 0
        self._turn_end = 0
        self._number = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self.hosts: list[Host] = []

    def close(self) -> None:
        """Kill all hosts, so that nothing runs any more."""
        for host in list(self.hosts):
            host.kill()
        self._heap.clear()

    def __del__(self) -> None:
        # Python warns about coroutines that never ran.
        self.close()

    def call_at(self, time_us: int, callback: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (max(time_us, self.now_us), self._number, callback))

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> None:
        self.call_at(self.now_us + delay_us, callback)

    def step(self) -> bool:
        """Run the next event; return False if there is none."""
        if not self._heap:
            return False
        time_us, number, callback = heapq.heappop(self._heap)
        if number > self._turn_end or time_us != self.now_us:
            self.turns += 1
            self._turn_end = self._number
        self.now_us = time_us
        self.events += 1
        callback()
        return True

    def run_until(self, is_reached: Callable[[], bool], events_max: int = 1_000_000) -> None:
        """Run until a condition holds.

        Raises:
            AssertionError: No event is left, or `events_max` events were not enough.
        """
        for _ in range(events_max):
            if is_reached():
                return
            assert self.step(), "nothing left to run, and the condition does not hold"
        raise AssertionError(f"not reached within {events_max} events")

    def run_for(self, duration_ms: int) -> None:
        """Run all events within this virtual time."""
        end_us = self.now_us + duration_ms * 1_000
        while self._heap and self._heap[0][0] <= end_us:
            self.step()
        self.now_us = end_us

    def run(self, coroutine: Coroutine[Any, Any, T], host: Host | None = None) -> T:
        """Run one coroutine to its end, and return its result or raise its exception."""
        owner = host or Host(self, "main")
        outcome: SimFuture[T] = owner.future()

        async def supervised() -> None:
            try:
                value = await coroutine
            except Exception as error:  # noqa: BLE001 - handed to the caller below
                outcome.set_exception(error)
            else:
                outcome.set_result(value)

        owner.spawn("main", supervised())
        self.run_until(outcome.done)
        return outcome.result()


class Host:
    """One simulated process: the Clock and Tasks of its code.

    Attributes:
        failure: The exception that ended a coroutine of the host.
        on_failure: Called with this exception; if None, the exception is raised.
        on_callback_error: Called with the exception of a callback; if None, it is raised.
        slice_us: Time of a pause of 0 ms, with which a task lets others run.
    """

    def __init__(
        self, scheduler: Scheduler, name: str, *, wall_offset_ms: int = 1_700_000_000_000
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.wall_offset_ms = wall_offset_ms
        self.is_alive = True
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] | None = None
        self.on_callback_error: Callable[[Exception], None] | None = None
        self.slice_us = 0
        self._running: dict[int, Coroutine[Any, Any, None]] = {}
        self._numbered = 0
        scheduler.hosts.append(self)

    def monotonic_ms(self) -> int:
        return self.scheduler.now_us // 1_000

    def wall_ms(self) -> int:
        return self.wall_offset_ms + self.scheduler.now_us // 1_000

    def future(self) -> SimFuture[Any]:
        return SimFuture(self)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> None:
        """Call `callback` after the delay, unless the host dies before."""

        def alive() -> None:
            if not self.is_alive:
                return
            try:
                callback()
            except Exception as error:
                if self.on_callback_error is None:
                    raise
                self.on_callback_error(error)

        self.scheduler.call_later(delay_us, alive)

    async def sleep(self, duration_ms: int) -> None:
        await self.sleep_us(duration_ms * 1_000 or self.slice_us)

    async def sleep_us(self, duration_us: int) -> None:
        woken: SimFuture[None] = self.future()

        def wake() -> None:
            if not woken.done():  # it is done if the sleeper was cancelled
                woken.set_result(None)

        self.call_later(duration_us, wake)
        await woken

    def spawn(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, None],
        priority: Priority = Priority.FOREGROUND,  # noqa: ARG002 - each portion of work is a turn
    ) -> None:
        self.begin(name, coroutine)

    async def give_way(self) -> None:
        await self.sleep_us(0)

    def begin(self, name: str, coroutine: Coroutine[Any, Any, None]) -> Callable[[], None]:
        """Run a coroutine, and return a function that cancels it, as asyncio cancels a task."""
        if not self.is_alive:
            coroutine.close()
            return lambda: None
        awaited: SimFuture[Any] | None = None
        is_cancelled = False
        self._numbered += 1
        number = self._numbered
        self._running[number] = coroutine

        def advance() -> None:
            nonlocal awaited
            if number not in self._running:
                return
            try:
                awaited = coroutine.send(None)
            except StopIteration:
                self._running.pop(number, None)
            except (Exception, CancelledError) as error:
                self._running.pop(number, None)
                if is_cancelled and isinstance(error, CancelledError):
                    return
                self.failure = error
                if self.on_failure is None:
                    error.add_note(f"in {name} of {self.name}")
                    raise
                self.on_failure(error)
            else:
                assert isinstance(awaited, SimFuture), f"{name} awaits a foreign {awaited!r}"
                assert awaited.host is self, f"{name} awaits a future of {awaited.host.name}"
                awaited.add_waiter(advance)

        def cancel() -> None:
            nonlocal is_cancelled
            if number not in self._running:
                return
            is_cancelled = True
            if awaited is None:
                self._running.pop(number).close()
            else:
                awaited.cancel()

        self.call_soon(advance)
        return cancel

    def kill(self) -> None:
        """Stop the host: none of its coroutines and callbacks continues."""
        self.is_alive = False
        if self in self.scheduler.hosts:
            self.scheduler.hosts.remove(self)
        running, self._running = self._running, {}
        for number in sorted(running):
            coroutine = running[number]
            if inspect.getcoroutinestate(coroutine) != inspect.CORO_RUNNING:
                coroutine.close()
