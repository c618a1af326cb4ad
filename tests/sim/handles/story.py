"""What is true of one ledger: what was appended, what was said of it, and what may be read."""

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
"""As long as the settings say, and a moment more."""


class OwnersMistakeError(Exception):
    """Raised by a user's callback: reported to the loop, and nothing else comes of it."""


class WindowWatch:
    """Notes when a handle's window had no room.

    Attributes:
        was_shut_at: Seconds.
    """

    def __init__(self, handle: WriteHandle) -> None:
        self.was_shut_at = -1.0
        self._loop = handle._loop
        self._window = handle.queue._window
        handle.queue._window = self

    @property
    def can_add(self) -> bool:
        """What the writer says, noted."""
        can = self._window.can_add
        if not can:
            self.was_shut_at = self._loop.time()
        return can


class Story:
    """One ledger, and its writer's handle.

    Attributes:
        face: Through which its appends go, if it has one.
        payloads: By entry id: what was taken, in the order of the calls.
        acknowledged: How many of them were, all before any other.
        is_contested: Somebody else began to seal it.
        closed: The record, once somebody was told that it is closed.
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
        """That many appends, one by one."""
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
            self.face._take_inbox()  # of this thread, which is the loop's
        return future

    def _look_that_it_is_sent(self) -> None:
        """Nothing waits for company longer than it should while the window has room."""
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
        """No reader may see an end beyond this."""
        last = self.handle.last_add_confirmed
        return last if self.closed is None else max(last, self.closed.last_entry_id)

    def see_end(self, reader: Reader, before: int) -> int:
        """What a reader takes for the end now; it took it for `before`."""
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
        """Who looks at the end sees at least what anybody in its client saw before."""
        lac, was_closed = known
        if len(self.world.stories) < known_ends.ENDS_MAX:
            name, end = process.name, reader.last_add_confirmed
            is_right = end >= lac and reader.is_closed >= was_closed
            self.world.require(is_right, f"{name} saw {known} of {self.ledger_id}, now {end}")

    def judge_read(self, process: Process, error: LedgerLogError, position: int) -> None:
        """A read failed at the first entry that it did not deliver, for a reason."""
        at = error.fields.get("entry_id", position)
        self.world.require(at == position, f"delivered up to {position}, then {error!r}")
        self.world.judge(process, error, self)

    def see_entries(self, entries: Sequence[Any], first: int) -> int:
        """Entries from `first` on; the id behind them."""
        for place, entry in enumerate(entries, first):
            self.world.require(entry.entry_id == place, f"entry {entry.entry_id} for {place}")
            self.world.require(
                place < len(self.payloads) and bytes(entry.payload) == self.payloads[place],
                f"entry {place} of {self.ledger_id} is {bytes(entry.payload)[:20]!r}",
            )
            self.world.counts["entries read"] += 1
        return first + len(entries)

    def see_closed(self, record: LedgerMetadata) -> None:
        """Somebody was told that the ledger is closed so: everybody is told the same."""
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
        """At the end: everything that was acknowledged, in order, and nothing else."""
        self.see_closed(record)
        end = self.see_entries(found, 0)
        self.world.require(end == record.last_entry_id + 1, f"{end} entries of {record}")
        length = sum(map(len, self.payloads[:end]))
        self.world.require(record.length == length, f"length {record.length}, not {length}")
        self.world.require(self.acknowledged <= end, f"{self.acknowledged} of {end}")
        there = sorted(place for place in self.definite if place < end)
        self.world.require(not there, f"{there} failed for certain, and are there")
