"""Recovery: its password, its few round trips, and its end without success."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.model import (
    NO_ENTRY,
    Code,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.recover.reads import ReadAhead
from ledgerlog_spark.protocol.ledger.recover.recovery import (
    LedgerRecovery,
    RecoveryPhase,
    RecoverySettings,
)
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.retry import RetryPolicy
from tests.fixtures.kinds import all_of, now, of, only

OPEN = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),), password=b"secret")
Answer = Callable[[m.SendRead], tuple[Code, m.StoredEntry | None]]


@pytest.fixture(params=[1, 7, 1_024], ids=["singly", "small batches", "batches"])
def batch_entries_max(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(autouse=True)
def _batches(batch_entries_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with and without batch reads."""
    monkeypatch.setitem(READ_AHEAD, "batch_entries_max", batch_entries_max)


READ_AHEAD: dict[str, int] = {}


def entry(entry_id: int, lac: int = NO_ENTRY) -> m.StoredEntry:
    return m.StoredEntry(entry_id, lac, 10 * (entry_id + 1), b"x" * 10)


class Cluster:
    """Answers every request of one recovery, round trip by round trip."""

    def __init__(self, metadata: LedgerMetadata, answer: Answer) -> None:
        self.stored = Versioned(metadata, Version(1, 0))
        self.answer = answer
        self.add_code: Callable[[m.SendAdd], Code] = lambda _: Code.OK
        self.candidates: tuple[str, ...] = ()
        self.tokens: dict[str, int | None] = {}  # of bookies; None for one without a cookie
        self.before_write: Callable[[], None] = lambda: None
        self.round_trips = 0
        self.adds: list[m.SendAdd] = []
        self.holes: list[m.HolesLeft] = []
        self.batches: list[m.SendReadBatch] = []

    def run(self, recovery: LedgerRecovery) -> m.Effect:
        """Return the last indication. Timers fire only when no other request is open."""
        self.holes = []
        effects = recovery.handle(m.Start())
        timers: list[m.StartTimer] = []
        while True:
            self.holes += [e for e in effects if isinstance(e, m.HolesLeft)]
            last = [e for e in effects if isinstance(e, m.LedgerClosed | m.LedgerFailed)]
            if last:
                return last[0]
            timers += [e for e in effects if isinstance(e, m.StartTimer)]
            asked: list[m.Effect] = [e for e in effects if not isinstance(e, m.StartTimer)]
            if not asked:
                asked, timers = [timers[-1]], []
            self.round_trips += 1
            effects = [e for one in asked for e in recovery.handle(self.reply(one))]

    def reply(self, effect: m.Effect) -> m.Event:  # noqa: PLR0911 - one line for each request
        match effect:
            case m.LoadMetadata(request):
                return m.MetadataLoaded(request, m.MetadataOutcome.OK, self.stored)
            case m.CasMetadata(request, metadata, version, identities):
                assert version == self.stored.version
                self.before_write()
                if version != self.stored.version:
                    return m.MetadataWritten(request, m.MetadataOutcome.CONFLICT)
                if self.identities(one.bookie_id for one in identities) != identities:
                    return m.MetadataWritten(request, m.MetadataOutcome.BOOKIE_CHANGED)
                self.stored = Versioned(metadata, Version(1, version.number + 1))
                return m.MetadataWritten(request, m.MetadataOutcome.OK, self.stored)
            case m.SendRead(request):
                return m.ReadReplied(request, *self.answer(effect))
            case m.SendReadBatch():
                return self.batch(effect)
            case m.SendAdd(request):
                self.adds.append(effect)
                return m.AddReplied(request, self.add_code(effect))
            case m.ListBookies(request):
                return m.BookiesListed(request, self.candidates)
            case ReadIdentities(request, bookie_ids):
                return IdentitiesRead(request, self.identities(bookie_ids))
            case m.StartTimer(request):
                return m.TimerFired(request)
            case _:
                raise AssertionError(effect)

    def identities(self, bookie_ids: Iterable[str]) -> tuple[Identity, ...]:
        tokens = ((name, self.tokens.get(name, 0)) for name in bookie_ids)
        return tuple(Identity(name, token) for name, token in tokens if token is not None)

    def batch(self, batch: m.SendReadBatch) -> m.BatchReplied:
        """The entries of a bookie, one after the other, before the first that it does not have."""
        self.batches.append(batch)
        found: list[m.StoredEntry] = []
        for entry_id in range(batch.first_entry_id, batch.first_entry_id + batch.count_max):
            code, one = self.answer(
                m.SendRead(0, batch.bookie_id, batch.index, entry_id, True, batch.is_recovery)
            )
            if one is None:
                return m.BatchReplied(batch.request, Code.OK if found else code, tuple(found))
            found.append(one)
        return m.BatchReplied(batch.request, Code.OK, tuple(found))


def holding(last_entry_id: int, lac: int = NO_ENTRY) -> Answer:
    """A cluster in which every bookie holds entries 0 to `last_entry_id`."""

    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        if last_entry_id < 0:
            return Code.NO_LEDGER, None
        if read.entry_id == NO_ENTRY:
            return Code.OK, entry(last_entry_id, lac)
        if read.entry_id <= last_entry_id:
            return Code.OK, entry(read.entry_id)
        return Code.NO_ENTRY, None

    return answer


def recovery(**arguments: Any) -> LedgerRecovery:
    arguments.setdefault("password", b"secret")
    settings = RecoverySettings(
        retry=RetryPolicy(attempts_max=2), read_ahead=ReadAhead(**READ_AHEAD)
    )
    return LedgerRecovery(ledger_id=1, settings=settings, **arguments)


def test_five_hundred_adds_in_flight_take_few_round_trips(batch_entries_max: int) -> None:
    cluster = Cluster(OPEN, holding(499))
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert (end.versioned.value.last_entry_id, end.versioned.value.length) == (499, 5000)
    assert cluster.round_trips <= {1: 14, 7: 80, 1_024: 6}[batch_entries_max]
    assert len(cluster.adds) <= {1: 60, 7: 300, 1_024: 3}[batch_entries_max], "in runs"
    assert len(cluster.batches) == {1: 0, 7: 72, 1_024: 1}[batch_entries_max]
    assert all(batch.is_recovery for batch in cluster.batches)


def test_a_batch_shows_no_entry_absent(batch_entries_max: int) -> None:
    """Batches end early at every member, and only b0 has the later entries."""
    if batch_entries_max == 1:
        return
    cluster = Cluster(OPEN, holding(0))
    short = cluster.batch

    def shorter(batch: m.SendReadBatch) -> m.BatchReplied:
        return short(replace(batch, count_max=0))

    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        return holding(9 if read.bookie_id == "b0" else 0)(read)

    cluster.batch = shorter
    cluster.answer = answer
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert end.versioned.value.last_entry_id == 9


def test_entries_are_requested_of_a_bookie_without_batch_reads(batch_entries_max: int) -> None:
    cluster = Cluster(OPEN, holding(99))
    refused: list[m.SendReadBatch] = []

    def refuse(batch: m.SendReadBatch) -> m.BatchReplied:
        refused.append(batch)
        return m.BatchReplied(batch.request, Code.BAD_REQUEST, ())

    cluster.batch = refuse
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert end.versioned.value.last_entry_id == 99
    assert len(refused) == (0 if batch_entries_max == 1 else 1)


def test_a_batch_that_is_late_is_not_waited_for_and_counts_when_it_comes() -> None:
    one = LedgerRecovery(ledger_id=1, password=b"secret")
    cluster = Cluster(OPEN, holding(20))
    effects = one.handle(m.Start())
    while not any(isinstance(e, m.StartTimer) for e in effects):
        effects = [e for x in effects for e in one.handle(cluster.reply(x))]
    batch = only(m.SendReadBatch, of(m.SendReadBatch, effects))
    timer = only(m.StartTimer, of(m.StartTimer, effects))
    timer = only(m.StartTimer, one.handle(m.TimerFired(timer.request)))
    *asked, _ = one.handle(m.TimerFired(timer.request))
    singles = all_of(m.SendRead, asked)
    assert {(e.bookie_id, e.entry_id) for e in singles} == {("b0", 0), ("b1", 0), ("b2", 0)}
    late = one.handle(cluster.reply(batch))
    assert [e.run.entries for e in late if isinstance(e, m.SendAdd)] == [21] * 3
    assert all(one.handle(m.ReadReplied(e.request, Code.NO_ENTRY, None)) == [] for e in singles)
    effects = late
    while one.phase is not RecoveryPhase.DONE:
        effects = [e for x in effects for e in one.handle(cluster.reply(x))]
        assert effects, "recovery stopped asking"
    assert cluster.stored.value.last_entry_id == 20


def test_a_batch_that_hangs_holds_up_no_further_batch() -> None:
    """No request waits for its deadline: the next batch goes to a member that answered."""
    one = LedgerRecovery(ledger_id=1, password=b"secret")
    cluster = Cluster(OPEN, holding(20))
    effects = one.handle(m.Start())
    while not any(isinstance(e, m.StartTimer) for e in effects):
        effects = [e for x in effects for e in one.handle(cluster.reply(x))]
    hung = only(m.SendReadBatch, of(m.SendReadBatch, effects))
    timer = only(m.StartTimer, of(m.StartTimer, effects))
    timer = only(m.StartTimer, one.handle(m.TimerFired(timer.request)))
    *asked, _ = one.handle(m.TimerFired(timer.request))
    singles = all_of(m.SendRead, asked)
    (other,) = [e for e in singles if e.bookie_id == "b1"]
    effects = one.handle(cluster.reply(other))
    following = only(m.SendReadBatch, of(m.SendReadBatch, effects))
    assert (following.bookie_id, following.first_entry_id) == ("b1", 1)
    assert hung.bookie_id == "b0"


def test_every_read_of_an_entry_by_itself_fences() -> None:
    reads: list[m.SendRead] = []

    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        reads.append(read)
        return holding(5)(read)

    Cluster(OPEN, answer).run(recovery())
    assert reads
    assert all(read.fence and read.is_recovery for read in reads)


def test_a_ledger_without_entries_is_closed_empty() -> None:
    end = Cluster(OPEN, holding(-1)).run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert (end.versioned.value.last_entry_id, end.versioned.value.length) == (NO_ENTRY, 0)


def test_the_length_is_read_when_nothing_lies_beyond_the_last_add_confirmed() -> None:
    two = OPEN.with_fragments((Fragment(0, ("b0", "b1", "b2")), Fragment(5, ("b3", "b4", "b5"))))

    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        return (Code.NO_LEDGER, None) if read.bookie_id >= "b3" else holding(4)(read)

    end = Cluster(two, answer).run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert (end.versioned.value.last_entry_id, end.versioned.value.length) == (4, 50)


def test_the_wrong_password_is_found_before_any_bookie_gets_a_request() -> None:
    one = recovery(password=b"wrong")
    load = only(m.LoadMetadata, one.handle(m.Start()))
    stored = Versioned(OPEN, Version(1, 0))
    (failed,) = one.handle(m.MetadataLoaded(load.request, m.MetadataOutcome.OK, stored))
    assert isinstance(failed, m.LedgerFailed)
    assert (failed.failure, failed.is_definite) == (m.Failure.UNAUTHORIZED, True)


def test_a_bookie_that_refuses_the_key_ends_recovery() -> None:
    end = Cluster(OPEN, lambda _: (Code.UNAUTHORIZED, None)).run(recovery())
    assert isinstance(end, m.LedgerFailed)
    assert end.failure is m.Failure.UNAUTHORIZED


@pytest.mark.parametrize(
    ("outcome", "failure"),
    [
        (m.MetadataOutcome.GONE, m.Failure.NOT_FOUND),
        (m.MetadataOutcome.UNREADABLE, m.Failure.METADATA_UNREADABLE),
    ],
)
def test_a_record_that_is_not_there_or_not_readable_ends_recovery(
    outcome: m.MetadataOutcome, failure: m.Failure
) -> None:
    one = recovery()
    load = only(m.LoadMetadata, one.handle(m.Start()))
    (failed,) = one.handle(m.MetadataLoaded(load.request, outcome))
    assert isinstance(failed, m.LedgerFailed)
    assert failed.failure is failure


@pytest.mark.parametrize(
    "code", [Code.TIMEOUT, Code.IO_ERROR, Code.BUSY, Code.UNAVAILABLE, Code.DIGEST_MISMATCH]
)
def test_what_is_not_an_explicit_negative_makes_no_entry_absent(code: Code) -> None:
    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        if read.entry_id != NO_ENTRY and read.bookie_id != "b0":
            return code, None
        return Code.NO_ENTRY, None

    cluster = Cluster(OPEN, answer)
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerFailed)
    assert (end.failure, end.is_retriable, end.entry_id) == (m.Failure.RECOVERY, True, 0)
    assert cluster.stored.value.state is LedgerState.IN_RECOVERY


def test_one_copy_wins_over_two_negatives_that_come_later() -> None:
    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        if read.entry_id == 0 and read.bookie_id == "b0":
            return Code.OK, entry(0)
        return Code.NO_ENTRY, None

    end = Cluster(OPEN, answer).run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert end.versioned.value.last_entry_id == 0


def test_a_bad_digest_of_the_last_entry_counts_as_fenced_and_not_as_a_value() -> None:
    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        if read.bookie_id == "b0":
            return Code.DIGEST_MISMATCH, None
        if read.bookie_id == "b1":
            return Code.TIMEOUT, None
        return holding(0)(read)

    cluster = Cluster(OPEN, answer)
    end = cluster.run(recovery())
    # Only b2 reports that entry 1 is absent, and one such answer is not enough.
    assert isinstance(end, m.LedgerFailed)
    assert (end.failure, end.entry_id) == (m.Failure.RECOVERY, 1)


def test_too_few_bookies_to_write_back_to_is_tried_again_and_then_reported() -> None:
    cluster = Cluster(OPEN, holding(0))
    cluster.add_code = lambda send: Code.OK if send.bookie_id == "b0" else Code.TIMEOUT
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerFailed)
    assert end.failure is m.Failure.NOT_ENOUGH_BOOKIES
    assert (end.wanted, end.available, end.is_retriable) == (3, 1, True)
    cluster.add_code = lambda _: Code.OK
    assert isinstance(cluster.run(recovery()), m.LedgerClosed)


def test_one_bookie_less_to_write_back_to_is_enough_without_a_replacement() -> None:
    cluster = Cluster(OPEN, holding(0))
    cluster.add_code = lambda send: Code.OK if send.bookie_id != "b1" else Code.TIMEOUT
    assert isinstance(cluster.run(recovery()), m.LedgerClosed)


@pytest.mark.parametrize("last_bookie", ["b2", "b9"])
def test_holes_are_reported_only_in_the_fragments_that_this_attempt_wrote(last_bookie: str) -> None:
    """Another recovery closes first, and its ensemble may differ: b1 may have its entry there."""
    cluster = Cluster(OPEN, holding(0))
    cluster.add_code = lambda send: Code.OK if send.bookie_id != "b1" else Code.TIMEOUT

    def close_first() -> None:
        stored, version = cluster.stored.value, cluster.stored.version
        if stored.state is LedgerState.IN_RECOVERY:
            theirs = stored.with_fragments((Fragment(0, ("b0", "b1", last_bookie)),))
            closed = theirs.closed(last_entry_id=0, length=10)
            cluster.stored = Versioned(closed, Version(1, version.number + 1))

    cluster.before_write = close_first
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    named = [hole.bookie_id for each in cluster.holes for hole in each.holes]
    assert named == (["b1"] if last_bookie == "b2" else [])


class LateClose(Cluster):
    """The first attempt gets no answer from the store to its close, which happens afterwards."""

    def __init__(self, recovery: LedgerRecovery) -> None:
        super().__init__(OPEN, holding(0))
        self.recovery = recovery
        self.close: LedgerMetadata | None = None

    def reply(self, effect: m.Effect) -> m.Event:
        if isinstance(effect, m.CasMetadata) and effect.metadata.is_closed:
            self.close = effect.metadata
            return m.MetadataWritten(effect.request, m.MetadataOutcome.UNKNOWN)
        if isinstance(effect, m.LoadMetadata) and self.close is not None:
            if self.recovery.phase is RecoveryPhase.CLOSING:
                return m.MetadataLoaded(effect.request, m.MetadataOutcome.UNAVAILABLE)
            self.stored = Versioned(self.close, Version(1, self.stored.version.number + 1))
        return super().reply(effect)


def test_the_holes_of_an_earlier_attempt_are_reported_if_its_close_happened() -> None:
    machine = recovery()
    cluster = LateClose(machine)
    cluster.add_code = lambda send: Code.OK if send.bookie_id != "b1" else Code.TIMEOUT
    assert isinstance(cluster.run(machine), m.LedgerClosed)
    assert machine.attempts == 2
    assert [hole.bookie_id for each in cluster.holes for hole in each.holes] == ["b1"]


def test_a_ledger_that_was_closed_below_what_is_listed_needs_an_operator() -> None:
    closed = OPEN.closed(last_entry_id=3, length=40)
    cluster = Cluster(closed, holding(3))
    assert isinstance(cluster.run(recovery(floor_entry_id=3)), m.LedgerClosed)
    end = cluster.run(recovery(floor_entry_id=4))
    assert isinstance(end, m.LedgerFailed)
    assert (end.failure, end.entry_id) == (m.Failure.NEEDS_OPERATOR, 4)


def test_a_bookie_moved_in_an_earlier_fragment_does_not_disturb_the_close() -> None:
    two = replace(
        OPEN, fragments=(Fragment(0, ("b0", "b1", "b2")), Fragment(5, ("b0", "b1", "b3")))
    )
    cluster = Cluster(two, holding(5))
    moved = Fragment(0, ("b0", "b1", "b9"))

    def add(send: m.SendAdd) -> Code:
        value = cluster.stored.value.with_fragments((moved, two.fragments[1]))
        cluster.stored = Versioned(value, cluster.stored.version)
        return Code.OK

    cluster.add_code = add
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert cluster.stored.value.fragments[1] == two.fragments[1]


def test_a_hung_bookie_delays_recovery_by_a_hedge_and_not_by_its_deadline() -> None:
    one = recovery()
    cluster = Cluster(OPEN, holding(0))
    effects = one.handle(m.Start())
    while not any(isinstance(e, m.StartTimer) for e in effects):
        effects = [e for x in effects for e in one.handle(cluster.reply(x))]
    timer = only(m.StartTimer, of(m.StartTimer, effects))
    timer = only(m.StartTimer, one.handle(m.TimerFired(timer.request)))
    hedged = one.handle(m.TimerFired(timer.request))
    asked = {(e.bookie_id, e.entry_id) for e in hedged if isinstance(e, m.SendRead)}
    assert {("b1", 0), ("b2", 0)} <= asked


def test_a_copy_that_turns_up_after_a_negative_quorum_does_not_stop_reading_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entry 1 seems absent while entry 0 is undecided. Then its only copy is returned."""
    monkeypatch.setitem(READ_AHEAD, "batch_entries_max", 1)
    one = recovery()
    cluster = Cluster(OPEN, holding(40))
    effects = one.handle(m.Start())
    while not any(isinstance(e, m.StartTimer) for e in effects):
        effects = [e for x in effects for e in one.handle(cluster.reply(x))]
    reads = {e.entry_id: e for e in effects if isinstance(e, m.SendRead)}
    others = one.handle(m.ReadReplied(reads[1].request, Code.NO_ENTRY, None))
    assert [e.entry_id for e in others if isinstance(e, m.SendRead)] == [1, 1]
    no, yes = (e for e in others if isinstance(e, m.SendRead))
    one.handle(m.ReadReplied(no.request, Code.NO_ENTRY, None))
    one.handle(m.ReadReplied(yes.request, Code.OK, entry(1)))
    effects = [e for number, e in reads.items() if number != 1]
    while one.phase is not RecoveryPhase.DONE:
        effects = [e for x in effects for e in one.handle(cluster.reply(x))]
        assert effects, "recovery stopped asking"
    assert cluster.stored.value.last_entry_id == 40


def test_a_dead_bookie_without_a_successor_does_not_hold_the_window() -> None:
    one = LedgerRecovery(
        ledger_id=1,
        password=b"secret",
        settings=RecoverySettings(window=Window(entries_max=2, size_bytes_max=1 << 20)),
    )
    cluster = Cluster(OPEN, holding(40))
    cluster.add_code = lambda send: Code.OK if send.bookie_id != "b1" else Code.TIMEOUT
    end = cluster.run(one)
    assert isinstance(end, m.LedgerClosed)
    assert end.versioned.value.last_entry_id == 40


def test_entries_that_wait_for_a_slow_bookie_are_in_the_closed_ledger() -> None:
    """All sent runs are confirmed, but b2 has not stored them yet, so the window is full."""
    one = LedgerRecovery(
        ledger_id=1,
        password=b"secret",
        settings=RecoverySettings(
            window=Window(entries_max=1, size_bytes_max=1 << 20),
            read_ahead=ReadAhead(**READ_AHEAD),
        ),
    )
    cluster = Cluster(OPEN, holding(40))
    todo, late, slow = one.handle(m.Start()), list[m.Effect](), list[m.Effect]()
    while one.phase is not RecoveryPhase.DONE:
        assert todo or late, "recovery waits for nothing"
        effect = todo.pop(0) if todo else late.pop(0)
        if isinstance(effect, m.SendAdd) and effect.bookie_id == "b2" and effect not in slow:
            slow.append(effect)
            late.append(effect)
        elif not isinstance(effect, m.StartTimer):
            todo += one.handle(cluster.reply(effect))
    assert cluster.stored.value.last_entry_id == 40


def test_a_run_that_lost_its_quorum_ends_the_attempt_once_it_is_the_oldest(
    batch_entries_max: int,
) -> None:
    """b2 and b1 are given up while the first run still has a quorum. The second run has none."""
    if batch_entries_max == 1_024:
        pytest.skip("one batch makes one run")
    metadata = replace(OPEN, state=LedgerState.IN_RECOVERY)
    machine = recovery()
    load = only(m.LoadMetadata, machine.handle(m.Start()))
    loaded = Versioned(metadata, Version(1, 1))
    todo = machine.handle(m.MetadataLoaded(load.request, m.MetadataOutcome.OK, loaded))
    cluster = Cluster(metadata, holding(14))
    adds: list[m.SendAdd] = []
    open_requests: list[m.Effect] = []
    while todo:
        one = todo.pop(0)
        if isinstance(one, m.SendAdd):
            adds.append(one)
        elif isinstance(one, m.StartTimer):
            open_requests.append(one)
        else:
            todo += machine.handle(cluster.reply(one))
    first = {add.index: add for add in adds if add.run is adds[0].run}
    second = {add.index: add for add in adds if add.run is adds[3].run}
    assert (len(first), len(second), len(adds)) == (3, 3, 6)

    def answer(add: m.SendAdd, code: Code) -> list[m.Effect]:
        effects = machine.handle(m.AddReplied(add.request, code))
        for listing in [e for e in effects if isinstance(e, m.ListBookies)]:
            effects += machine.handle(m.BookiesListed(listing.request, ("b0", "b1", "b2")))
        return effects

    answer(first[2], Code.UNAVAILABLE)
    answer(first[1], Code.OK)
    answer(second[1], Code.UNAVAILABLE)
    assert now(machine.phase) is RecoveryPhase.READING
    (again,) = answer(first[0], Code.OK)
    assert isinstance(again, m.StartTimer)
    assert machine.phase is RecoveryPhase.WAITING, "the second run can have b0 at most"
    machine.handle(m.TimerFired(again.request))
    assert machine.attempts == 2


def test_a_new_attempt_replaces_those_alone_that_fail_it(batch_entries_max: int) -> None:
    """b1 refuses a copy, and the attempt ends before a replacement for b1 is known."""
    first = {1: 2, 7: 7, 1_024: 3}[batch_entries_max]
    machine = recovery()

    def answer(read: m.SendRead) -> tuple[Code, m.StoredEntry | None]:
        if machine.attempts == 1 and read.entry_id >= first:
            return Code.TIMEOUT, None
        return holding(first)(read)

    cluster = Cluster(OPEN, answer)
    failing = {1: "b1", 2: "b2"}
    cluster.add_code = lambda send: (
        Code.UNAVAILABLE if send.bookie_id == failing[machine.attempts] else Code.OK
    )
    todo = machine.handle(m.Start())
    while machine.phase is not RecoveryPhase.DONE:
        # Failures arrive before the other answers make a quorum, and before entries read ahead.
        urgent = [e for e in todo if isinstance(e, m.SendAdd | m.ListBookies | ReadIdentities)]
        one = urgent[-1] if urgent else todo[0]
        todo.remove(one)
        if isinstance(one, m.StartTimer) and machine.phase is not RecoveryPhase.WAITING:
            continue
        if isinstance(one, m.ListBookies):
            if machine.attempts == 2:
                todo += machine.handle(m.BookiesListed(one.request, ("b3", "b4")))
        else:
            todo += machine.handle(cluster.reply(one))
    assert machine.attempts == 2
    assert cluster.stored.value.is_closed
    assert cluster.stored.value.last_fragment.ensemble == ("b0", "b1", "b3")
