"""A transport to storages of bookies in this process, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol

from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.transport.deadlines import Deadlines
from ledgerlog_spark.transport.pending import (
    Pending,
    PendingBatch,
    PendingRead,
    PendingRun,
    PendingSlices,
)
from ledgerlog_spark.transport.port import (
    AddRun,
    CancelWatch,
    LacRise,
    OnAdd,
    OnLac,
    OnLacRise,
    OnRead,
    OnReadBatch,
    OnWatchEnd,
    ReadBatch,
    ReadEntry,
    ReadSlices,
    WatchLac,
    WriteLac,
)
from ledgerlog_spark.transport.prepared_run import PreparedRun
from ledgerlog_spark.wire.requests import check_ids, checked_key


@dataclass(frozen=True, slots=True)
class StorageAdd:
    """A run of entries for a storage. `body` contains the stored entries one after the other."""

    ledger_id: int
    entry_ids: range | tuple[int, ...]
    lengths: tuple[int, ...]
    body: bytes
    master_key: bytes
    is_recovery: bool


class BookieStorage(Protocol):
    """The interface of a bookie's storage.

    Each callback is called exactly once, on the event loop's thread, perhaps before the method has
    returned.
    """

    def add(self, request: StorageAdd, on_done: Callable[[Code], None]) -> None:
        """Store a run of entries.

        `on_done` is called when the run is stored durably, or refused.
        """

    def read(self, request: ReadEntry, on_done: Callable[[Code, bytes | None], None]) -> None:
        """Read one stored entry.

        If the request has a fence key, fence the ledger before the read.
        """

    def read_batch(
        self, request: ReadBatch, on_done: Callable[[Code, Sequence[bytes]], None]
    ) -> None:
        """Read consecutive stored entries, up to a missing entry or a limit of the request."""

    def read_slices(
        self, request: ReadSlices, on_done: Callable[[Code, Sequence[bytes]], None]
    ) -> None:
        """Read ranges of stored entries, up to a missing entry or a limit of the request."""

    def read_lac(self, ledger_id: int, on_done: Callable[[Code, int], None]) -> None:
        """Read the largest last add confirmed that the storage has."""

    def write_lac(
        self, ledger_id: int, lac: int, master_key: bytes, on_done: Callable[[Code], None]
    ) -> None:
        """Store an explicit LAC. `on_done` is called when the LAC is durable or refused."""

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Report a LAC to the watches of a ledger. The storage need not store this LAC."""

    def watch_lac(self, ledger_id: int, on_change: Callable[[int], None]) -> Callable[[], None]:
        """Call `on_change` whenever the LAC rises. Return a function that ends the watch."""


class InProcessTransport:
    """A `BookieTransport` to bookies of this process.

    If a bookie is not in the mapping `bookies` when a request is made, the answer is
    `Code.UNAVAILABLE`.
    """

    def __init__(self, bookies: Mapping[str, BookieStorage]) -> None:
        """Create a transport on the running event loop.

        Each request finds its storage in `bookies`.
        """
        self._bookies = bookies
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop, _expire)
        self._watches: set[_Watch] = set()
        self._last_prepared: PreparedRun | None = None
        # A storage may answer immediately. But the port requires that an answer is given after its
        # method has returned. Therefore each answer waits for the next iteration of the event loop.
        finish: Callable[..., Any] = self._finish
        self._reply: Callable[..., Any] = partial(self._loop.call_soon, finish)
        self._is_closed = False

    def add(self, bookie_id: str, request: AddRun, timeout_ms: int, on_reply: OnAdd) -> None:
        """Store a run of entries on one bookie."""
        storage, prepared = self._storage(bookie_id), self._last_prepared
        if prepared is None or prepared.request is not request:  # a new run
            prepared = self._last_prepared = PreparedRun(request)
        pending = PendingRun(prepared, 0, on_reply)
        if storage is None:
            self._loop.call_soon(pending.fail, Code.UNAVAILABLE)
            return
        self._deadlines.add(pending, timeout_ms)
        ids = request.entry_ids
        storage.add(
            StorageAdd(
                ledger_id=request.ledger_id,
                entry_ids=ids if isinstance(ids, range) else tuple(ids),
                lengths=tuple(prepared.lengths),
                body=b"".join(chain.from_iterable(request.entries)),
                master_key=request.master_key,
                is_recovery=request.is_recovery,
            ),
            partial(self._reply, pending.fail),
        )

    def read(self, bookie_id: str, request: ReadEntry, timeout_ms: int, on_reply: OnRead) -> None:
        """Read one stored entry. The caller verifies the digest."""
        pending = PendingRead(request, on_reply)
        storage = self._admit(bookie_id, pending, timeout_ms)
        if storage is None:
            return
        storage.read(
            request,
            lambda code, entry: self._reply(
                pending.finish, code, None if entry is None else bytes(entry)
            ),
        )

    def read_batch(
        self, bookie_id: str, request: ReadBatch, timeout_ms: int, on_reply: OnReadBatch
    ) -> None:
        """Read consecutive stored entries from one bookie."""
        pending = PendingBatch(request, 0, on_reply)
        storage = self._admit(bookie_id, pending, timeout_ms)
        if storage is None:
            return
        storage.read_batch(
            request,
            lambda code, entries: self._reply(pending.finish, code, tuple(entries)),
        )

    def read_slices(
        self, bookie_id: str, request: ReadSlices, timeout_ms: int, on_reply: OnReadBatch
    ) -> None:
        """Read ranges of stored entries from one bookie."""
        pending = PendingSlices(request, 0, on_reply)
        storage = self._admit(bookie_id, pending, timeout_ms)
        if storage is None:
            return
        storage.read_slices(
            request,
            lambda code, slices: self._reply(pending.finish, code, tuple(slices)),
        )

    def announce_lac(self, bookie_id: str, request: WriteLac) -> bool:
        """Notify the watches on a bookie of a LAC. Return whether the bookie is reachable."""
        check_ids(request.ledger_id, request.last_add_confirmed)
        master_key = checked_key(request.master_key)
        storage = self._storage(bookie_id)
        if storage is None:
            return False
        storage.announce_lac(request.ledger_id, request.last_add_confirmed, master_key)
        return True

    def write_lac(
        self, bookie_id: str, request: WriteLac, timeout_ms: int, on_reply: OnAdd
    ) -> None:
        """Write a LAC to one bookie."""
        check_ids(request.ledger_id, request.last_add_confirmed)
        master_key = checked_key(request.master_key)
        pending = _PendingLac(lambda code, _: on_reply(code))
        storage = self._admit(bookie_id, pending, timeout_ms)
        if storage is not None:
            storage.write_lac(
                request.ledger_id,
                request.last_add_confirmed,
                master_key,
                lambda code: self._reply(pending.finish, code, NO_ENTRY),
            )

    def read_lac(self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: OnLac) -> None:
        """Read the largest LAC that one bookie has."""
        check_ids(ledger_id)
        pending = _PendingLac(on_reply)
        storage = self._admit(bookie_id, pending, timeout_ms)
        if storage is not None:
            storage.read_lac(ledger_id, lambda code, lac: self._reply(pending.finish, code, lac))

    def watch_lac(
        self, bookie_id: str, request: WatchLac, on_rise: OnLacRise, on_end: OnWatchEnd
    ) -> CancelWatch:
        """Watch the LAC on one bookie."""
        check_ids(request.ledger_id)
        storage = self._storage(bookie_id)
        if storage is None:
            return self._loop.call_soon(on_end, Code.UNAVAILABLE).cancel
        watch = _Watch(self._loop, storage, request, on_rise, on_end)
        self._watches.add(watch)
        end = storage.watch_lac(request.ledger_id, watch.on_lac)
        storage.read_lac(request.ledger_id, lambda _, lac: watch.on_lac(lac))

        def cancel() -> None:
            end()
            watch.cancel()
            self._watches.discard(watch)

        return cancel

    async def aclose(self) -> None:
        """Answer pending and later requests with `Code.UNAVAILABLE`. Storages are not changed."""
        self._is_closed = True
        for pending in self._deadlines.close():
            pending.fail(Code.UNAVAILABLE)
        for watch in tuple(self._watches):
            watch.end()

    def _storage(self, bookie_id: str) -> BookieStorage | None:
        return None if self._is_closed else self._bookies.get(bookie_id)

    def _admit(self, bookie_id: str, pending: Pending, timeout_ms: int) -> BookieStorage | None:
        storage = self._storage(bookie_id)
        if storage is None:
            self._loop.call_soon(pending.fail, Code.UNAVAILABLE)
            return None
        self._deadlines.add(pending, timeout_ms)
        return storage

    def _finish(self, finish: Callable[..., None], *result: Any) -> None:
        finish(*result)
        self._deadlines.trim()


class _PendingLac(Pending):
    """A pending request that reads or writes the last add confirmed."""

    __slots__ = ("_on_reply",)

    def __init__(self, on_reply: OnLac) -> None:
        super().__init__()
        self._on_reply = on_reply

    def fail(self, code: Code) -> None:
        """Answer with a code and without a LAC, unless the request was already answered."""
        self.finish(code, NO_ENTRY)

    def finish(self, code: Code, lac: int) -> None:
        """Answer with a code and a LAC, unless the request was already answered."""
        if self.is_open:
            self.is_open = False
            self._on_reply(code, lac if code is Code.OK else NO_ENTRY)


class _Watch:
    """A watch of a ledger's LAC. It reports each rise in the next iteration of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        storage: BookieStorage,
        request: WatchLac,
        on_rise: OnLacRise,
        on_end: OnWatchEnd,
    ) -> None:
        self._loop = loop
        self._storage = storage
        self._request = request
        self._known = request.previous
        self._on_rise = on_rise
        self._on_end = on_end
        self._is_over = False

    def on_lac(self, lac: int) -> None:
        """Report a LAC of the storage in the next iteration of the event loop."""
        self._loop.call_soon(self._report, lac)

    def cancel(self) -> None:
        """Make the watch report nothing more."""
        self._is_over = True

    def end(self) -> None:
        """Report the end of the watch, unless the watch has already ended or was cancelled."""
        if not self._is_over:
            self._is_over = True
            self._on_end(Code.UNAVAILABLE)

    def _report(self, lac: int) -> None:
        if lac <= self._known or self._is_over:
            return
        first, self._known = self._known + 1, lac
        size_bytes_max = self._request.entries_size_bytes_max

        def pass_on(_code: Code, found: Sequence[bytes]) -> None:
            fits = sum(map(len, found)) <= size_bytes_max
            if not self._is_over:
                self._on_rise(LacRise(lac, first, tuple(found) if fits else ()))

        if size_bytes_max:
            batch = ReadBatch(self._request.ledger_id, first, lac + 1 - first, size_bytes_max)
            self._storage.read_batch(batch, pass_on)
        else:
            pass_on(Code.OK, ())


def _expire(expired: list[Pending]) -> None:
    for pending in expired:
        pending.fail(Code.TIMEOUT)
