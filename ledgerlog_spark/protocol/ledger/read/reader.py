"""Reads a range of entries, and finds out whether each entry is present, absent or unknown.

`LedgerReader` never fences the ledger. If every bookie of the ensemble stores every entry (E ==
Qw), the reader requests batches of entries. A batch with fewer entries than requested does not show
that the other entries are absent (PROTOCOL.md#E4). After a bad digest, a refusal or a slow answer,
the reader sends the request to the next bookie (PROTOCOL.md#E3). If the caller needs only parts of
the entries, the reader requests slices (PROTOCOL.md#E13). The reader reports an entry absent only
after three steps. First, every bookie of the write set reports the entry absent. Second, the reader
reloads the metadata, and the ensemble is still the same. Third, every bookie reports the entry
absent again (PROTOCOL.md#E2). If the ensemble has changed, the steps are repeated with the new
ensemble. After `ReaderSettings.reloads_max` reloads, the entry is unknown.
"""

# ruff: noqa: SLF001 (the table below the class holds its methods)

from __future__ import annotations

from collections import deque
from enum import Enum

from ledgerlog_spark.model import NO_ENTRY, Code, DigestType, LedgerMetadata
from ledgerlog_spark.protocol.dispatch import Table, TableMachine, on, row
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.protocol.ledger.read.batch import BatchInFlight
from ledgerlog_spark.protocol.ledger.read.budget import EntriesToRequest, ReadBudget, ReaderSettings
from ledgerlog_spark.protocol.ledger.read.tally import ReplicaTally
from ledgerlog_spark.protocol.ledger.read_room import ReadPlace, RoomMade
from ledgerlog_spark.protocol.ledger.recover.reads import Verdict
from ledgerlog_spark.protocol.ledger.slices import SliceSource, last_fitting
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

DELIVERED_SIZE_BYTES_MAX = 4 << 20
"""Maximum number of payload bytes in one delivery, unless a single answer is larger. After the
application has taken a delivery, there is room for further requests."""


class ReaderPhase(Enum):
    """State of a reader."""

    NEW = "new"
    READING = "reading"
    RELOADING = "reloading the metadata"
    DONE = "done"


class LedgerReader(TableMachine[m.Event, m.Effect]):
    """Reads the entries `first_entry_id` to `last_entry_id` (both inclusive) of a ledger, in order.

    The last indication of a reader is `RangeRead` or `ReadFailed`.
    """

    def __init__(
        self,
        *,
        metadata: LedgerMetadata,
        first_entry_id: int,
        last_entry_id: int,
        settings: ReaderSettings | None = None,
        place: ReadPlace | None = None,
        slices: SliceSource | None = None,
    ) -> None:
        assert 0 <= first_entry_id <= last_entry_id, "a range has at least one entry"
        self.phase = ReaderPhase.NEW
        self.metadata = metadata  # reloaded before an entry is reported absent or unknown
        self.last_add_confirmed = NO_ENTRY  # the largest LAC in the headers of received entries
        self.next_entry_id = first_entry_id  # the first entry that was not delivered yet
        self.last_entry_id = last_entry_id
        self._settings = settings or ReaderSettings()
        self._numbers = RequestNumbers()
        self._taken = first_entry_id - 1
        self._to_request = EntriesToRequest(first_entry_id, last_entry_id)
        self._budget = ReadBudget(self._settings, metadata, place)
        self._ready: dict[int, EntryBatch] = {}
        self._untaken: deque[tuple[int, int]] = deque()
        # For each request: the batch, the index of the bookie, and whether the request is for
        # slices.
        self._batches: dict[int, tuple[BatchInFlight, int, bool]] = {}
        self._batches_begun = 0
        self._takes_batches = self._settings.batch_entries_max > 1
        # An HMAC proves that a writer with the password wrote an entry. A slice has only a CRC.
        self._slices = None if metadata.digest_type is DigestType.HMAC else slices
        self.slices_given_up = 0  # requests for slices after which whole entries were read
        self._tallies: dict[int, ReplicaTally] = {}
        self._reads: dict[int, tuple[ReplicaTally, int]] = {}
        self._failures: dict[str, int] = {}
        self._reload = 0
        self._reloads = 0
        self._is_confirmed_by_reload = False  # the ensemble was the same after the last reload
        # All bookies of this ensemble reported the entry absent before the last reload.
        self._is_absence_confirmed = False
        self._hedge_timer = 0
        self._busy_timer = 0
        self._busy_rounds = 0

    @property
    def reserved_size_bytes(self) -> int:
        """Bytes of received payload that was not taken, plus the maximum for pending requests."""
        out = 0 if self.phase is ReaderPhase.DONE else self._requests_out
        return self._budget.reserved_size_bytes(out)

    def _on_start(self, _event: m.Start) -> list[m.Effect]:
        self.phase = ReaderPhase.READING
        return [*self._fill(), self._arm_hedge()]

    def _fill(self) -> list[m.Effect]:
        """Request further entries, as far as the limits allow."""
        effects: list[m.Effect] = []
        if self._busy_timer:
            return effects
        while (first := self._to_request.first) is not None and self._may_request(first):
            last = self._last_of_batch(first)
            self._to_request.take(last)
            if last == first and not self._takes_slices:
                effects += self._request_one(first)
            else:
                effects.append(self._begin_batch(first, last))
        return effects

    @property
    def _takes_slices(self) -> bool:
        """Whether the next batch is a request for slices."""
        is_striped = self.metadata.quorum.is_striped
        return self._slices is not None and self._takes_batches and not is_striped

    def _may_request(self, entry_id: int) -> bool:
        if entry_id - 1 - self._taken >= self._settings.entries_ahead_max:
            return False
        if self._budget.has_room(len(self._batches), len(self._tallies), len(self._reads)):
            return True
        return entry_id == self.next_entry_id and self._may_exceed

    @property
    def _may_exceed(self) -> bool:
        """Whether the first entry may be requested although there is no room for it.

        The request is allowed when the reader holds no entries and awaits no answers, because
        nothing else can make room. So an entry that is larger than the limits can be read.
        """
        is_idle = not self._untaken and not self._requests_out
        return is_idle and self._budget.may_exceed

    @property
    def _requests_out(self) -> int:
        """Number of pending requests, including the request that follows a metadata reload."""
        is_requested_next = self.phase is ReaderPhase.RELOADING
        return len(self._batches) + len(self._reads) + is_requested_next

    def _last_of_batch(self, first_entry_id: int) -> int:
        """Return the last entry of a batch, which stays within one range and one fragment.

        With striping, a batch has one entry.
        """
        if self.metadata.quorum.is_striped or not self._takes_batches:
            return first_entry_id
        last = self._to_request.last_of_first_range
        for fragment in self.metadata.fragments:
            if first_entry_id < fragment.first_entry_id <= last:
                last = fragment.first_entry_id - 1
        if self._slices is not None:
            last = min(last, first_entry_id + self._settings.batch_entries_max - 1)
            size_bytes_max = self._settings.batch_size_bytes_max
            return last_fitting(self._slices, first_entry_id, last, size_bytes_max)
        return min(last, first_entry_id + self._budget.batch_entries - 1)

    def _begin_batch(
        self, first_entry_id: int, last_entry_id: int
    ) -> m.SendReadBatch | m.SendReadSlices:
        self._batches_begun += 1
        batch = BatchInFlight(first_entry_id, last_entry_id)
        ensemble = self.metadata.fragment_of(first_entry_id).ensemble
        rotation = self._batches_begun % len(ensemble)
        order = (*range(rotation, len(ensemble)), *range(rotation))
        batch.order = tuple(sorted(order, key=lambda i: self._failures.get(ensemble[i], 0)))
        return self._request_next_of(batch)

    def _request_next_of(self, batch: BatchInFlight) -> m.SendReadBatch | m.SendReadSlices:
        index = batch.order[batch.tried]
        batch.tried += 1
        return self._request_batch(batch, index)

    def _request_batch(
        self, batch: BatchInFlight, index: int
    ) -> m.SendReadBatch | m.SendReadSlices:
        number = self._numbers.next()
        self._batches[number] = (batch, index, self._slices is not None)
        batch.outstanding += 1
        batch.is_slow = False
        bookie_id = self.metadata.fragment_of(batch.next_entry_id).ensemble[index]
        first, last = batch.next_entry_id, batch.last_entry_id
        size_bytes_max = self._settings.batch_size_bytes_max
        if self._slices is not None:
            return m.SendReadSlices(
                number, bookie_id, index, first, last, size_bytes_max, self._slices
            )
        return m.SendReadBatch(number, bookie_id, index, first, last - first + 1, size_bytes_max)

    def _request_one(self, entry_id: int) -> list[m.Effect]:
        """Request one entry from the bookie of its write set with the fewest failures so far."""
        ensemble = self.metadata.fragment_of(entry_id).ensemble
        members = sorted(
            write_set(self.metadata.quorum, entry_id),
            key=lambda index: self._failures.get(ensemble[index], 0),
        )
        tally = ReplicaTally(entry_id, tuple((index, ensemble[index]) for index in members))
        self._tallies[entry_id] = tally
        return self._request_next(tally)

    def _request_next(self, tally: ReplicaTally) -> list[m.Effect]:
        if tally.requested == len(tally.members):
            return []
        index, bookie_id = tally.members[tally.requested]
        tally.requested += 1
        number = self._numbers.next()
        self._reads[number] = (tally, index)
        return [
            m.SendRead(number, bookie_id, index, tally.entry_id, fence=False, is_recovery=False)
        ]

    def _on_read_replied(self, event: m.ReadReplied) -> list[m.Effect]:
        tally, index = self._reads.pop(event.request)
        if self._tallies.get(tally.entry_id) is not tally:
            return self._advance()  # a late answer only makes room for another request
        tally.codes[index] = event.code
        if event.entry is not None:
            self._keep(EntryBatch.of((event.entry,)))
        else:
            self._note_failure(dict(tally.members)[index], event.code)
        effects = self._request_next(tally) if tally.verdict is Verdict.UNDECIDED else []
        return [*effects, *self._advance()]

    def _on_batch_replied(self, event: m.BatchReplied) -> list[m.Effect]:
        batch, index, is_sliced = self._batches.pop(event.request)
        batch.outstanding -= 1
        if event.entries and not batch.is_done:
            # Entries may have been received before, in an answer to a hedging request. Any bookie
            # may also send more entries than were requested.
            fresh = EntryBatch.of(event.entries).between(batch.next_entry_id, batch.last_entry_id)
            if fresh is not None:
                batch.next_entry_id = fresh.last_entry_id + 1
                self._keep(fresh)
        if event.code is Code.BAD_REQUEST:
            if is_sliced:
                self._slices = None  # a bookie does not support READ_SLICES
            else:
                self._takes_batches = False
        effects: list[m.Effect] = []
        if not batch.is_done:
            effects = self._go_on_with(batch, index, event, is_sliced=is_sliced)
        return [*effects, *self._advance()]

    def _go_on_with(
        self, batch: BatchInFlight, index: int, event: m.BatchReplied, *, is_sliced: bool
    ) -> list[m.Effect]:
        """Request the remaining entries of a batch.

        An answer without these entries does not show that they are absent.
        """
        has_entries = bool(event.entries) and event.code is Code.OK
        is_refused = is_sliced and self._slices is None and not has_entries
        if is_refused or has_entries:
            self.slices_given_up += is_refused
            self._put_back(batch, batch.next_entry_id)
            return []
        ensemble = self.metadata.fragment_of(batch.next_entry_id).ensemble
        self._note_failure(ensemble[index], event.code)
        if batch.outstanding:
            return []
        if batch.tried < len(batch.order) and self._takes_batches:
            return [self._request_next_of(batch)]
        self.slices_given_up += is_sliced
        self._slices = None  # the checksums of the slices may be wrong
        first = batch.next_entry_id
        self._put_back(batch, first + 1)
        return self._request_one(first)

    def _put_back(self, batch: BatchInFlight, first_entry_id: int) -> None:
        """Request the remaining entries of a batch later, when there is room.

        Ignore further answers to the batch.
        """
        self._to_request.put_back(first_entry_id, batch.last_entry_id)
        batch.next_entry_id = batch.last_entry_id + 1

    def _keep(self, entries: EntryBatch) -> None:
        """Keep received entries until their delivery.

        At any time, each entry id is in one batch or in one tally.
        """
        first = entries.first_entry_id
        assert first >= self.next_entry_id, "an entry came twice"
        assert first not in self._ready, "an entry came twice"
        confirmed = max(entries.last_adds_confirmed)
        self.last_add_confirmed = max(self.last_add_confirmed, confirmed)
        self._tallies.pop(first, None)
        self._ready[first] = entries
        self._budget.keep(entries)

    def _note_failure(self, bookie_id: str, code: Code) -> None:
        if not code.is_absent:
            self._failures[bookie_id] = self._failures.get(bookie_id, 0) + 1

    def _advance(self) -> list[m.Effect]:
        """Deliver the ready entries in order, then handle the first entry that is not ready."""
        effects = self._deliver()
        if self.next_entry_id > self.last_entry_id:
            self.phase = ReaderPhase.DONE
            return [*effects, m.RangeRead(self.metadata)]
        if self.phase is ReaderPhase.READING:
            # The first entry has priority, so its next request gets the room that its last request
            # had.
            effects += self._see_about_the_head()
        if self.phase is ReaderPhase.READING:
            effects += self._fill()
        return effects

    def _deliver(self) -> list[m.Effect]:
        """Deliver the ready entries that follow the last delivered entry, a few MiB at a time."""
        effects: list[m.Effect] = []
        ready: list[EntryBatch] = []
        size_bytes = 0
        while (following := self._ready.pop(self.next_entry_id, None)) is not None:
            if ready and size_bytes + following.size_bytes > DELIVERED_SIZE_BYTES_MAX:
                effects.append(self._delivered(ready))
                ready, size_bytes = [], 0
            ready.append(following)
            size_bytes += following.size_bytes
            self.next_entry_id = following.last_entry_id + 1
        if ready:
            self._reloads = self._busy_rounds = 0
            self._is_confirmed_by_reload = self._is_absence_confirmed = False
            effects.append(self._delivered(ready))
        return effects

    def _delivered(self, ready: list[EntryBatch]) -> m.EntriesRead:
        entries = EntryBatch.joined(ready)
        self._untaken.append((entries.last_entry_id, entries.size_bytes))
        return m.EntriesRead(entries)

    def _see_about_the_head(self) -> list[m.Effect]:
        """Reload the metadata before the next entry is reported absent or unknown."""
        tally = self._tallies.get(self.next_entry_id)
        if tally is None or not tally.is_hopeless or self._busy_timer:
            return []
        if tally.is_busy and (timer := self._wait_for_busy()) is not None:
            return [timer]
        if (failure := self._final_failure(tally)) is not None:
            return self._fail(failure)
        if not self._may_exceed and not self._budget.has_room_to_hedge(self._requests_out):
            return []  # an answer, `EntriesTaken` or `RoomMade` must make room first
        self.phase = ReaderPhase.RELOADING
        self._reloads += 1
        self._reload = self._numbers.next()
        return [m.LoadMetadata(self._reload, sync_first=True)]

    def _final_failure(self, tally: ReplicaTally) -> m.Failure | None:
        """Return the failure that these answers prove; None if the metadata must be reloaded."""
        is_last = self._reloads == self._settings.reloads_max
        if tally.verdict is not Verdict.ABSENT:
            return tally.failure if is_last or self._is_confirmed_by_reload else None
        if self._is_absence_confirmed:
            return m.Failure.ENTRY_ABSENT
        return m.Failure.ENTRY_UNKNOWN if is_last else None

    def _wait_for_busy(self) -> m.StartTimer | None:
        """Start a pause without requests. Return None after the maximum number of pauses."""
        self._busy_rounds += 1
        delay_ms = self._settings.overload.delay_ms(self._busy_rounds)
        if delay_ms is None:
            return None
        self._busy_timer = self._numbers.next()
        return m.StartTimer(self._busy_timer, delay_ms)

    def _on_pause_over(self) -> list[m.Effect]:
        """Repeat the requests that busy bookies refused."""
        self._busy_timer = 0
        for entry_id, tally in tuple(self._tallies.items()):
            if tally.is_hopeless and tally.is_busy:
                del self._tallies[entry_id]
                self._to_request.put_back(entry_id, entry_id)
        return self._advance() if self.phase is ReaderPhase.READING else []

    def _on_metadata_loaded(self, event: m.MetadataLoaded) -> list[m.Effect]:
        assert event.request == self._reload
        self.phase = ReaderPhase.READING
        if event.outcome is m.MetadataOutcome.GONE:
            return self._fail(m.Failure.NOT_FOUND)
        if event.outcome is not m.MetadataOutcome.OK or event.versioned is None:
            return self._fail(m.Failure.ENTRY_UNKNOWN)
        head = self.next_entry_id
        loaded = event.versioned.value
        before = self.metadata.fragment_of(head).ensemble
        self._is_confirmed_by_reload = loaded.fragment_of(head).ensemble == before
        old, self.metadata = self.metadata, loaded
        if head not in self._tallies:
            return self._advance()
        was_absent = self._tallies[head].verdict is Verdict.ABSENT
        self._is_absence_confirmed = was_absent and self._is_confirmed_by_reload
        for entry_id, tally in tuple(self._tallies.items()):
            has_moved = loaded.fragment_of(entry_id).ensemble != old.fragment_of(entry_id).ensemble
            if has_moved and entry_id != head and tally.is_hopeless:
                del self._tallies[entry_id]
                self._to_request.put_back(entry_id, entry_id)
        return [*self._request_one(head), *self._fill()]

    def _on_taken(self, event: m.EntriesTaken) -> list[m.Effect]:
        assert self._taken <= event.last_entry_id < self.next_entry_id
        self._taken = event.last_entry_id
        while self._untaken and self._untaken[0][0] <= self._taken:
            self._budget.take(self._untaken.popleft()[1])
        return self._advance() if self.phase is ReaderPhase.READING else []

    def _on_room_made(self, _event: RoomMade) -> list[m.Effect]:
        return self._advance()

    def _fail(self, failure: m.Failure) -> list[m.Effect]:
        self.phase = ReaderPhase.DONE
        tally = self._tallies.get(self.next_entry_id)
        codes = [] if tally is None else [(name, tally.codes.get(i)) for i, name in tally.members]
        return [m.ReadFailed(failure, self.next_entry_id, tuple(codes))]

    def _arm_hedge(self) -> m.StartTimer:
        self._hedge_timer = self._numbers.next()
        return m.StartTimer(self._hedge_timer, self._settings.hedge_delay_ms)

    def _on_timer_fired(self, event: m.TimerFired) -> list[m.Effect]:
        """Try one more bookie for requests that were already pending when the timer last fired."""
        if event.request == self._busy_timer:
            return self._on_pause_over()
        assert event.request == self._hedge_timer
        effects: list[m.Effect] = []
        for tally in self._tallies.values():
            if tally.verdict is Verdict.UNDECIDED:
                if tally.is_slow and self._budget.has_room_to_hedge(self._requests_out):
                    effects += self._request_next(tally)
                tally.is_slow = True
        for batch in dict.fromkeys(batch for batch, *_ in self._batches.values()):
            is_late = batch.is_slow and not batch.is_done and batch.tried < len(batch.order)
            if is_late and self._budget.has_room_to_hedge(self._requests_out):
                effects.append(self._request_next_of(batch))
            batch.is_slow = True
        return [*effects, self._arm_hedge()]


_ANSWERS = (
    on(m.ReadReplied, LedgerReader._on_read_replied),
    on(m.BatchReplied, LedgerReader._on_batch_replied),
    on(m.TimerFired, LedgerReader._on_timer_fired),
    on(m.EntriesTaken, LedgerReader._on_taken),
)

READER_TABLE: Table[LedgerReader, m.Effect] = {
    ReaderPhase.NEW: row(on(m.Start, LedgerReader._on_start), ignored=(RoomMade,)),
    ReaderPhase.READING: row(*_ANSWERS, on(RoomMade, LedgerReader._on_room_made)),
    ReaderPhase.RELOADING: row(
        *_ANSWERS, on(m.MetadataLoaded, LedgerReader._on_metadata_loaded), ignored=(RoomMade,)
    ),
    ReaderPhase.DONE: row(
        on(m.EntriesTaken, LedgerReader._on_taken),
        ignored=(m.ReadReplied, m.BatchReplied, m.TimerFired, m.MetadataLoaded, RoomMade),
    ),
}
"""The handler of each event in each phase of a reader."""
LedgerReader.table = READER_TABLE
