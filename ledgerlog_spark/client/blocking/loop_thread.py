"""The background event loop of every blocking API: one thread for each process.

A forked child (Spark's Python workers are forked) has no loop thread and starts its own. Threads do
not survive a fork, so the state of the parent is forgotten there, never used.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ledgerlog_spark.errors import LocalProtocolError

T = TypeVar("T")
Closer = Callable[[], Coroutine[Any, Any, None]]
STOP_SECONDS_MAX = 5.0


class LoopThread:
    """An event loop (uvloop if installed) that runs in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        """Other threads may only call its thread-safe methods."""
        self.closers: set[Closer] = set()
        """Closed at the interpreter's exit, unless closed before."""
        self._thread = threading.Thread(target=self._run, name="ledgerlog", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """Identity of the thread, as in `threading.get_ident`."""
        return self._thread.ident

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine, run on the loop while this thread waits.

        An interrupt (Ctrl-C) cancels the coroutine. The loop's own thread, which would wait for
        itself, is refused.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise LocalProtocolError(
                "a blocking call on the client's own thread would wait for itself: use "
                "ledgerlog_spark.aio, or call from another thread"
            )
        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread; its remaining tasks are cancelled."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self._close_all())
            self._cancel_tasks()
        finally:
            self.loop.close()

    async def _close_all(self) -> None:
        closing = [self.loop.create_task(closer()) for closer in self.closers]
        if closing:
            await asyncio.wait(closing, timeout=STOP_SECONDS_MAX / 2)

    def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class _Current:
    """The process's loop thread, if it has one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None

    def forget(self) -> None:
        """Called in a forked child, in which the parent's thread and lock cannot be used."""
        self.__init__()  # type: ignore[misc]

    def stop(self) -> None:
        """Called at the interpreter's exit, while threads still run."""
        thread, self.thread = self.thread, None
        if thread is not None and thread.pid == os.getpid():
            thread.stop()


_current = _Current()
os.register_at_fork(after_in_child=_current.forget)
# Closing a client needs executor threads, which Python ends before it runs `atexit`. This runs
# before that (last registered, first called). Python versions without it use `atexit`.
getattr(threading, "_register_atexit", atexit.register)(_current.stop)


def loop_thread() -> LoopThread:
    """This process's loop thread, started on first use."""
    thread = _current.thread
    if thread is not None:
        return thread
    with _current.lock:
        if _current.thread is None:
            _current.thread = LoopThread()
        return _current.thread
