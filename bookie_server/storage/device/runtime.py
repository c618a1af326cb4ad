"""Clock and Tasks under asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any


class OsClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class OsTasks:
    """Coroutines as tasks of the running event loop.

    Args:
        on_crash: Told the name and error of a coroutine that raised; it has to end the process,
            for such an error is a bug. By default the loop's exception handler is told.
    """

    def __init__(self, on_crash: Callable[[str, BaseException], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()
        self._on_crash = on_crash or self._tell_loop

    def future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return self._loop.create_future()

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task."""
        task = self._loop.create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn of the loop."""
        self._loop.call_soon(callback)

    async def sleep(self, duration_ms: int) -> None:
        """Wait."""
        await asyncio.sleep(duration_ms / 1_000)

    async def aclose(self) -> None:
        """Cancel what still runs (sleepers, after a clean stop) and wait for it."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(task.get_name(), error)

    def _tell_loop(self, name: str, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": f"the task {name} of the bookie's storage failed", "exception": error}
        )
