"""The background event loop of the blocking API: one thread in each process.

A forked child process, such as a Python worker of Spark, starts its own loop thread. The child does
not use the state of its parent, because threads do not survive a fork.
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
        """The event loop. Other threads may call only its thread-safe methods."""
        self.closers: set[Closer] = set()
        """Functions that close clients. They are called when the interpreter exits."""
        self._thread = threading.Thread(target=self._run, name="ledgerlog", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """Identity of the thread, as in `threading.get_ident`."""
        return self._thread.ident

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop, wait until the coroutine ends, and return its result.

        An interrupt (Ctrl-C) cancels the coroutine. A call on the loop's own thread raises
        LocalProtocolError, because the thread would wait for itself.
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
        """End the loop and its thread. The remaining tasks of the loop are cancelled."""
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
    """The loop thread of this process, or None before it is started."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None

    def forget(self) -> None:
        """Replace the thread and the lock of the parent process.

        Called in a forked child process.
        """
        self.__init__()  # type: ignore[misc]

    def stop(self) -> None:
        """Stop the loop thread. Called when the interpreter exits, while threads still run."""
        thread, self.thread = self.thread, None
        if thread is not None and thread.pid == os.getpid():
            thread.stop()


_current = _Current()
os.register_at_fork(after_in_child=_current.forget)
# To close a client, `stop` needs threads of an executor. At exit, Python first calls the functions
# that were passed to `_register_atexit`, in reverse order, and then the functions of `atexit`. The
# import of `concurrent.futures.thread` passes a function to `_register_atexit` that ends the
# executor threads. Because `stop` is passed later than this function, `stop` runs while these
# threads still exist. If a Python version has no `_register_atexit`, `atexit` is used.
getattr(threading, "_register_atexit", atexit.register)(_current.stop)


def loop_thread() -> LoopThread:
    """Return the loop thread of this process, which is started at the first call."""
    thread = _current.thread
    if thread is not None:
        return thread
    with _current.lock:
        if _current.thread is None:
            _current.thread = LoopThread()
        return _current.thread
