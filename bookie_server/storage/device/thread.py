"""A thread that works in order: what writes and what keeps the files of a directory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class OrderedThread:
    """Runs calls one after the other and wakes the event loop once for each.

    Attributes:
        is_stopped: Calls made now are never carried out.
    """

    def __init__(self, name: str) -> None:
        self.is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(
        self, function: Callable[[], T], on_abandoned: Callable[[T], object] = lambda _result: None
    ) -> asyncio.Future[T]:
        """Run `function` in the thread.

        Args:
            function: Called once.
            on_abandoned: Called with a result that nobody waits for any more.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(_Call(future, function, on_abandoned))
        return future

    def stop(self) -> None:
        """Let the thread end after what is queued."""
        self.is_stopped = True
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                result = call.function()
            except BaseException as error:  # noqa: BLE001 - handed over to who waits for it
                self._wake(call, None, error)
            else:
                self._wake(call, result, None)

    def _wake(self, call: _Call, result: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, call, result, error)
        except RuntimeError:
            # The loop is closed, so nobody waits any more.
            if error is None:
                call.on_abandoned(result)
            self._calls.put(None)


class _Call(NamedTuple):
    """One call, and who waits for it."""

    future: asyncio.Future[Any]
    function: Callable[[], Any]
    on_abandoned: Callable[[Any], object]


def _settle(call: _Call, result: Any, error: BaseException | None) -> None:
    """Hand a result over, unless who waited was cancelled."""
    if call.future.done():
        if error is None:
            call.on_abandoned(result)
    elif error is None:
        call.future.set_result(result)
    else:
        call.future.set_exception(error)
