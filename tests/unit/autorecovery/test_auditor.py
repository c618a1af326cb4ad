"""The elected auditor, step by step. tests/transcripts/audits has its usual runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor, AuditSettings
from ledgerlog_spark.protocol.autorecovery.audit.marking import MarkingLimits
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

NAMES = frozenset("abcde")
WALK_PAUSE_MS = 3_600_000
RETRY = RetryPolicy(first_delay_ms=100, delay_max_ms=10_000, attempts_max=NO_LIMIT)


def record(ledger_id: int, names: str = "abc", version: int = 0) -> m.LedgerRecord:
    metadata = LedgerMetadata(
        Quorum(3, 3, 2), (Fragment(0, tuple(names)),), LedgerState.CLOSED, 9, 10
    )
    return m.LedgerRecord(ledger_id, metadata, Version(ledger_id, version))


class Cluster:
    """Answers the requests of an auditor, which was elected a long time ago."""

    def __init__(self, *records: m.LedgerRecord, position: int = -1, **limits: int) -> None:
        settings = AuditSettings(
            session_timeout_ms=10,
            walk_pause_ms=WALK_PAUSE_MS,
            limits=MarkingLimits(**limits),
            retry=RETRY,
        )
        self.machine = Auditor(settings, position)
        self.records = {one.ledger_id: one for one in records}
        self.unreadable: tuple[int, ...] = ()
        self.registered = NAMES
        self.known = NAMES
        self.is_enabled = True
        self.delay = (0, 0)
        self.failing: set[type] = set()  # requests that fail
        self.seen: list[Any] = []
        self.waiting: list[Any] = []
        self.take(self.machine.begin())
        self.run()

    def take(self, effects: Sequence[Any]) -> None:
        self.seen += effects
        self.waiting += [one for one in effects if hasattr(one, "request")]

    def post(self, event: Any) -> None:
        self.take(self.machine.handle(event))

    def run(self) -> None:
        """Answer all requests and all timers, except for the pause between two walks."""
        while (effect := self.next()) is not None:
            self.answer(effect)

    def next(self) -> Any:
        due = [one for one in self.waiting if getattr(one, "delay_ms", 0) != WALK_PAUSE_MS]
        return due[0] if due else None

    def answer(self, effect: Any) -> None:
        self.waiting.remove(effect)
        self.post(self.reply(effect))

    def end_pause(self) -> None:
        """End the pause between two walks."""
        pauses = [one for one in self.waiting if getattr(one, "delay_ms", 0) == WALK_PAUSE_MS]
        self.waiting = [one for one in self.waiting if one not in pauses]
        self.post(TimerFired(pauses[-1].request))

    def reply(self, effect: Any) -> Any:
        is_read = type(effect) not in self.failing
        match effect:
            case StartTimer(request):
                return TimerFired(request)
            case m.ReadCluster(request):
                state = m.ClusterState(self.registered, self.known, self.is_enabled, *self.delay)
                return m.ClusterRead(request, state if is_read else None)
            case m.ReadRecords(request, after, count_max):
                ids = sorted(one for one in self.records if one > after)
                page, is_end = ids[:count_max], len(ids) <= count_max
                last = page[-1] if page else after
                found = [self.records[one] for one in page]
                return m.RecordsRead(request, is_read, found, self.unreadable, last, is_end)
            case m.LoadRecords(request, ids):
                found = [self.records[one] for one in ids if one in self.records]
                return m.RecordsRead(request, is_read, found)
            case m.WriteMark(request):
                return m.NoteWritten(request, is_written=is_read)
            case _:
                raise AssertionError(effect)

    def lose(self, *names: str) -> None:
        self.registered = NAMES - set(names)
        self.post(m.ClusterChanged())

    def forget(self) -> None:
        self.seen.clear()

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.seen if isinstance(one, kind)]

    def marks(self) -> list[tuple[int, tuple[str, ...]]]:
        return [(one.ledger_id, one.bookie_ids) for one in self.of(m.WriteMark)]


def test_the_first_walk_fills_the_index_and_marks_nothing() -> None:
    cluster = Cluster(record(1), record(2))
    assert [one.ledgers for one in cluster.of(m.WalkEnded)] == [2]
    assert cluster.marks() == []
    cluster.forget()
    cluster.lose("a")
    cluster.run()
    assert [one.ledger_ids for one in cluster.of(m.LoadRecords)] == [(1, 2)]


def test_a_change_during_a_read_of_the_cluster_is_read_too() -> None:
    cluster = Cluster(record(1))
    cluster.forget()
    cluster.post(m.ClusterChanged())
    cluster.post(m.ClusterChanged())
    assert len(cluster.of(m.ReadCluster)) == 1
    cluster.answer(cluster.next())
    assert len(cluster.of(m.ReadCluster)) == 2
    cluster.run()
    assert len(cluster.of(m.ReadCluster)) == 2


def test_a_lost_bookie_without_a_cookie_is_found_by_the_walk_that_finds_its_name() -> None:
    """It is marked at once, not in the next hour."""
    cluster = Cluster(record(1, "abx"), position=0)
    assert cluster.machine.lost == ("x",)
    assert set(cluster.marks()) == {(1, ("x",))}


def test_a_bookie_is_not_lost_any_more_when_no_record_names_it() -> None:
    cluster = Cluster(record(1, "abx"))
    cluster.records[1] = record(1, "abc", version=1)
    cluster.end_pause()
    cluster.run()
    assert cluster.machine.lost == ()


def test_handled_losses_are_marked_again_every_hour_and_reported_once() -> None:
    cluster = Cluster(record(1), record(2, "cde"))
    cluster.lose("a")
    cluster.run()
    assert cluster.marks() == [(1, ("a",))]
    cluster.end_pause()
    cluster.run()
    assert cluster.marks() == [(1, ("a",))] * 2
    assert cluster.of(m.BookiesLost)[0] == m.BookiesLost(("a",))
    walks = [(one.marks, one.handled) for one in cluster.of(m.WalkEnded)]
    assert walks[-2:] == [(1, ("a",)), (1, ("a",))]


def test_a_loss_is_one_line_in_the_log_although_the_cluster_is_read_often() -> None:
    cluster = Cluster(*map(record, range(20)), marks_between_reads=2)
    cluster.forget()
    cluster.lose("a")
    cluster.run()
    assert len(cluster.of(m.ReadCluster)) > 5
    assert cluster.of(m.BookiesLost) == [m.BookiesLost(("a",))]


def test_the_number_of_marks_that_are_written_together_is_bounded() -> None:
    cluster = Cluster(*map(record, range(20)), marks_open_max=3)
    cluster.lose("a")
    open_max = 0
    while (effect := cluster.next()) is not None:
        is_open = [isinstance(one, m.WriteMark) for one in cluster.waiting]
        open_max = max(open_max, sum(is_open))
        cluster.answer(effect)
    assert open_max == 3


def test_proposed_ledgers_are_loaded_in_pages() -> None:
    cluster = Cluster(*map(record, range(20)), page_records=8)
    cluster.forget()
    cluster.lose("a")
    cluster.run()
    assert [len(one.ledger_ids) for one in cluster.of(m.LoadRecords)] == [8, 8, 4]


def test_a_walk_that_begins_at_a_position_reads_each_record_once() -> None:
    cluster = Cluster(*map(record, range(20)), position=9, page_records=5)
    assert [one.after for one in cluster.of(m.ReadRecords)] == [9, 14, -1, 4]
    assert cluster.of(m.WalkEnded)[0].ledgers == 20


def test_a_walk_stores_its_position_and_at_its_end_the_begin() -> None:
    cluster = Cluster(*map(record, range(10)), page_records=4)
    assert not cluster.of(m.StorePosition), "a walk that only fills the index has no position"
    cluster.lose("a")
    cluster.run()
    assert [one.after for one in cluster.of(m.StorePosition)] == [3, 7, 3, 7, 9, -1]


@pytest.mark.parametrize("kind", [m.ReadCluster, m.ReadRecords, m.WriteMark])
def test_the_pauses_after_failures_grow_and_begin_again_after_an_answer(kind: type) -> None:
    cluster = Cluster(record(1))
    for _ in range(2):
        cluster.forget()
        cluster.failing = {kind}
        cluster.lose("a")
        while len(cluster.of(StartTimer)) < 5:
            cluster.answer(cluster.next())
        pauses = [one.delay_ms for one in cluster.of(StartTimer)]
        if kind is m.ReadCluster:
            assert pauses == [RETRY.pause_ms(number) for number in range(1, 6)]
        else:
            # Between two failures, the cluster is read, so each failure is the first one.
            assert pauses == [RETRY.pause_ms(1)] * 5
        cluster.failing = set()
        cluster.run()
        assert (1, ("a",)) in cluster.marks()
        cluster.registered = NAMES
        cluster.post(m.ClusterChanged())
        cluster.run()


def test_records_that_cannot_be_read_are_counted() -> None:
    cluster = Cluster(record(1))
    cluster.unreadable = (7,)
    cluster.end_pause()
    cluster.run()
    assert [one.unreadable for one in cluster.of(m.WalkEnded)] == [0, 1]


def test_a_page_that_fails_is_read_again() -> None:
    cluster = Cluster(record(1), record(2))
    cluster.failing = {m.ReadRecords}
    cluster.forget()
    cluster.end_pause()
    for _ in range(20):
        cluster.answer(cluster.next())
    assert not cluster.of(m.WalkEnded)
    cluster.failing = set()
    cluster.run()
    assert [one.ledgers for one in cluster.of(m.WalkEnded)] == [2]


def test_nothing_happens_after_the_end_of_the_session() -> None:
    cluster = Cluster(record(1))
    assert cluster.machine.handle(m.SessionEnded()) == [m.SteppedDown()]
    for event in (m.ClusterChanged(), m.StoreResumed(), m.SessionEnded()):
        assert cluster.machine.handle(event) == []


def test_no_mark_is_written_while_auto_recovery_is_disabled_during_a_walk() -> None:
    cluster = Cluster(*map(record, range(20)), marks_between_reads=4, marks_open_max=2)
    cluster.lose("a")
    while len(cluster.marks()) < 3:
        cluster.answer(cluster.next())
    cluster.is_enabled = False
    cluster.run()
    assert len(cluster.marks()) <= 4 + 2
    assert not cluster.of(m.WalkEnded)[-1].handled
