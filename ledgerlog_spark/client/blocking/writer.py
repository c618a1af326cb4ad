"""The blocking form of a write handle.

Appends are not passed to the event loop one by one. The calling threads put appends into a deque,
and the loop takes all appends of the deque after one wake-up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ledgerlog_spark.client.append_queue import BACKLOGS_MAX, AppendQueue
from ledgerlog_spark.client.blocking.add_future import (
    AddFuture,
    SharedCondition,
    complete_all,
    completed,
)
from ledgerlog_spark.client.blocking.derived import (
    BlockingHandle,
    Closing,
    Shown,
    derived,
    documented_by,
)
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.payloads import checked_payload, checked_payloads
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.protocol.ledger.messages import Payload

A = TypeVar("A", bound="Appender")
T = TypeVar("T")

DOZE_SIZE_BYTES_MAX = 64 << 10
"""Bytes of new appends at which the dozing loop is woken, because the appends may fill an entry."""


def _nothing() -> None:
    """Do nothing. A handle replaces this function by another function before the first append."""


class Inbox:
    """The appends that other threads pass to the event loop. Their number and size are limited.

    A wake-up of the loop costs more than a small append. Therefore the loop *dozes* while earlier
    appends linger: a small append does not wake it. The loop takes new appends when `on_sent`
    reports that the earlier appends were sent or have failed.
    """

    def __init__(self, settings: ClientSettings, loop_thread: LoopThread) -> None:
        lock = threading.RLock()
        # The condition guards all fields of this object. All futures of the handle share it.
        self.condition = SharedCondition(lock, loop_thread.ident)
        self.items: deque[tuple[Payload | list[Payload], AddFuture[Any]]] = deque()
        self.is_awake = False
        # Functions that are called on the loop. `hand_over` takes the appends from this object.
        # `look_soon` takes and sends the appends in a later iteration of the loop.
        self.hand_over: Callable[[], None] = _nothing
        self.look_soon: Callable[[], object] = _nothing
        self._is_dozing = False
        self._unseen_bytes = 0
        self._entries = 0
        self._size_bytes = 0
        self._waiting = 0
        self._room = threading.Condition(lock)
        self._entries_max = settings.backlog_entries_max
        self._size_bytes_max = settings.backlog_size_bytes_max

    def put(
        self, item: Payload | list[Payload], future: AddFuture[Any], entries: int, size_bytes: int
    ) -> bool:
        """Wait for room, then add an append or a batch.

        Return whether the caller must wake the loop.
        """
        with self.condition:
            self._check_callback()
            while self._is_full and self.condition.may_wait:
                self._waiting += 1
                self._room.wait()
                self._waiting -= 1
            self._entries += entries
            self._size_bytes += size_bytes
            self._unseen_bytes += size_bytes
            self.items.append((item, future))
            is_left_alone = self._is_dozing and self._unseen_bytes < DOZE_SIZE_BYTES_MAX
            if self.is_awake or is_left_alone:
                return False
            self.is_awake, self._is_dozing = True, False
            return True

    def _check_callback(self) -> None:
        """Refuse an append of a callback if the unsent appends reach 16 times the backlog limit."""
        is_far_beyond = (
            self._entries >= BACKLOGS_MAX * self._entries_max
            or self._size_bytes >= BACKLOGS_MAX * self._size_bytes_max
        )
        if is_far_beyond and not self.condition.may_wait:
            raise LocalProtocolError(
                f"{self._entries:,} appends of {self._size_bytes:,} bytes wait to be sent, but a "
                "callback cannot wait until they are sent: append from another thread",
                entries=self._entries,
                size_bytes=self._size_bytes,
            )

    def look(self) -> None:
        """Make each later append wake the loop. Called on the loop before it takes the appends."""
        with self.condition:
            self.is_awake = self._is_dozing = False
            self._unseen_bytes = 0

    def doze(self) -> None:
        """Make the loop doze, because the appends that it took are lingering.

        Called on the loop.
        """
        with self.condition:
            self._is_dozing = not self.is_awake

    @property
    def _is_full(self) -> bool:
        return self._entries >= self._entries_max or self._size_bytes >= self._size_bytes_max

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """Give back the room of entries that were sent or refused. Called on the loop."""
        with self.condition:
            self._entries -= entries
            self._size_bytes -= size_bytes
            if self._waiting:
                self._room.notify_all()
            was_dozing, self._is_dozing = self._is_dozing, False
            self.is_awake = self.is_awake or was_dozing
        if was_dozing:
            self.look_soon()

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Complete futures, and pass the new appends to the queue. Called on the loop."""
        complete_all(self.condition, results)
        if self.items:
            self.hand_over()


class Appender(Protocol):
    """An object with a queue of appends, such as `WriteHandle` or `Leader`."""

    @property
    def queue(self) -> AppendQueue:
        """The appends that are not acknowledged."""


class BlockingAppends(BlockingHandle[A], Closing):
    """Passes appends from any thread to a queue on the event loop, and returns futures."""

    def __init__(self, appender: A, thread: LoopThread, settings: ClientSettings) -> None:
        super().__init__(appender, thread)
        self._queue = appender.queue
        self._inbox = inbox = Inbox(settings, thread)
        inbox.hand_over = self._hand_over
        inbox.look_soon = partial(thread.loop.call_soon, self._take_inbox)
        appender.queue.listener = inbox

    def _append(self, payload: Payload) -> AddFuture[Any]:
        """Pass one checked payload to the loop. The call blocks only while the backlog is full."""
        future: AddFuture[Any] = AddFuture(self._inbox.condition)
        self._put(payload, future, 1, len(payload))
        return future

    def _append_all(self, payloads: list[Payload]) -> AddFuture[Any]:
        """Pass several checked payloads to the loop.

        The call blocks only while the backlog is full.
        """
        if not payloads:
            return completed(self._inbox.condition, self._queue.nothing)
        future: AddFuture[Any] = AddFuture(self._inbox.condition)
        self._put(payloads, future, len(payloads), sum(map(len, payloads)))
        return future

    def _put(
        self, item: Payload | list[Payload], future: AddFuture[Any], entries: int, size_bytes: int
    ) -> None:
        self._check_process()
        if self._inbox.put(item, future, entries, size_bytes):
            self._thread.loop.call_soon_threadsafe(self._take_inbox)

    def _take_inbox(self) -> None:
        """Pass all appends to the queue in order, and send them. Called on the loop."""
        self._inbox.look()
        self._hand_over()
        self._queue.send_now()
        if self._queue.is_lingering:
            self._inbox.doze()

    def _hand_over(self) -> None:
        items, queue = self._inbox.items, self._queue
        while items:
            item, future = items.popleft()
            if isinstance(item, list):
                queue.add_batch(item, future)
            else:
                queue.add(item, future)

    def _run(self, work: Callable[[A], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the loop after all earlier appends are queued, and return its result."""
        self._check_process()
        return self._thread.call(self._after_appends(work))

    async def _after_appends(self, work: Callable[[A], Coroutine[Any, Any, T]]) -> T:
        self._take_inbox()
        return await work(self._twin)


class BlockingWriteHandle(BlockingAppends[WriteHandle]):
    """Appends to one ledger. An append is acknowledged when its entry is on disk at Qa bookies.

    Several threads of one process may use this handle. Entry ids have no gaps. The entry ids of the
    appends of one thread are in the order of its calls. A `with` statement closes the ledger at its
    end.

    Attributes:
        id: The id of the ledger.
    """

    def __init__(self, handle: WriteHandle, thread: LoopThread, settings: ClientSettings) -> None:
        super().__init__(handle, thread, settings)
        self.id = handle.id

    last_add_confirmed = Shown(WriteHandle.last_add_confirmed)
    length = Shown(WriteHandle.length)
    metadata = Shown(WriteHandle.metadata)
    is_writable = Shown(WriteHandle.is_writable)
    absent_bookies = Shown(WriteHandle.absent_bookies)
    flush = derived(WriteHandle.flush)
    close = derived(WriteHandle.close)

    @documented_by(WriteHandle.append)
    def append(self, payload: bytes | bytearray | memoryview) -> int:
        """Call `append_async`, and wait for the future."""
        return self.append_async(payload).result()

    def append_async(self, payload: bytes | bytearray | memoryview) -> AddFuture[int]:
        """Append an entry, and return a `concurrent.futures.Future` of its id.

        The call blocks only while the unsent appends reach the settings' backlog. The errors of
        the future are those of `append`.

        Raises:
            LocalProtocolError: Nothing was appended. The payload is not bytes or is too large, or
                another process created the ledger. The error is also raised if the unsent appends
                reach 16 times the settings' backlog and the caller is a callback of an append,
                which cannot wait.
        """
        return self._append(checked_payload(payload))

    @documented_by(WriteHandle.append_batch)
    def append_batch(self, payloads: Sequence[bytes | bytearray | memoryview]) -> range:
        """Call `append_batch_async`, and wait for the future."""
        return self.append_batch_async(payloads).result()

    def append_batch_async(
        self, payloads: Sequence[bytes | bytearray | memoryview]
    ) -> AddFuture[range]:
        """Append several entries, and return a `concurrent.futures.Future` of their range of ids.

        The call blocks only while the unsent appends reach the settings' backlog. The errors of
        the future are those of `append`.

        Raises:
            LocalProtocolError: Nothing was appended. The reasons are those of `append_async`.
        """
        return self._append_all(checked_payloads(payloads))

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"only the process that created ledger {self.id} can write it: create another "
            "ledger in this process",
            ledger_id=self.id,
        )

    def __repr__(self) -> str:
        return f"BlockingWriteHandle(id={self.id}, last_add_confirmed={self.last_add_confirmed})"
