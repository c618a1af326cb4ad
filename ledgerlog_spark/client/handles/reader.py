"""The handle with which a user reads a ledger.

The handle stores the known end of the ledger, and reads ranges of entries. To open or read a ledger
changes nothing, and never fences the ledger. Each range has its own `LedgerReader`. A
`LedgerReader` reads ahead, sends a second request if a bookie is slow, and uses the next replica if
a digest is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

from ledgerlog_spark.client.arguments import check_callback, check_optional, check_type
from ledgerlog_spark.client.errors_from_codes import error_from_failure, error_from_read
from ledgerlog_spark.client.handles.follower import LedgerFollower
from ledgerlog_spark.client.handles.known_ends import KnownEnds
from ledgerlog_spark.client.handles.lac_announcer import announces
from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.host.effects import MachineHost, StallWatch, result_of
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import (
    EntryNotFoundError,
    EntryUnknownError,
    InternalError,
    LedgerLogError,
    LocalProtocolError,
)
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.messages import (
    EntriesRead,
    EntriesTaken,
    Indication,
    LacAdvanced,
    LacRead,
    LedgerFailed,
    RangeRead,
    ReadFailed,
    Start,
    StoredEntry,
)
from ledgerlog_spark.protocol.ledger.read.lac import LacReader
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from ledgerlog_spark.protocol.ledger.read_room import ReadPlace, RoomMade
from ledgerlog_spark.protocol.ledger.slices import SliceSource
from ledgerlog_spark.transport.port import LacRise
from ledgerlog_spark.waits import forever

Entry = StoredEntry
"""An entry for users, with a verified digest.

The fields of an entry are `entry_id`, `last_add_confirmed`, `length` (payload bytes of the ledger
up to and including the entry) and `payload`."""


class ReadHandle:
    """Reads a ledger in any state without disturbing its writer.

    All methods must be called on the thread of the client's event loop.

    Attributes:
        id: The id of the ledger.
        metadata: The metadata that was read last. If it is outdated, a read of entries updates it.
    """

    def __init__(
        self,
        *,
        ledger_id: int,
        metadata: LedgerMetadata,
        password: bytes,
        services: Services,
        ends: KnownEnds,
        on_record: Callable[[LedgerMetadata], None] | None = None,
    ) -> None:
        self.id = ledger_id
        self.metadata = metadata
        self._services = services
        self._bytes = LedgerBytes(
            ledger_id,
            metadata.digest_type,
            password,
            has_explicit_lac=announces(metadata),
        )
        self._ends = ends
        self._last_add_confirmed = ends.last_add_confirmed(ledger_id)
        self._on_record = on_record
        self._ranges: set[_Range] = set()
        self._followers: set[LedgerFollower] = set()
        self._watched: EntryBatch | None = None
        self._is_closed_here = False
        self._adopt(metadata)

    @property
    def last_add_confirmed(self) -> int:
        """Last entry that is known to be acknowledged; NO_ENTRY (-1) if there is no such entry.

        For a closed ledger, this value is the last entry. For an open ledger, the value may be too
        small until the next `refresh`. When this handle is opened or refreshed, the value is at
        least as large as each value that other handles of the client have found before.
        """
        return self._last_add_confirmed

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when its metadata was last read.

        The end of a closed ledger is final.
        """
        return self.metadata.is_closed

    @property
    def length(self) -> int:
        """Number of payload bytes of a closed ledger; 0 while the ledger is open."""
        return self.metadata.length

    async def refresh(self) -> int:
        """Read the metadata, and the LAC from the bookies. Return the last add confirmed.

        Raises:
            LedgerNotFoundError: The ledger was deleted.
            MetadataUnavailableError: The metadata could not be read; retriable.
            EntryUnknownError: No bookie of the last ensemble reported a LAC; retriable.
            LocalProtocolError: This handle is closed.
        """
        self._check_open()
        await self.reload()
        if not self.is_closed:
            await self.read_last_add_confirmed()
        return self._last_add_confirmed

    async def reload(self) -> None:
        """Read the metadata again, without requests to bookies.

        Raises:
            LedgerNotFoundError: The ledger was deleted.
            MetadataUnavailableError: The metadata could not be read; retriable.
        """
        self._adopt((await self._services.load_record(self.id)).value)

    def follow(
        self, on_change: Callable[[], None], *, entries_size_bytes_max: int = 0
    ) -> LedgerFollower:
        """Keep `last_add_confirmed` and `is_closed` up to date until the follower is cancelled.

        A follower watches the metadata, and the LAC on one bookie. The follower sends no requests
        while nothing changes.

        Args:
            on_change: Called on the event loop after a possible change of one of these values, and
                when the follower stops because the ledger was closed or because of an `error`.
            entries_size_bytes_max: Maximum size of the new entries that the bookie sends with a new
                LAC, for `watched_entries`.
        """
        self._check_open()
        check_callback(on_change)
        check_type("entries_size_bytes_max", entries_size_bytes_max, int)
        follower = LedgerFollower(self, self._services, on_change, entries_size_bytes_max)
        self._followers = {one for one in self._followers if not one.is_over}
        self._followers.add(follower)
        return follower

    def take_rise(self, rise: LacRise) -> None:
        """Update the handle from a bookie's report of a LAC.

        A LAC below the known end is ignored.
        """
        self._raise_lac(rise.last_add_confirmed)
        if rise.entries:
            self._watched = self._bytes.verified_batch(rise.entries, rise.first_entry_id)

    def watched_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[Entry]:
        """Return the first entries of a range, up to the first entry that no follower has received.

        The handle stores only the entries that a follower received last. Entries that are missing
        in the result may still be in the ledger, and the caller must read them.

        Args:
            first_entry_id: The first entry of the range.
            last_entry_id: The last entry of the range.
        """
        check_type("first_entry_id", first_entry_id, int)
        check_type("last_entry_id", last_entry_id, int)
        held = self._watched
        if held is None or not held.first_entry_id <= first_entry_id <= held.last_entry_id:
            return ()
        return held.between(first_entry_id, last_entry_id) or ()

    async def read_last_add_confirmed(self) -> int:
        """Read the LAC from the bookies of the last ensemble, and return the largest known LAC.

        Raises:
            EntryUnknownError: No bookie of the last ensemble reported a LAC; retriable.
        """
        self._check_open()
        self._raise_lac(self._ends.last_add_confirmed(self.id))

        def take(indication: Indication) -> int | LedgerLogError | None:
            if isinstance(indication, LedgerFailed):
                return error_from_failure(self.id, indication)
            if isinstance(indication, LacAdvanced | LacRead):
                self._raise_lac(indication.last_add_confirmed)
            return self._last_add_confirmed if isinstance(indication, LacRead) else None

        await result_of(
            LacReader(metadata=self.metadata, known=self._last_add_confirmed),
            self._services,
            self._bytes,
            take=take,
            stalled=lambda why: EntryUnknownError(f"ledger {self.id}: {why}", ledger_id=self.id),
        )
        return self._last_add_confirmed

    async def read(
        self, first_entry_id: int = 0, last_entry_id: int | None = None
    ) -> AsyncGenerator[Entry, None]:
        """Yield the entries of a range, including the last entry, in order.

        Entries are read ahead within the limits of the settings: at most 64 MiB by default. The
        arguments and errors are those of `read_batches`.
        """
        async with contextlib.aclosing(self.read_batches(first_entry_id, last_entry_id)) as batches:
            async for batch in batches:
                for entry in batch:
                    yield entry

    async def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
        place: ReadPlace | None = None,
        slices: SliceSource | None = None,
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a range, including the last entry, in batches and in order.

        Entries are read ahead within the limits of the settings: at most 64 MiB by default. No
        entry is omitted, because the iteration ends only after the last entry, or with an error.

        Args:
            first_entry_id: The first entry of the range, at least 0.
            last_entry_id: The last entry of the range. If it is None, the range ends at
                `last_add_confirmed`, and may be empty.
            is_listed: Whether a durable list of the caller contains the range, so that it was
                certainly acknowledged. If so, the range may end after `last_add_confirmed`.
            place: The place of this read among reads that share a limit of memory. If the consumer
                takes the entries of another range first, this read may wait for room.
            slices: The parts of the entries to read, with their checksums. The reader may return
                some entries completely. If this is None, complete entries are read.

        Raises:
            LocalProtocolError: The range is wrong, or ends after `last_add_confirmed`. Nothing was
                read.
            EntryNotFoundError: Every replica reported that it does not have the entry, even after
                the metadata was read again.
            EntryUnknownError: No replica that answered had the entry, but at least one replica did
                not answer; retriable.
            DigestMismatchError: Every replica that answered had a wrong digest.
            LedgerNotFoundError: The ledger was deleted.
        """
        self._check_open()
        check_type("first_entry_id", first_entry_id, int)
        check_optional("last_entry_id", last_entry_id, int)
        check_optional("place", place, ReadPlace)
        check_optional("slices", slices, SliceSource)
        if last_entry_id is None:
            last_entry_id = self._last_add_confirmed
            if 0 <= first_entry_id == last_entry_id + 1:
                return
        self._check_range(first_entry_id, last_entry_id, is_listed=is_listed)
        reading = _Range(self, first_entry_id, last_entry_id, place, slices)
        self._ranges.add(reading)
        try:
            reading.start()
            while batch := await reading.next_batch():
                confirmed = batch[-1].last_add_confirmed
                self._ends.note_header_lac(self.id, confirmed)
                self._raise_lac(confirmed)
                yield batch
            self._adopt(reading.reader.metadata)
        except EntryNotFoundError:
            self._ends.forget_from(self.id, reading.reader.next_entry_id)
            raise
        finally:
            reading.stop()
            self._ranges.discard(reading)
            if slices is not None:
                slices.note_given_up(reading.reader.slices_given_up)

    async def read_entry(self, entry_id: int) -> Entry:
        """Read one entry. The errors are those of `read_batches`."""
        check_type("entry_id", entry_id, int)
        async with contextlib.aclosing(self.read_batches(entry_id, entry_id)) as batches:
            async for batch in batches:
                return batch[0]
        raise InternalError(f"a read of entry {entry_id} returned no entry", ledger_id=self.id)

    async def aclose(self) -> None:
        """End the reads and followers of this handle. The ledger is not changed."""
        self._is_closed_here = True
        for follower in self._followers:
            follower.cancel()
        for reading in list(self._ranges):
            reading.fail(self._closed_error())

    def _adopt(self, metadata: LedgerMetadata) -> None:
        metadata = self._ends.newest(self.id, metadata)
        if self.metadata.is_closed and not metadata.is_closed:
            return  # CLOSED is final, so this metadata is from a server that lags
        if self._on_record is not None and metadata != self.metadata:
            self._on_record(metadata)
        self.metadata = metadata
        if metadata.is_closed:
            self._last_add_confirmed = metadata.last_entry_id

    def _raise_lac(self, last_add_confirmed: int) -> None:
        if not self.metadata.is_closed and last_add_confirmed > self._last_add_confirmed:
            self._last_add_confirmed = last_add_confirmed
            self._ends.rise(self.id, last_add_confirmed)

    def _check_range(self, first_entry_id: int, last_entry_id: int, *, is_listed: bool) -> None:
        if not 0 <= first_entry_id <= last_entry_id:
            raise LocalProtocolError(
                f"ledger {self.id}: entries {first_entry_id} to {last_entry_id} are not a range: "
                "the first entry must be at least 0, and not after the last entry",
                ledger_id=self.id,
            )
        if last_entry_id > self._last_add_confirmed and not is_listed:
            end = "closed at" if self.is_closed else "known to be acknowledged up to"
            raise LocalProtocolError(
                f"ledger {self.id} is {end} entry {self._last_add_confirmed}, but entry "
                f"{last_entry_id} lies beyond: "
                + ("read up to this end" if self.is_closed else "call refresh() and try again"),
                ledger_id=self.id,
                last_add_confirmed=self._last_add_confirmed,
            )

    def _check_open(self) -> None:
        if self._is_closed_here:
            raise self._closed_error()

    def _closed_error(self) -> LedgerLogError:
        return LocalProtocolError(
            f"the handle of ledger {self.id} is closed: open the ledger again", ledger_id=self.id
        )

    def __repr__(self) -> str:
        return f"ReadHandle(id={self.id}, last_add_confirmed={self.last_add_confirmed})"


class _Range:
    """Passes the entries of one range from a `LedgerReader` to the caller of `read_batches`."""

    def __init__(
        self,
        handle: ReadHandle,
        first_entry_id: int,
        last_entry_id: int,
        place: ReadPlace | None,
        slices: SliceSource | None,
    ) -> None:
        self.reader = LedgerReader(
            metadata=handle.metadata,
            first_entry_id=first_entry_id,
            last_entry_id=last_entry_id,
            settings=handle._services.settings.reader,  # noqa: SLF001 - a class of this module
            place=place,
            slices=slices,
        )
        self._place = place
        self._ledger_id = handle.id
        self._host = MachineHost(
            self.reader,
            services=handle._services,  # noqa: SLF001
            ledger=handle._bytes,  # noqa: SLF001
            on_indication=self._on_indication,
            on_crash=self.fail,
            on_settled=None if place is None else place.settled,
        )
        self._batches: deque[EntryBatch] = deque()
        self._is_over = False
        self._error: LedgerLogError | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._waits = 0
        stall_ms = handle._services.settings.stall_ms  # noqa: SLF001
        # The beginning of a wait counts as progress, because no request was pending while the
        # consumer was busy.
        self._watch = StallWatch(lambda: self._host.replies + self._waits, self._on_stall, stall_ms)

    def start(self) -> None:
        """Request the first entries."""
        self._watch.start()
        if self._place is not None:
            self._place.begin(lambda: self.reader.reserved_size_bytes, self._on_room)
        self._host.post(Start())

    def stop(self) -> None:
        """End the read. Entries that arrive after this call are dropped."""
        self._watch.stop()
        self._host.stop()
        if self._place is not None:
            self._place.end()

    def fail(self, error: LedgerLogError) -> None:
        """End the read. The consumer gets the received batches, and then `error`."""
        if not self._is_over:
            self._error = error
            self._is_over = True
            self._host.stop()
            self._wake()

    async def next_batch(self) -> Sequence[Entry]:
        """Return the next entries; an empty sequence at the end of the range."""
        if self._place is not None:
            self._place.handed_size_bytes = 0
        while not self._batches:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return ()
            self._waits += 1
            self._waiting = asyncio.get_running_loop().create_future()
            await forever(self._waiting, "the machine continues or ends, or `_on_stall` ends it")
        batch = self._batches.popleft()
        if self._place is not None:
            self._place.handed_size_bytes = batch.size_bytes
        self._host.post(EntriesTaken(batch[-1].entry_id))
        return batch

    def _on_room(self) -> None:
        reserved = self.reader.reserved_size_bytes
        self._host.post(RoomMade())
        if self.reader.reserved_size_bytes > reserved:
            self._waits += 1  # counts as progress: without room, no request was pending

    def _on_indication(self, indication: Indication) -> None:
        if isinstance(indication, EntriesRead):
            self._batches.append(EntryBatch.of(indication.entries))
        elif isinstance(indication, ReadFailed):
            self._error = error_from_read(self._ledger_id, indication)
            self._is_over = True
        else:
            assert isinstance(indication, RangeRead), indication
            self._is_over = True
        self._wake()

    def _on_stall(self) -> None:
        """End the read if its consumer waits, because no request was answered for a long time."""
        if self._place is not None and not self._place.has_turn:
            return  # perhaps there was no room for a request
        if self._waiting is not None and not self._waiting.done():
            entry_id = self.reader.next_entry_id
            self.fail(
                EntryUnknownError(
                    f"entry {entry_id} of ledger {self._ledger_id} was not read: no request was "
                    "answered for a long time; read the entry again",
                    ledger_id=self._ledger_id,
                    entry_id=entry_id,
                )
            )

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
