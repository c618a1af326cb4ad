"""Implements Clock and Tasks with asyncio, and a thread that runs calls in order."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from bookie_server.ports import Priority

T = TypeVar("T")

SLICE_SECONDS = 0.005
PERIOD_SECONDS = 2 * SLICE_SECONDS
_priority: contextvars.ContextVar[Priority] = contextvars.ContextVar(
    "priority", default=Priority.FOREGROUND
)


class OsClock:
    """The clocks of the computer."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment. This number never decreases."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class OsTasks:
    """Runs coroutines as tasks. `on_crash` gets the exceptions of the tasks, which are bugs."""

    def __init__(self, on_crash: Callable[[str, BaseException], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()
        self._background = BackgroundTurns(self._loop)
        self._on_crash = on_crash or self._report_to_loop

    def future(self) -> asyncio.Future[Any]:
        """Return a future of the event loop."""
        return self._loop.create_future()

    def spawn(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, None],
        priority: Priority = Priority.FOREGROUND,
    ) -> None:
        """Run a coroutine as a task."""
        context = contextvars.copy_context()
        context.run(_priority.set, priority)
        task = self._loop.create_task(coroutine, name=name, context=context)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the next iteration of the event loop."""
        self._loop.call_soon(callback)

    async def sleep(self, duration_ms: int) -> None:
        """Wait `duration_ms` milliseconds."""
        await asyncio.sleep(duration_ms / 1_000)

    async def give_way(self) -> None:
        """Let other tasks run.

        If the slice of a background task has ended, wait for its next slice.
        """
        if _priority.get() is Priority.BACKGROUND:
            await self._background.wait()
        else:
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Cancel all tasks and wait for their end. After a clean stop, all tasks only sleep."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(task.get_name(), error)

    def _report_to_loop(self, name: str, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": f"the task {name} of the bookie's storage failed", "exception": error}
        )


class BackgroundTurns:
    """Gives background tasks slices of `SLICE_SECONDS`, one task at a time.

    Slices begin at least `PERIOD_SECONDS` apart. A slice ends after the portion of work in which
    its `SLICE_SECONDS` run out. So clients get about half of the time of the event loop.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._loop = loop
        self._now = now
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False  # whether `_begin` is scheduled
        self._began = now() - PERIOD_SECONDS  # time at which the last slice began

    async def wait(self) -> None:
        """Return immediately while a slice lasts. Otherwise wait for the caller's next slice."""
        if self._now() - self._began < SLICE_SECONDS:
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        self._schedule()
        await turn

    def _schedule(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            rest = PERIOD_SECONDS - (self._now() - self._began)
            self._loop.call_later(max(0.0, rest), self._begin)

    def _begin(self) -> None:
        self._is_due = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # `turn` is done if its task was cancelled
                self._began = self._now()
                turn.set_result(None)
                break
        self._schedule()


class OrderedThread:
    """Runs calls one after the other in a thread. Each call wakes the event loop once."""

    def __init__(self, name: str) -> None:
        self.is_stopped = False  # if True, new calls are never run
        self._loop = asyncio.get_running_loop()
        # The queue stays short, because the callers await each call. The first thread of a
        # directory serves only the two writers of the journal. The second thread serves the
        # maintenance, and opens, closes and removes files.
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(
        self,
        function: Callable[[], T],
        on_abandoned: Callable[[T], object] = lambda _result: None,
        on_end: Callable[[], object] = lambda: None,
    ) -> asyncio.Future[T]:
        """Run `function` in the thread. If no caller waits for the result, `on_abandoned` gets it.

        The event loop calls `on_end` after the end of `function`, even if no caller waits.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(_Call(future, function, on_abandoned, on_end))
        return future

    def stop(self) -> None:
        """End the thread after its queued calls."""
        self.is_stopped = True
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                result = call.function()
            except BaseException as error:  # noqa: BLE001 - the waiter gets it
                self._wake(call, None, error)
            else:
                self._wake(call, result, None)

    def _wake(self, call: _Call, result: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, call, result, error)
        except RuntimeError:
            # The loop is closed, so no coroutine waits any more.
            if error is None:
                call.on_abandoned(result)
            self._calls.put(None)


class _Call(NamedTuple):
    """One queued call, and the future of the coroutine that waits for the call."""

    future: asyncio.Future[Any]
    function: Callable[[], Any]
    on_abandoned: Callable[[Any], object]
    on_end: Callable[[], object]


def _settle(call: _Call, result: Any, error: BaseException | None) -> None:
    """Set the result or the error of the future, unless the waiter was cancelled."""
    call.on_end()
    if call.future.done():
        if error is None:
            call.on_abandoned(result)
    elif error is None:
        call.future.set_result(result)
    else:
        call.future.set_exception(error)
