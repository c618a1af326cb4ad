"""The held and requested bytes of a reader stay within its limit, for entries of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from ledgerlog_spark.model import (
    FRAME_SIZE_BYTES_MAX,
    Code,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.read.budget import ReaderSettings
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from ledgerlog_spark.protocol.ledger.read_room import ReadPlace, RoomMade

LARGE = bytes(5 << 20)
SMALL = bytes(100)
MIB = 1 << 20
BOUND = 64 * MIB

PLAIN = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),))
STRIPED = LedgerMetadata(Quorum(4, 2, 2), (Fragment(0, ("b0", "b1", "b2", "b3")),))
CHANGED = LedgerMetadata(
    Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")), Fragment(150, ("b0", "b1", "b3")))
)

SIZES: dict[str, Callable[[int], bytes]] = {
    "large": lambda _: LARGE,
    "small, then large": lambda entry_id: LARGE if entry_id >= 2_000 else SMALL,
    "mixed": lambda entry_id: LARGE if entry_id % 7 == 0 else SMALL,
    "small": lambda _: SMALL,
}


class Reading:
    """A reader, its open requests and its application, with all bytes counted.

    Attributes:
        most: Maximum of the held and requested bytes, where a request counts the size of its
            answer.
        worst: The same, where a request counts the maximum size of its answer.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        last: int,
        size: str,
        seed: int = 0,
        place: ReadPlace | None = None,
    ) -> None:
        self.random = Random(seed)
        self.payload_of = SIZES[size]
        self.takes_batches = True
        self.faults = 0.0
        self.takes = 0.3
        self.ticks = 0.02
        self.metadata = metadata
        self.last = last
        self.reader = LedgerReader(
            metadata=metadata, first_entry_id=0, last_entry_id=last, place=place
        )
        self.out: dict[int, m.SendRead | m.SendReadBatch] = {}
        self.coming: dict[int, int] = {}  # payload bytes of the answers to requests in `out`
        self.timers: list[int] = []
        self.untaken: list[tuple[int, int]] = []
        self.next_entry_id = 0
        self.end: m.Effect | None = None
        self.most = self.worst = 0
        if place is not None:

            def on_room() -> None:
                self.perform(self.reader.handle(RoomMade()))
                place.settled()

            place.begin(lambda: self.reader.reserved_size_bytes, on_room)
        self.perform(self.reader.handle(m.Start()))

    def perform(self, effects: list[m.Effect]) -> None:
        for effect in effects:
            match effect:
                case m.SendRead(request) | m.SendReadBatch(request):
                    self.out[request] = effect
                    self.coming[request] = self.size_of(effect)
                case m.StartTimer(request):
                    self.timers.append(request)
                case m.EntriesRead(entries):
                    assert entries[0].entry_id == self.next_entry_id
                    self.next_entry_id = entries[-1].entry_id + 1
                    size = sum(len(entry.payload) for entry in entries)
                    self.untaken.append((entries[-1].entry_id, size))
                case m.LoadMetadata(request):
                    loaded = Versioned(self.metadata, Version(1, 1))
                    found = m.MetadataLoaded(request, m.MetadataOutcome.OK, loaded)
                    self.perform(self.reader.handle(found))
                case _:
                    self.end = effect
        held = self.held
        self.most = max(self.most, held + sum(self.coming.values()))
        self.worst = max(self.worst, held + len(self.out) * FRAME_SIZE_BYTES_MAX)

    @property
    def held(self) -> int:
        """Payload bytes in the reader, and bytes delivered that the application has not taken."""
        ready = sum(len(one) for batch in self.reader._ready.values() for one in batch.payloads)
        return ready + sum(size for _, size in self.untaken)

    def entries_of(self, effect: m.SendRead | m.SendReadBatch) -> list[m.StoredEntry]:
        if isinstance(effect, m.SendRead):
            return [self.stored(effect.entry_id)]
        entries: list[m.StoredEntry] = []
        size = 0
        for entry_id in range(effect.first_entry_id, effect.first_entry_id + effect.count_max):
            size += len(self.payload_of(entry_id))
            if entry_id > self.last or (entries and size > effect.size_bytes_max):
                break
            entries.append(self.stored(entry_id))
        return entries

    def size_of(self, effect: m.SendRead | m.SendReadBatch) -> int:
        return sum(len(entry.payload) for entry in self.entries_of(effect))

    def stored(self, entry_id: int) -> m.StoredEntry:
        return m.StoredEntry(entry_id, entry_id - 1, 0, self.payload_of(entry_id))

    def answer(self, request: int) -> None:
        effect = self.out.pop(request)
        del self.coming[request]
        code = Code.OK
        if isinstance(effect, m.SendReadBatch) and not self.takes_batches:
            code = Code.BAD_REQUEST
        elif self.random.random() < self.faults:
            code = Code.TIMEOUT
        entries = self.entries_of(effect) if code is Code.OK else []
        event: m.Event
        if isinstance(effect, m.SendRead):
            event = m.ReadReplied(request, code, entries[0] if entries else None)
        else:
            event = m.BatchReplied(request, code, entries)
        self.perform(self.reader.handle(event))

    def answer_all(self) -> None:
        """Answer all requests that the reader sends while the application takes nothing."""
        while self.out:
            self.answer(self.random.choice(list(self.out)))

    def tick(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            self.perform(self.reader.handle(m.TimerFired(timer)))

    def take_one(self) -> None:
        last_entry_id, _ = self.untaken.pop(0)
        self.perform(self.reader.handle(m.EntriesTaken(last_entry_id)))

    def run(self) -> m.Effect:
        for _ in range(100_000):
            if self.end is not None:
                return self.end
            assert self.untaken or self.out, "the reader waits for nothing"
            if self.untaken and (not self.out or self.random.random() < self.takes):
                self.take_one()
            elif self.out:
                self.answer(self.random.choice(list(self.out)))
            if self.random.random() < self.ticks:
                self.tick()
        raise AssertionError("the reader does not end")


def closed(metadata: LedgerMetadata, last: int, length: int) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.CLOSED, last_entry_id=last, length=length)


@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
@pytest.mark.parametrize("size", SIZES)
def test_a_reader_whose_application_takes_nothing_holds_no_more_than_its_bound(
    metadata: LedgerMetadata, size: str
) -> None:
    reading = Reading(metadata, 2_999, size)
    reading.answer_all()
    assert reading.worst <= BOUND
    assert reading.next_entry_id > 0
    assert reading.end is None or size == "small"


@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
def test_one_batch_taken_makes_room_for_as_much_and_no_more(metadata: LedgerMetadata) -> None:
    reading = Reading(metadata, 199, "large")
    reading.answer_all()
    held = reading.held
    reading.take_one()
    reading.answer_all()
    assert 0 < reading.held <= held
    assert reading.most <= BOUND
    assert reading.next_entry_id < 20


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("metadata", [PLAIN, STRIPED, CHANGED], ids=["plain", "striped", "changed"])
@pytest.mark.parametrize("size", ["large", "small, then large", "mixed"])
def test_every_entry_comes_within_the_bound_whatever_fails(
    metadata: LedgerMetadata, size: str, seed: int
) -> None:
    last = 2_100 if size == "small, then large" else 299
    reading = Reading(metadata, last, size, seed)
    reading.faults = 0.1
    assert isinstance(reading.run(), m.RangeRead | m.ReadFailed)
    assert reading.worst <= BOUND
    if isinstance(reading.end, m.RangeRead):
        assert reading.next_entry_id == last + 1
    else:
        assert isinstance(reading.end, m.ReadFailed)
        assert set(dict(reading.end.codes).values()) == {Code.TIMEOUT}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
def test_the_record_is_loaded_again_within_the_bound_where_nothing_is_taken(
    metadata: LedgerMetadata, seed: int
) -> None:
    """Hedged reads for slow bookies have filled the memory when the first entry has failed."""
    reading = Reading(metadata, 60, "large", seed)
    reading.faults, reading.takes, reading.ticks = 0.5, 0.02, 0.8
    assert isinstance(reading.run(), m.RangeRead | m.ReadFailed)
    assert reading.worst <= BOUND


@pytest.mark.parametrize("size", ["large", "mixed"])
def test_entries_of_refused_batches_are_not_all_requested_at_once(
    size: str,
) -> None:
    reading = Reading(PLAIN, 999, size)
    reading.takes_batches = False
    assert isinstance(reading.run(), m.RangeRead)
    assert reading.worst <= BOUND


def test_batches_cut_short_by_large_entries_are_not_read_to_their_ends_unasked() -> None:
    """Each of the first six batches requests 64 entries, which have 320 MiB here."""
    reading = Reading(PLAIN, 999, "large")
    reading.answer_all()
    assert 0 < reading.held <= BOUND


@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
def test_help_for_slow_bookies_stays_within_the_bound(metadata: LedgerMetadata) -> None:
    reading = Reading(metadata, 299, "large")
    first = dict(reading.out)
    for _ in range(8):
        reading.tick()
    assert len(reading.out) > len(first)
    assert reading.worst <= BOUND


def test_late_answers_of_a_slow_bookie_make_room_though_nobody_needs_them() -> None:
    reading = Reading(STRIPED, 60, "large")
    for _ in range(1_000):
        if reading.end is not None:
            break
        quick = [number for number, one in reading.out.items() if one.bookie_id != "b0"]
        late = [number for number in reading.out if number not in quick]
        if quick:
            reading.answer(quick[0])
        elif reading.untaken:
            reading.take_one()
        elif any(
            reading.entries_of(reading.out[n])[0].entry_id >= reading.next_entry_id for n in late
        ):
            reading.tick()
        else:
            assert late, "the reader waits for nothing"
            reading.answer(late[0])
    assert isinstance(reading.end, m.RangeRead)


def test_an_entry_larger_than_every_limit_still_passes() -> None:
    settings = ReaderSettings(size_bytes_ahead_max=1_000, size_bytes_max=2_000)
    reading = Reading(PLAIN, 20, "large")
    reading.reader = LedgerReader(
        metadata=PLAIN, first_entry_id=0, last_entry_id=20, settings=settings
    )
    reading.out.clear()
    reading.perform(reading.reader.handle(m.Start()))
    assert len(reading.out) == 1
    assert isinstance(reading.run(), m.RangeRead)
    assert reading.next_entry_id == 21


def test_a_large_answer_is_delivered_in_parts_that_make_room_when_they_are_taken() -> None:
    metadata = closed(PLAIN, 9_999, 10_000 * 100_000)
    reading = Reading(metadata, 9_999, "small")
    reading.payload_of = lambda _: bytes(100_000)
    head = min(reading.out)
    for request in sorted(reading.out)[1:]:
        reading.answer(request)
    while len(reading.out) > 1:
        reading.answer(max(reading.out))
    assert not reading.untaken
    reading.answer(head)
    assert len(reading.untaken) > 1
    assert all(size <= 4 * MIB for _, size in reading.untaken)


def test_a_reader_of_small_entries_reads_as_far_ahead_as_before_one_large_entry() -> None:
    reading = Reading(STRIPED, 9_999, "small")
    reading.payload_of = lambda entry_id: LARGE if entry_id == 50 else SMALL
    most = len(reading.out)
    while reading.next_entry_id < 400:
        if reading.untaken:
            reading.take_one()
        else:
            reading.answer(min(reading.out))
    assert len(reading.out) == most
