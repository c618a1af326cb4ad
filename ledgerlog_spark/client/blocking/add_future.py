"""The future of a blocking append. Its creation takes a tenth of the time of an ordinary future."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from ledgerlog_spark.errors import LocalProtocolError

T = TypeVar("T")


class SharedCondition(threading.Condition):
    """The condition of all futures of a handle.

    The thread that completes futures must never wait.
    """

    def __init__(self, lock: threading.RLock, completing_thread: int | None) -> None:
        super().__init__(lock)
        self.completing_thread = completing_thread

    @property
    def may_wait(self) -> bool:
        """Whether the calling thread may wait; False on the thread that completes the futures."""
        return threading.get_ident() != self.completing_thread


class AddFuture(concurrent.futures.Future[T]):
    """A future that shares one `threading.Condition` with all other futures of its handle.

    An ordinary future creates its own condition and lock, which costs more than the append. This
    future works with `concurrent.futures.wait`, `as_completed` and callbacks. Callbacks run on the
    client's thread. An append cannot be withdrawn, so `cancel` always returns False.
    """

    def __init__(self, condition: SharedCondition) -> None:
        self._condition = self._shared = condition
        self._state = "PENDING"
        self._result = None
        self._exception = None
        self._waiters = []
        self._done_callbacks: list[Any] = []

    def cancel(self) -> bool:
        """Return False, because an append cannot be withdrawn."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait for the end of the append, and return its result.

        Args:
            timeout: Maximum time in seconds. If it is None, the call waits until the append ends.

        Raises:
            TimeoutError: The append did not end in time. The append continues.
            LocalProtocolError: A callback called this method before the append ended.
            LedgerLogError: The append failed.
        """
        if self._state != "FINISHED":
            self._wait(timeout)
        if self._exception is not None:
            raise self._exception
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait like `result`, and return the error of the append; None if it succeeded."""
        if self._state != "FINISHED":
            self._wait(timeout)
        return self._exception

    def _wait(self, timeout: float | None) -> None:
        if not self._shared.may_wait:
            raise LocalProtocolError(
                "a callback of an append runs on the client's own thread and cannot wait for "
                "another append there: wait in another thread"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while self._state != "FINISHED":
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._condition.wait(left)


def complete_all(condition: SharedCondition, results: Sequence[tuple[AddFuture[Any], Any]]) -> None:
    """Set the result of each future, and wake all waiting threads once."""
    with condition:
        for future, result in results:
            future._result = result  # noqa: SLF001 - the class is in this module
            future._state = "FINISHED"  # noqa: SLF001
            for waiter in future._waiters:  # noqa: SLF001
                waiter.add_result(future)
        condition.notify_all()
    for future, _ in results:
        if future._done_callbacks:  # noqa: SLF001
            future._invoke_callbacks()  # type: ignore[attr-defined]  # noqa: SLF001


def completed(condition: SharedCondition, result: T) -> AddFuture[T]:
    """Return a future that already has its result."""
    future: AddFuture[T] = AddFuture(condition)
    future.set_result(result)
    return future
