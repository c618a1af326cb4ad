"""Bookies that answer BUSY slow a client down. They are not replaced, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgerlog_spark.model import (
    Code,
    Fragment,
    LedgerMetadata,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.overload import ALONE_ROUNDS, OVERLOAD, BusyBookies
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

ENSEMBLE = ("b0", "b1", "b2")
RECORD = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ENSEMBLE),))
Answer = Callable[[m.SendAdd, int], Code]


class Writing:
    """A writer whose timers fire in the order of their times. All answers come immediately.

    Attributes:
        now_ms: The time after all waits so far.
        changes: The ensembles that were written.
        listings: Number of reads of the list of bookies.
        sent: The runs that were sent to each bookie.
    """

    def __init__(
        self,
        answer: Answer,
        candidates: tuple[str, ...] = ENSEMBLE,
        settings: WriterSettings | None = None,
    ) -> None:
        self.answer = answer
        self.candidates = candidates
        self.machine = LedgerWriter(
            ledger_id=1, created=Versioned(RECORD, Version(1, 0)), settings=settings
        )
        self.now_ms = 0
        self.timers: list[tuple[int, int]] = []
        self.confirmed = -1
        self.changes: list[tuple[str, ...]] = []
        self.listings = 0
        self.sent: dict[str, int] = {}
        self.end: m.LedgerFailed | None = None

    def append(self, runs: int = 1) -> None:
        for _ in range(runs):
            self.perform(self.machine.handle(m.AddRequested((b"x",))))

    def perform(self, effects: list[m.Effect]) -> None:
        for effect in effects:
            match effect:
                case m.SendAdd(request, bookie_id):
                    self.sent[bookie_id] = self.sent.get(bookie_id, 0) + 1
                    code = self.answer(effect, self.now_ms)
                    self.perform(self.machine.handle(m.AddReplied(request, code)))
                case m.StartTimer(request, delay_ms):
                    self.timers.append((self.now_ms + delay_ms, request))
                case m.ListBookies(request):
                    self.listings += 1
                    listed = m.BookiesListed(request, self.candidates)
                    self.perform(self.machine.handle(listed))
                case m.CasMetadata(request, metadata, version):
                    self.changes.append(metadata.last_fragment.ensemble)
                    stored = Versioned(metadata, Version(1, version.number + 1))
                    written = m.MetadataWritten(request, m.MetadataOutcome.OK, stored)
                    self.perform(self.machine.handle(written))
                case m.RunConfirmed(_, last):
                    self.confirmed = last
                case m.LedgerFailed():
                    self.end = effect

    def wait(self, until_ms: int = 10**9) -> None:
        """Let time pass until the writer ends or has nothing to wait for."""
        while self.timers and self.end is None:
            due = min(self.timers)
            if due[0] > until_ms:
                self.now_ms = until_ms
                return
            self.timers.remove(due)
            self.now_ms = due[0]
            self.perform(self.machine.handle(m.TimerFired(due[1])))


def busy_until(end_ms: int, *bookies: str) -> Answer:
    return lambda send, now_ms: (
        Code.BUSY if send.bookie_id in bookies and now_ms < end_ms else Code.OK
    )


def test_a_cluster_that_is_too_busy_for_seconds_changes_no_ensemble_and_stores_all() -> None:
    writing = Writing(busy_until(20_000, *ENSEMBLE), candidates=(*ENSEMBLE, "b3", "b4"))
    writing.append(100)
    assert writing.confirmed == -1
    writing.wait()
    assert writing.end is None
    assert writing.confirmed == 99
    assert writing.machine._pipeline.entries_in_flight == 0
    assert (writing.changes, writing.listings) == ([], 0)
    # Each wait is longer than the last. Only one missing run is sent at a time, as a probe.
    assert writing.sent["b0"] < 100 * 30


def test_a_cluster_that_stays_too_busy_ends_the_writer_with_that_reason() -> None:
    writing = Writing(busy_until(10**9, *ENSEMBLE), candidates=(*ENSEMBLE, "b3"))
    writing.append()
    writing.wait()
    assert writing.end is not None
    assert writing.end.failure is m.Failure.OVERLOADED
    assert not writing.end.is_definite
    assert writing.end.bookie_ids == ENSEMBLE
    assert writing.end.first_unknown_entry_id == 0
    assert 30_000 < writing.now_ms < 120_000
    assert writing.changes == []


def test_the_others_confirm_while_one_bookie_is_busy() -> None:
    writing = Writing(busy_until(3_000, "b1"), candidates=(*ENSEMBLE, "b3"))
    writing.append(5)
    assert writing.confirmed == 4
    assert writing.machine._pipeline.entries_in_flight == 5
    writing.wait()
    assert writing.machine._pipeline.entries_in_flight == 0
    assert (writing.changes, writing.listings) == ([], 0)
    assert 3_000 <= writing.now_ms < 5_000


def test_a_bookie_that_alone_stays_busy_is_replaced_after_a_while() -> None:
    writing = Writing(busy_until(10**9, "b1"), candidates=(*ENSEMBLE, "b3"))
    writing.append(3)
    writing.wait()
    assert writing.changes == [("b0", "b3", "b2")]
    assert writing.end is None
    assert writing.machine._pipeline.entries_in_flight == 0
    assert 5_000 < writing.now_ms < 20_000


def test_without_another_bookie_a_busy_one_is_waited_for_and_not_for_ever() -> None:
    writing = Writing(busy_until(40_000, "b1"))
    writing.append(3)
    writing.wait()
    assert writing.end is None
    assert writing.machine._pipeline.entries_in_flight == 0
    assert 0 < writing.listings <= 40_000 // 10_000
    stays = Writing(busy_until(10**9, "b1"))
    stays.append(3)
    stays.wait()
    assert stays.end is not None
    assert (stays.end.failure, stays.end.bookie_ids) == (m.Failure.OVERLOADED, ("b1",))
    assert stays.end.first_unknown_entry_id is None
    assert stays.now_ms < 120_000


def test_a_writer_that_may_change_no_ensemble_waits_for_a_busy_bookie_as_long() -> None:
    fixed = WriterSettings(ensemble_changes_max=0)
    writing = Writing(busy_until(40_000, "b1"), (*ENSEMBLE, "b3"), fixed)
    writing.append(3)
    writing.wait()
    assert writing.end is None
    assert writing.machine._pipeline.entries_in_flight == 0
    assert (writing.changes, writing.listings) == ([], 0)
    stays = Writing(busy_until(10**9, "b1"), (*ENSEMBLE, "b3"), fixed)
    stays.append(3)
    stays.wait()
    assert stays.end is not None
    assert (stays.end.failure, stays.end.bookie_ids) == (m.Failure.OVERLOADED, ("b1",))
    assert 30_000 < stays.now_ms < 120_000


def test_a_busy_bookie_that_fails_is_replaced_as_any_other() -> None:
    def answer(send: m.SendAdd, now_ms: int) -> Code:
        if send.bookie_id != "b1":
            return Code.OK
        return Code.BUSY if now_ms < 200 else Code.UNAVAILABLE

    writing = Writing(answer, candidates=(*ENSEMBLE, "b3"))
    writing.append(2)
    writing.wait()
    assert writing.changes == [("b0", "b3", "b2")]
    assert writing.now_ms < 1_000


def test_a_busy_bookie_that_dies_without_a_replacement_is_absent_like_any_other() -> None:
    def answer(send: m.SendAdd, now_ms: int) -> Code:
        if send.bookie_id != "b1":
            return Code.OK
        return Code.BUSY if now_ms < 200 else Code.TIMEOUT

    writing = Writing(answer)
    writing.append(2)
    writing.wait()
    assert writing.end is None
    assert writing.changes == [ENSEMBLE], "it is listed, so it is tried again in a new fragment"
    assert writing.machine._pipeline.entries_in_flight == 0


def test_a_bookie_that_takes_a_part_each_time_is_sent_the_rest_ever_more_slowly() -> None:
    taken = 0

    def answer(send: m.SendAdd, now_ms: int) -> Code:
        nonlocal taken
        if send.bookie_id != "b1":
            return Code.OK
        taken += 1
        return Code.OK if taken % 4 == 0 else Code.BUSY

    writing = Writing(answer)
    writing.append(200)
    writing.wait()
    assert writing.end is None
    assert writing.machine._pipeline.entries_in_flight == 0
    assert writing.changes == []


def test_another_failure_of_a_bookie_that_is_waited_for_leaves_it_to_the_wait() -> None:
    writing = Writing(lambda _send, _now_ms: Code.OK)
    sends = writing.machine.handle(m.AddRequested((b"x",)))
    sends += writing.machine.handle(m.AddRequested((b"y",)))
    answers = {0: Code.BUSY, 1: Code.TIMEOUT}
    for number, send in enumerate(one for one in sends if isinstance(one, m.SendAdd)):
        code = answers.get(number // 3, Code.OK) if send.bookie_id == "b1" else Code.OK
        writing.perform(writing.machine.handle(m.AddReplied(send.request, code)))
    assert writing.confirmed == 1
    assert writing.machine._pipeline.entries_in_flight == 2
    writing.wait()
    assert writing.machine._pipeline.entries_in_flight == 0
    assert writing.listings == 0


def test_waits_grow_and_shrink_again_when_everything_was_stored() -> None:
    busy = BusyBookies(RequestNumbers())
    delays = []
    for _ in range(8):
        busy.refused(1)
        timer = busy.wait(1)
        assert timer is not None
        delays.append(timer.delay_ms)
        assert busy.fired(timer.request) == 1
        busy.resumed(1, 2)
        busy.stored(1)
    assert delays == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    busy.stored(1)
    assert not busy.waits
    busy.refused(1)
    timer = busy.wait(1)
    assert timer is not None
    assert timer.delay_ms == 20


def test_the_bounds_are_those_that_the_documentation_has() -> None:
    waits = [OVERLOAD.delay_ms(attempt) for attempt in range(1, OVERLOAD.attempts_max)]
    assert 50_000 < sum(filter(None, waits)) < 65_000
    alone = [OVERLOAD.delay_ms(attempt) or 0 for attempt in range(1, ALONE_ROUNDS)]
    assert 9_000 < sum(alone) < 12_000


class Reads:
    """A reader's bookies. All requests are answered immediately, and timers fire in order."""

    def __init__(self, metadata: LedgerMetadata, last: int, busy_ms: int) -> None:
        self.machine = LedgerReader(metadata=metadata, first_entry_id=0, last_entry_id=last)
        self.busy_ms = busy_ms
        self.now_ms = 0
        self.asked = 0
        self.delivered: list[int] = []
        self.timers: list[tuple[int, int]] = []
        self.end: m.Effect | None = None

    def run(self) -> m.Effect:
        self.perform(self.machine.handle(m.Start()))
        while self.end is None:
            due = min(self.timers)
            self.timers.remove(due)
            self.now_ms = due[0]
            self.perform(self.machine.handle(m.TimerFired(due[1])))
        return self.end

    def perform(self, effects: list[m.Effect]) -> None:
        for effect in effects:
            is_busy = self.now_ms < self.busy_ms
            code = Code.BUSY if is_busy else Code.OK
            match effect:
                case m.SendRead(request, _, _, entry_id):
                    self.asked += 1
                    found = None if is_busy else m.StoredEntry(entry_id, entry_id - 1, 0, b"x")
                    self.perform(self.machine.handle(m.ReadReplied(request, code, found)))
                case m.SendReadBatch(request, _, _, first, count):
                    self.asked += 1
                    entries = [
                        m.StoredEntry(i, i - 1, 0, b"x") for i in range(first, first + count)
                    ]
                    replied = m.BatchReplied(request, code, () if is_busy else entries)
                    self.perform(self.machine.handle(replied))
                case m.StartTimer(request, delay_ms):
                    self.timers.append((self.now_ms + delay_ms, request))
                case m.EntriesRead(entries):
                    self.delivered += [entry.entry_id for entry in entries]
                    self.perform(self.machine.handle(m.EntriesTaken(self.delivered[-1])))
                case m.LoadMetadata(request):
                    loaded = Versioned(RECORD, Version(1, 1))
                    replied_too = m.MetadataLoaded(request, m.MetadataOutcome.OK, loaded)
                    self.perform(self.machine.handle(replied_too))
                case _:
                    self.end = effect


STRIPED = LedgerMetadata(Quorum(3, 2, 2), (Fragment(0, ENSEMBLE),))


@pytest.mark.parametrize("metadata", [RECORD, STRIPED], ids=["plain", "striped"])
def test_a_reader_waits_for_busy_bookies_and_reads_on(metadata: LedgerMetadata) -> None:
    reads = Reads(metadata, 499, busy_ms=8_000)
    assert isinstance(reads.run(), m.RangeRead)
    assert reads.delivered == list(range(500))
    assert 8_000 <= reads.now_ms < 10_000
    # Pauses, not a loop: a few requests for each of at most 20 pauses.
    assert reads.asked < 20 * 40 + 1_500


@pytest.mark.parametrize("metadata", [RECORD, STRIPED], ids=["plain", "striped"])
def test_a_reader_whose_bookies_stay_busy_ends_with_what_they_answered(
    metadata: LedgerMetadata,
) -> None:
    reads = Reads(metadata, 499, busy_ms=10**9)
    end = reads.run()
    assert isinstance(end, m.ReadFailed)
    assert end.failure is m.Failure.ENTRY_UNKNOWN
    assert {code for _, code in end.codes} == {Code.BUSY}
    assert 10_000 < reads.now_ms < 30_000


def recovered(busy_answers: int, candidates: tuple[str, ...] = ENSEMBLE) -> tuple[m.Effect, int]:
    """The end of a recovery of one entry if the first adds to each bookie are answered BUSY."""
    machine = LedgerRecovery(ledger_id=1, password=b"")
    left = dict.fromkeys((*ENSEMBLE, "b3"), busy_answers)
    listings = 0
    record = Versioned(RECORD, Version(1, 0))
    timers: list[tuple[int, int]] = []
    now_ms = 0
    effects: list[m.Effect] = machine.handle(m.Start())
    while True:
        following: list[m.Effect] = []
        for effect in effects:
            event: m.Event | None = None
            match effect:
                case m.LoadMetadata(request):
                    event = m.MetadataLoaded(request, m.MetadataOutcome.OK, record)
                case m.CasMetadata(request, metadata, version):
                    record = Versioned(metadata, Version(1, version.number + 1))
                    event = m.MetadataWritten(request, m.MetadataOutcome.OK, record)
                case m.SendRead(request, _, _, entry_id):
                    found = m.StoredEntry(0, -1, 1, b"x") if entry_id <= 0 else None
                    event = m.ReadReplied(request, Code.OK if found else Code.NO_ENTRY, found)
                case m.SendReadBatch(request, _, _, first):
                    if first:
                        event = m.BatchReplied(request, Code.NO_ENTRY, ())
                    else:
                        entries = (m.StoredEntry(0, -1, 1, b"x"),)
                        event = m.BatchReplied(request, Code.OK, entries)
                case m.SendAdd(request, bookie_id):
                    left[bookie_id] -= 1
                    event = m.AddReplied(request, Code.BUSY if left[bookie_id] >= 0 else Code.OK)
                case m.ListBookies(request):
                    listings += 1
                    event = m.BookiesListed(request, candidates)
                case m.StartTimer(request, delay_ms):
                    timers.append((now_ms + delay_ms, request))
                case m.LedgerClosed() | m.LedgerFailed():
                    return effect, listings
            if event is not None:
                following += machine.handle(event)
        if not following:
            due = min(timers)
            timers.remove(due)
            now_ms = due[0]
            following = machine.handle(m.TimerFired(due[1]))
        effects = following


def test_a_recovery_waits_for_busy_bookies_and_replaces_none() -> None:
    end, listings = recovered(8)
    assert isinstance(end, m.LedgerClosed)
    assert end.versioned.value.fragments == RECORD.fragments
    assert listings == 0


def test_a_recovery_whose_bookies_stay_busy_ends() -> None:
    end, listings = recovered(10**9)
    assert isinstance(end, m.LedgerFailed)
    assert end.is_retriable
    assert listings > 0


def waited(busy: BusyBookies, index: int, runs: int) -> None:
    """Refuse a run, and wait until this number of runs is sent again."""
    busy.refused(index)
    timer = busy.wait(index)
    assert timer is not None, "a bookie that goes on storing was given up"
    assert busy.fired(timer.request) == index
    busy.resumed(index, runs)


def test_a_busy_bookie_that_stores_some_of_what_it_is_sent_is_waited_for_as_long_as_it_takes() -> (
    None
):
    busy = BusyBookies(RequestNumbers())
    for _ in range(2 * OVERLOAD.attempts_max):
        waited(busy, 0, runs=2)
        busy.stored(0)
        assert busy.is_busy(0), "it was sent two runs"


def test_a_bookie_that_is_sent_nothing_after_its_wait_is_not_busy() -> None:
    busy = BusyBookies(RequestNumbers())
    waited(busy, 0, runs=0)
    assert not busy.waits
