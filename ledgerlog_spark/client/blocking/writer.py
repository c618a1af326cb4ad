"""The blocking twin of a write handle.

Appends do not hop threads one by one: they go into a deque, and one wake-up makes the loop take all
of them.
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
"""Appends of this size wake the loop while it dozes; together they may fill an entry."""


def _nothing() -> None:
    """No handle accepts appends yet."""


class Inbox:
    """Appends between the caller's threads and the loop, bounded in entries and bytes.

    Waking the loop for a small append costs more than the append. While earlier appends linger, to
    be sent with the next acknowledgement or after a while, the loop *dozes*: it looks here again
    when they are sent or fail, which `on_sent` reports.
    """

    def __init__(self, settings: ClientSettings, loop_thread: LoopThread) -> None:
        lock = threading.RLock()
        # Guards everything here, and is the condition of all futures of the handle.
        self.condition = SharedCondition(lock, loop_thread.ident)
        self.items: deque[tuple[Payload | list[Payload], AddFuture[Any]]] = deque()
        self.is_awake = False
        # Both on the loop: take the appends from here; do that and send, in a later turn.
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
        """Add one append, or a batch; blocks while there is no room. True: wake the loop."""
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
        """Refuse a callback, which cannot wait, beyond 16 times the backlog."""
        is_far_beyond = (
            self._entries >= BACKLOGS_MAX * self._entries_max
            or self._size_bytes >= BACKLOGS_MAX * self._size_bytes_max
        )
        if is_far_beyond and not self.condition.may_wait:
            raise LocalProtocolError(
                f"{self._entries:,} appends of {self._size_bytes:,} bytes wait to be sent, and a "
                "callback cannot wait for them: append from another thread",
                entries=self._entries,
                size_bytes=self._size_bytes,
            )

    def look(self) -> None:
        """On the loop, before it takes the appends: later ones wake it again."""
        with self.condition:
            self.is_awake = self._is_dozing = False
            self._unseen_bytes = 0

    def doze(self) -> None:
        """Called on the loop: appends that were taken from here linger."""
        with self.condition:
            self._is_dozing = not self.is_awake

    @property
    def _is_full(self) -> bool:
        return self._entries >= self._entries_max or self._size_bytes >= self._size_bytes_max

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """Called on the loop: these entries and bytes were sent or refused."""
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
        """On the loop: these futures are done; appends that arrived meanwhile can be sent next."""
        complete_all(self.condition, results)
        if self.items:
            self.hand_over()


class Appender(Protocol):
    """Something with a queue for appends, such as `WriteHandle` and `Leader`."""

    @property
    def queue(self) -> AppendQueue:
        """The appends that are not acknowledged."""


class BlockingAppends(BlockingHandle[A], Closing):
    """Passes appends from any thread to a queue on the loop; returns futures."""

    def __init__(self, appender: A, thread: LoopThread, settings: ClientSettings) -> None:
        super().__init__(appender, thread)
        self._queue = appender.queue
        self._inbox = inbox = Inbox(settings, thread)
        inbox.hand_over = self._hand_over
        inbox.look_soon = partial(thread.loop.call_soon, self._take_inbox)
        appender.queue.listener = inbox

    def _append(self, payload: Payload) -> AddFuture[Any]:
        """Hand over one checked payload; blocks only while the backlog is full."""
        future: AddFuture[Any] = AddFuture(self._inbox.condition)
        self._put(payload, future, 1, len(payload))
        return future

    def _append_all(self, payloads: list[Payload]) -> AddFuture[Any]:
        """Hand over checked payloads; blocks only while the backlog is full."""
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
        """Called on the loop: pass on all appends in order, and send them."""
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
        """The result of `work` on the loop, after all appends so far."""
        self._check_process()
        return self._thread.call(self._after_appends(work))

    async def _after_appends(self, work: Callable[[A], Coroutine[Any, Any, T]]) -> T:
        self._take_inbox()
        return await work(self._twin)


class BlockingWriteHandle(BlockingAppends[WriteHandle]):
    """Appends to one ledger, each acknowledged on Qa bookies before it completes.

    Safe to use from several threads of one process. Entry ids are dense; those of one thread are
    in the order of its calls. `with` closes the ledger at its end.

    Attributes:
        id: The ledger's id.
    """

    def __init__(self, handle: WriteHandle, thread: LoopThread, settings: ClientSettings) -> None:
        super().__init__(handle, thread, settings)
        self.id = handle.id

    last_add_confirmed = Shown(WriteHandle.last_add_confirmed)
    length = Shown(WriteHandle.length)
    metadata = Shown(WriteHandle.metadata)
    is_writable = Shown(WriteHandle.is_writable)
    flush = derived(WriteHandle.flush)
    close = derived(WriteHandle.close)

    @documented_by(WriteHandle.append)
    def append(self, payload: bytes | bytearray | memoryview) -> int:
        """Waits for its future."""
        return self.append_async(payload).result()

    def append_async(self, payload: bytes | bytearray | memoryview) -> AddFuture[int]:
        """A `concurrent.futures.Future` of the entry's id; its errors are those of `append`.

        Blocks only while the settings' backlog of appends waits to be sent.

        Raises:
            LocalProtocolError: Not bytes, too large, or called in another process than the one that
                created the ledger. Or called by a callback of an append, which cannot wait, while
                16 times the backlog waits. Nothing was appended.
        """
        return self._append(checked_payload(payload))

    @documented_by(WriteHandle.append_batch)
    def append_batch(self, payloads: Sequence[bytes | bytearray | memoryview]) -> range:
        """Waits for its future."""
        return self.append_batch_async(payloads).result()

    def append_batch_async(
        self, payloads: Sequence[bytes | bytearray | memoryview]
    ) -> AddFuture[range]:
        """A `concurrent.futures.Future` of the range of ids; its errors are those of `append`.

        Blocks only while the settings' backlog of appends waits to be sent.

        Raises:
            LocalProtocolError: As in `append_async`. Nothing was appended.
        """
        return self._append_all(checked_payloads(payloads))

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"ledger {self.id} is written by the process that created it (a ledger has one "
            "writing process): create another one in this process",
            ledger_id=self.id,
        )

    def __repr__(self) -> str:
        return f"BlockingWriteHandle(id={self.id}, last_add_confirmed={self.last_add_confirmed})"
