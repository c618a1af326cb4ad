"""A thread that works in order: what writes and what keeps the files of a directory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class OrderedThread:
    """Runs calls one after the other and wakes the event loop once for each.

    Attributes:
        is_stopped: Calls made now are never carried out.
    """

    def __init__(self, name: str) -> None:
        self.is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in the thread."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put((future, function))
        return future

    def stop(self) -> None:
        """Let the thread end after what is queued."""
        self.is_stopped = True
        self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            future, function = item
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - handed over to who waits for it
                self._wake(future, None, error)
            else:
                self._wake(future, result, None)

    def _wake(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, future, result, error)
        except RuntimeError:
            # The loop is closed, so nobody waits any more.
            self._calls.put(None)

    def _settle(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        """Hand a result over, unless who waited was cancelled."""
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
