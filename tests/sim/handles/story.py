"""The known facts about one ledger: its appends, the reports about it, and what may be read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ledgerlog_spark.client.handles import known_ends
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
    from ledgerlog_spark.client.handles.reader import ReadHandle
    from ledgerlog_spark.client.handles.writer import WriteHandle
    from ledgerlog_spark.model import LedgerMetadata
    from tests.sim.handles.process import Process
    from tests.sim.handles.world import HandleWorld

    Reader = ReadHandle | BlockingReadHandle


LINGER_SECONDS_MAX = 0.023
"""The linger of the settings, and a moment more."""


class OwnersMistakeError(Exception):
    """An error of a user's callback. It is reported to the loop, and has no other effect."""


class WindowWatch:
    """Records when the window of a handle had no room.

    Attributes:
        was_shut_at: The last time without room, in seconds.
    """

    def __init__(self, handle: WriteHandle) -> None:
        self.was_shut_at = -1.0
        self._loop = handle._loop
        self._window = handle.queue._window
        handle.queue._window = self

    @property
    def can_add(self) -> bool:
        """Return the answer of the writer, and record it."""
        can = self._window.can_add
        if not can:
            self.was_shut_at = self._loop.time()
        return can


class Story:
    """One ledger, and the handle of its writer.

    Attributes:
        face: The blocking handle for its appends, if it has one.
        payloads: The accepted payloads by entry id, in the order of the calls.
        acknowledged: The number of acknowledged entries. They come before all other entries.
        is_contested: Whether another process began to seal the ledger.
        closed: The record of the closed ledger, after the first call that returned it.
    """

    def __init__(
        self,
        world: HandleWorld,
        process: Process,
        handle: WriteHandle,
        password: bytes,
        face: BlockingWriteHandle | None = None,
    ) -> None:
        self.world = world
        self.process = process
        self.handle = handle
        self.face = face
        self.ledger_id = handle.id
        self.password = password
        self.payloads: list[bytes] = []
        self.refused: set[bytes] = set()
        self.definite: set[int] = set()
        self.acknowledged = 0
        self.is_contested = False
        self.is_closing = False
        self.closed: LedgerMetadata | None = None
        self.announces = "ledgerlog.lac" in handle.metadata.custom
        self.pending: set[asyncio.Future[Any]] = set()
        self.followers: list[tuple[Process, ReadHandle, Any]] = []
        self.readers: WeakKeyDictionary[Reader, Process] = WeakKeyDictionary()
        self.window = WindowWatch(handle)

    def payload(self) -> bytes:
        random = self.world.random
        size = random.choice((0, 1, 10, 60, 60, 60, 300, 1_500))
        name = b"%d:%d:" % (self.ledger_id, len(self.payloads) + len(self.refused))
        return name + bytes(size)

    # --- writing ---

    def append(self, count: int) -> list[asyncio.Future[Any]]:
        """Make `count` single appends."""
        made = []
        for _ in range(count):
            payload = self.payload()
            future = self._append_async(payload)
            if self._is_taken(future, [payload]):
                place = len(self.payloads)
                self.payloads.append(payload)
                self.watch(future, range(place, place + 1), is_batch=False)
                made.append(future)
        if made:
            self._look_that_it_is_sent()
        return made

    def append_batch(self, count: int) -> list[asyncio.Future[Any]]:
        first = len(self.payloads)
        payloads: list[bytes] = []
        for _ in range(count):
            payloads.append(b"%d:%d:%d" % (self.ledger_id, first, len(payloads)))
        future = self._append_async(payloads)
        if not self._is_taken(future, payloads):
            return []
        self.payloads += payloads
        self.watch(future, range(first, first + count), is_batch=True)
        self._look_that_it_is_sent()
        return [future]

    def _append_async(self, given: Any) -> Any:
        face, is_batch = self.face or self.handle, isinstance(given, list)
        future = (face.append_batch_async if is_batch else face.append_async)(given)
        if self.face is not None:
            self.face._take_inbox()  # this thread is the thread of the loop
        return future

    def _look_that_it_is_sent(self) -> None:
        """Check that no append waits longer than the linger while the window has room."""
        loop, handle, last = self.world.loop, self.handle, len(self.payloads)
        appended_at = loop.time()

        def look() -> None:
            left = handle.queue.entries
            is_sent = last <= len(self.payloads) - left
            if is_sent or not handle.is_writable or self.process.is_over:
                return
            self.world.require(
                self.window.was_shut_at >= appended_at, f"{left} appends linger for too long"
            )

        loop.call_later(LINGER_SECONDS_MAX, lambda: self.world.guarded(look))

    def _is_taken(self, future: asyncio.Future[Any], payloads: Sequence[bytes]) -> bool:
        limit = 16 * 40 + 64 + len(payloads)
        waiting = self.handle.entries_pending
        self.world.require(waiting <= limit + 64, f"{waiting} appends wait in one handle")
        if not future.done():
            return True
        error = future.exception()
        assert isinstance(error, LedgerLogError), error
        self.world.require(error.definite, f"refused with {error!r}")
        self.refused.update(payloads)
        if isinstance(error, LocalProtocolError):
            self.world.require(waiting >= 600, f"refused while {waiting} wait: {error}")
            self.world.counts["backlogs refused"] += 1
        return False

    def watch(self, future: asyncio.Future[Any], places: range, *, is_batch: bool) -> None:
        begun, is_calm = self.world.loop.time(), self.world.is_calm
        self.pending.add(future)

        def done(future: asyncio.Future[Any]) -> None:
            self.pending.discard(future)
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                self._acknowledged(future.result(), places, is_batch=is_batch)
                took_ms = (self.world.loop.time() - begun) * 1e3
                is_calm_still = is_calm and self.world.is_calm
                self.world.require(
                    took_ms < 2_000 or not is_calm_still, f"an append took {took_ms:.0f} ms"
                )
                return
            if getattr(error, "definite", False):
                self.definite.update(places)
            self.world.judge(self.process, error, self)

        future.add_done_callback(lambda future: self.world.guarded(lambda: done(future)))

    def _acknowledged(self, result: Any, places: range, *, is_batch: bool) -> None:
        wanted: Any = places if is_batch else places[0]
        self.world.require(result == wanted, f"{wanted} was acknowledged as {result}")
        self.world.require(
            places[0] == self.acknowledged,
            f"{places} was acknowledged, with {self.acknowledged} before it",
        )
        self.acknowledged = places[-1] + 1
        for place in places:
            copies = self.world.copies(self.ledger_id, place)
            self.world.require(
                copies >= self.handle.metadata.quorum.ack_quorum,
                f"entry {place} was acknowledged on {copies} bookies",
            )
        self.world.counts["entries acknowledged"] += len(places)

    # --- reading ---

    @property
    def last_readable(self) -> int:
        """The last entry that any reader may read."""
        last = self.handle.last_add_confirmed
        return last if self.closed is None else max(last, self.closed.last_entry_id)

    def see_end(self, reader: Reader, before: int) -> int:
        """Check and return the end that a reader knows now. Before, it knew the end `before`."""
        lac = reader.last_add_confirmed
        if process := self.readers.get(reader):
            highest, was_closed = process.ends.get(self.ledger_id, (-1, False))
            is_closed = reader.is_closed or was_closed
            process.ends[self.ledger_id] = lac if is_closed else max(lac, highest), is_closed
        self.world.require(lac >= before, f"the end of {self.ledger_id} fell: {before} to {lac}")
        if reader.is_closed:
            self.see_closed(reader.metadata)
            self.world.require(
                lac == reader.metadata.last_entry_id,
                f"{self.ledger_id} is closed, and ends at {lac}",
            )
        else:
            self.world.require(
                lac <= self.last_readable,
                f"{self.ledger_id} is read up to {lac}, confirmed to {self.last_readable}",
            )
        return lac

    def looked(self, process: Process, reader: ReadHandle, known: tuple[int, bool]) -> None:
        """Check that a reader sees at least the end that any handle of its client saw before."""
        lac, was_closed = known
        if len(self.world.stories) < known_ends.ENDS_MAX:
            name, end = process.name, reader.last_add_confirmed
            is_right = end >= lac and reader.is_closed >= was_closed
            self.world.require(is_right, f"{name} saw {known} of {self.ledger_id}, now {end}")

    def judge_read(self, process: Process, error: LedgerLogError, position: int) -> None:
        """Check that a failed read has a reason, and failed at the first undelivered entry."""
        at = error.fields.get("entry_id", position)
        self.world.require(at == position, f"delivered up to {position}, then {error!r}")
        self.world.judge(process, error, self)

    def see_entries(self, entries: Sequence[Any], first: int) -> int:
        """Check entries from `first` on, and return the id after them."""
        for place, entry in enumerate(entries, first):
            self.world.require(entry.entry_id == place, f"entry {entry.entry_id} for {place}")
            self.world.require(
                place < len(self.payloads) and bytes(entry.payload) == self.payloads[place],
                f"entry {place} of {self.ledger_id} is {bytes(entry.payload)[:20]!r}",
            )
            self.world.counts["entries read"] += 1
        return first + len(entries)

    def see_closed(self, record: LedgerMetadata) -> None:
        """Check that all calls that return the closed ledger return the same record."""
        self.world.require(record.is_closed, f"{self.ledger_id} is not closed")
        last = record.last_entry_id
        if self.closed is not None:
            self.world.require(
                self.closed.last_entry_id == last, f"{self.ledger_id} is closed at two places"
            )
            return
        self.closed = record
        self.world.require(
            last + 1 >= self.acknowledged,
            f"{self.ledger_id} is closed at {last}, {self.acknowledged} were acknowledged",
        )
        there = sorted(place for place in self.definite if place <= last)
        self.world.require(not there, f"{there} failed for certain, and are there")

    def check_whole(self, record: LedgerMetadata, found: Sequence[Any]) -> None:
        """At the end, check that the ledger has the acknowledged entries in order, and no other."""
        self.see_closed(record)
        end = self.see_entries(found, 0)
        self.world.require(end == record.last_entry_id + 1, f"{end} entries of {record}")
        length = sum(map(len, self.payloads[:end]))
        self.world.require(record.length == length, f"length {record.length}, not {length}")
        self.world.require(self.acknowledged <= end, f"{self.acknowledged} of {end}")
        there = sorted(place for place in self.definite if place < end)
        self.world.require(not there, f"{there} failed for certain, and are there")
