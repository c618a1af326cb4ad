"""What is true of one ledger: what was appended, what was said of it, and what may be read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.client.reader_handle import ReadHandle
    from ledgerlog_spark.client.writer_handle import WriteHandle
    from ledgerlog_spark.model import LedgerMetadata
    from tests.sim.handles.process import Process
    from tests.sim.handles.world import HandleWorld


class Story:
    """One ledger, and its writer's handle.

    Attributes:
        payloads: By entry id: what was taken, in the order of the calls.
        acknowledged: How many of them were, all before any other.
        is_contested: Somebody else began to seal it.
        closed: The record, once somebody was told that it is closed.
    """

    def __init__(
        self, world: HandleWorld, process: Process, handle: WriteHandle, password: bytes
    ) -> None:
        self.world = world
        self.process = process
        self.handle = handle
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
            future = self.handle.append_async(payload)
            if self._is_taken(future, [payload]):
                place = len(self.payloads)
                self.payloads.append(payload)
                self._watch(future, range(place, place + 1), is_batch=False)
                made.append(future)
        return made

    def append_batch(self, count: int) -> list[asyncio.Future[Any]]:
        first = len(self.payloads)
        payloads: list[bytes] = []
        for _ in range(count):
            payloads.append(b"%d:%d:%d" % (self.ledger_id, first, len(payloads)))
        future = self.handle.append_batch_async(payloads)
        if not self._is_taken(future, payloads):
            return []
        self.payloads += payloads
        self._watch(future, range(first, first + count), is_batch=True)
        return [future]

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

    def _watch(self, future: asyncio.Future[Any], places: range, *, is_batch: bool) -> None:
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
            if error.definite:
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

    def see_end(self, reader: ReadHandle, before: int) -> int:
        """What a reader takes for the end now; it took it for `before`."""
        lac = reader.last_add_confirmed
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
