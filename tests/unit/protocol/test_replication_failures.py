"""Failures in the middle of a replication job, and what the job then does (AUTORECOVERY.md#X8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ledgerlog_spark.model import (
    RUN_ENTRIES_MAX,
    Code,
    Fragment,
    LedgerMetadata,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.autorecovery.replicate import messages as r
from ledgerlog_spark.protocol.autorecovery.replicate.copying import SINGLE_READS_MAX, UNREADABLE_MAX
from ledgerlog_spark.protocol.autorecovery.replicate.job import REPORTED_MAX, ReplicationSettings
from ledgerlog_spark.protocol.autorecovery.replicate.targets import choose_target
from ledgerlog_spark.protocol.autorecovery.replicate.unreadable import as_ranges
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from tests.unit.protocol.replicated_cluster import NAMES, Cluster

OK, GONE = m.MetadataOutcome.OK, m.MetadataOutcome.GONE
UNAVAILABLE = m.MetadataOutcome.UNAVAILABLE


def once(reply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that replies only to the first request."""
    left = [reply]
    return lambda effect: left.pop()(effect) if left else None


def open_cluster(registered: set[str]) -> Cluster:
    """The last fragment of an open ledger names b2, which is lost."""
    cluster = Cluster()
    cluster.ledger = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, NAMES[:3]),))
    cluster.registered = registered
    return cluster


# The store.


def no_task(outcome: m.MetadataOutcome, effect: r.LoadTask) -> r.TaskLoaded:
    return r.TaskLoaded(effect.request, outcome, None)


def no_lock(outcome: m.MetadataOutcome, effect: r.TakeLock) -> r.LockTaken:
    return r.LockTaken(effect.request, outcome, is_mine=False)


def test_a_task_that_does_not_exist_is_no_failure() -> None:
    for outcome, ended in (
        (GONE, r.JobOutcome.NOTHING),
        (UNAVAILABLE, r.JobOutcome.UNAVAILABLE),
    ):
        cluster = Cluster()
        cluster.answers[r.LoadTask] = partial(no_task, outcome)
        assert cluster.run().outcome is ended
        assert len(cluster.sent) == 1


def test_without_the_lock_nothing_is_read() -> None:
    for outcome, ended in (
        (OK, r.JobOutcome.LOCKED),
        (UNAVAILABLE, r.JobOutcome.UNAVAILABLE),
    ):
        cluster = Cluster()
        cluster.answers[r.TakeLock] = partial(no_lock, outcome)
        assert cluster.run().outcome is ended
        assert [type(one) for one in cluster.sent] == [r.LoadTask, r.TakeLock]


def test_a_write_without_an_answer_ends_the_job() -> None:
    cluster = Cluster()
    cluster.answers[m.CasMetadata] = lambda one: m.MetadataWritten(one.request, UNAVAILABLE)
    assert cluster.run().outcome is r.JobOutcome.UNAVAILABLE
    assert len(cluster.asked(m.CasMetadata)) == 1
    assert not cluster.deleted


def test_a_bookie_without_a_cookie_is_not_named_and_another_one_is() -> None:
    usual = Cluster()
    usual.run()
    first = usual.ledger.fragments[0].ensemble[2]
    cluster = Cluster()
    cluster.answers[ReadIdentities] = lambda one: (
        IdentitiesRead(one.request, ()) if one.bookie_ids == (first,) else None
    )
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert cluster.ledger.fragments[0].ensemble[2] not in (first, "b2")
    assert first not in cluster.held


# Bookies.


def test_copies_of_a_live_member_are_forced() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.held["b2"] = {0}
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert [one.bookie_id for one in cluster.asked(r.ForceEntries)] == ["b2"]
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.held["b2"] = {0}
    cluster.answers[r.ForceEntries] = lambda one: r.EntriesForced(one.request, Code.TIMEOUT)
    assert cluster.run().outcome is r.JobOutcome.TARGET_FAILED
    assert not cluster.deleted


def test_a_target_whose_force_failed_is_not_named() -> None:
    cluster = Cluster()
    cluster.answers[r.ForceEntries] = lambda one: r.EntriesForced(one.request, Code.TIMEOUT)
    assert cluster.run().outcome is r.JobOutcome.TARGET_FAILED
    assert not cluster.asked(m.CasMetadata)


def test_a_target_whose_add_failed_in_the_last_run_is_not_named() -> None:
    """It lists the entries all the same, for example because an earlier add arrived late."""
    cluster = Cluster()

    def refused(one: r.AddCopies) -> r.CopiesAdded:
        cluster.held.setdefault(one.bookie_id, set()).update(copy.entry_id for copy in one.copies)
        return r.CopiesAdded(one.request, Code.IO_ERROR, 0)

    cluster.answers[r.AddCopies] = refused
    ended = cluster.run(ReplicationSettings(targets_max=1))
    assert (ended.outcome, ended.entries_copied) == (r.JobOutcome.TARGET_FAILED, 0)
    assert not cluster.asked(m.CasMetadata)


def test_a_silent_member_is_not_read_as_one_without_entries() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.unlisted = {"b2"}
    cluster.answers[r.ReadCopies] = lambda one: (
        r.CopiesRead(one.request, Code.TIMEOUT) if one.bookie_id == "b2" else None
    )
    ended = cluster.run()
    assert (ended.outcome, ended.detail) == (r.JobOutcome.WAITING, f"b2: {Code.TIMEOUT.value}")
    assert not cluster.asked(r.AddCopies)


def test_a_source_that_does_not_answer_gets_one_request() -> None:
    cluster = Cluster(last=3 * RUN_ENTRIES_MAX)
    cluster.answers[r.ReadCopies] = lambda one: (
        r.CopiesRead(one.request, Code.TIMEOUT) if one.bookie_id == "b0" else None
    )
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert len(cluster.asked(r.ReadCopies)) >= 4
    assert sum(one.bookie_id == "b0" for one in cluster.asked(r.ReadCopies)) == 1


# Entries that no bookie returns.


def missing_entry(entry_id: int = 1) -> Cluster:
    """b0 and b1 lack an entry that they list, and b2 is away."""
    cluster = Cluster()
    for name in ("b0", "b1"):
        cluster.held[name].discard(entry_id)
    cluster.answers[r.ListEntries] = lambda one: (
        r.EntriesListed(one.request, Code.OK, ((0, 3),)) if one.bookie_id in ("b0", "b1") else None
    )
    return cluster


def test_entries_of_a_bookie_that_does_not_answer_are_not_split_off() -> None:
    cluster = missing_entry()
    cluster.answers[r.ReadCopies] = lambda one: (
        r.CopiesRead(one.request, Code.BUSY)
        if (one.bookie_id, one.first_entry_id) == ("b1", 1)
        else None
    )
    assert cluster.run().outcome is r.JobOutcome.UNREADABLE
    assert not cluster.asked(m.CasMetadata)
    (report,) = cluster.reports
    assert not report[0].is_lost


def test_an_entry_that_was_denied_only_once_is_not_lost() -> None:
    """The first look at b1 is refused, and the second one denies the entry."""
    cluster = Cluster(last=0)
    cluster.registered.add("b2")
    cluster.held = {}
    cluster.answers[r.ListEntries] = lambda one: (
        r.EntriesListed(one.request, Code.OK, ((0, 0),)) if one.bookie_id in ("b0", "b1") else None
    )
    reads = 0

    def read(one: r.ReadCopies) -> r.CopiesRead | None:
        nonlocal reads
        reads += one.bookie_id == "b1"
        is_refused = one.bookie_id == "b1" and reads == 2  # after the read, and before the sync
        return r.CopiesRead(one.request, Code.BUSY) if is_refused else None

    cluster.answers[r.ReadCopies] = read
    assert cluster.run().outcome is r.JobOutcome.UNREADABLE
    (report,) = cluster.reports
    assert [(one.first_entry_id, one.is_lost) for one in report] == [(0, False)]
    assert reads == 3


def test_an_entry_that_a_bookie_returns_at_the_second_look_is_copied() -> None:
    for late_from in (2, 3):  # the read, the look before the sync, and the look after it
        cluster = missing_entry()
        looks = {"b0": 0, "b1": 0}

        def read(
            one: r.ReadCopies,
            cluster: Cluster = cluster,
            looks: dict[str, int] = looks,
            late_from: int = late_from,
        ) -> None:
            if one.first_entry_id == 1:
                looks[one.bookie_id] += 1
                if looks[one.bookie_id] == late_from:
                    cluster.held[one.bookie_id].add(1)

        cluster.answers[r.ReadCopies] = read
        assert cluster.run().outcome is r.JobOutcome.HEALED
        (target,) = set(cluster.ledger.fragments[0].ensemble) - {"b0", "b1"}
        assert cluster.held[target] == {0, 1, 2, 3}
        assert cluster.reports == [()]
        assert len(cluster.asked(m.CasMetadata)) == 1, "the fragment is not split"
        assert {one.bookie_id for one in cluster.asked(r.AddCopies)} == {target}


def test_nothing_is_lost_by_the_rules_of_an_old_record() -> None:
    cluster = missing_entry()

    def load(one: m.LoadMetadata) -> None:
        loads = len(cluster.asked(m.LoadMetadata))
        if loads == 2:  # the sync between both looks
            cluster.version += 1
        if loads == 3:  # the next pass
            cluster.held["b0"].add(1)
        del one

    cluster.answers[m.LoadMetadata] = load
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert cluster.reports == [()]
    assert len(cluster.asked(m.CasMetadata)) == 1, "the fragment is not split"


def test_few_entries_of_a_striped_ledger_are_read_together() -> None:
    cluster = Cluster(last=4 * SINGLE_READS_MAX)
    cluster.ledger = replace(
        cluster.ledger, quorum=Quorum(4, 3, 2), fragments=(Fragment(0, NAMES[:4]),)
    )
    for name in ("b0", "b1", "b3"):
        cluster.held[name] = set(range(4 * SINGLE_READS_MAX + 1))
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert cluster.together_max == SINGLE_READS_MAX + 1


def test_a_report_is_bounded() -> None:
    cluster = Cluster(last=4 * UNREADABLE_MAX)
    for name in ("b0", "b1"):
        cluster.held[name] = set(range(0, 4 * UNREADABLE_MAX, 2))
    cluster.registered.add("b2")
    cluster.held["b2"] = set(range(0, 4 * UNREADABLE_MAX, 4))
    moves = frozenset({("b2", r.WHOLE_LEDGER)})
    cluster.task = r.Task(r.TaskQueue.MOVE, Version(1, 0), moves=moves)
    assert cluster.run().outcome is r.JobOutcome.UNREADABLE
    (report,) = cluster.reports
    assert len(report) == REPORTED_MAX


# Open ledgers.


def test_a_recovery_that_makes_progress_is_not_interrupted() -> None:
    cluster = open_cluster({"b0", "b1", "b3", "b4"})
    cluster.ledger = cluster.ledger.in_recovery()
    changes = 3

    def waited(one: m.StartTimer) -> None:
        nonlocal changes
        if changes:
            changes, cluster.version = changes - 1, cluster.version + 1
        del one

    cluster.answers[m.StartTimer] = waited
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert len(cluster.asked(m.StartTimer)) == 4
    assert len(cluster.asked(r.RecoverForCopies)) == 1


def test_a_writer_that_replaced_its_bookie_gets_the_grace_again() -> None:
    cluster = open_cluster({"b0", "b1", "b4"})
    cluster.quiet_ms = ReplicationSettings().quiet_ms

    def replaced(one: m.StartTimer) -> None:
        (fragment,) = cluster.ledger.fragments
        last = replace(fragment, ensemble=("b0", "b1", "b3"))
        cluster.ledger = replace(cluster.ledger, fragments=(last,))
        cluster.version += 1
        cluster.held["b3"] = {0, 1, 2, 3}
        del one

    cluster.task = r.Task(r.TaskQueue.MARK, Version(1, 0), lost=frozenset({"b2", "b3"}))
    cluster.answers[m.StartTimer] = once(replaced)
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert len(cluster.asked(m.StartTimer)) == 2


def test_one_spare_replaces_one_lost_bookie() -> None:
    cluster = open_cluster({"b0", "b3"})
    cluster.task = r.Task(r.TaskQueue.MARK, Version(1, 0), lost=frozenset({"b1", "b2"}))
    assert cluster.run().outcome is r.JobOutcome.NO_SPARE
    assert not cluster.asked(r.RecoverForCopies)


def test_a_recovery_that_failed_ends_the_job() -> None:
    cluster = open_cluster({"b0", "b1", "b3", "b4"})
    cluster.answers[r.RecoverForCopies] = lambda one: r.LedgerRecovered(
        one.request, m.Failure.RECOVERY
    )
    ended = cluster.run()
    assert ended.outcome is r.JobOutcome.RECOVERY_FAILED
    assert len(cluster.asked(r.RecoverForCopies)) == 1


@pytest.mark.parametrize("outcome", [UNAVAILABLE, GONE])
def test_a_floor_that_cannot_be_read_ends_the_job(outcome: m.MetadataOutcome) -> None:
    cluster = open_cluster({"b0", "b1", "b3", "b4"})
    cluster.answers[r.ReadFloor] = lambda one: r.FloorRead(one.request, outcome, -1)
    assert cluster.run().outcome is r.JobOutcome.UNAVAILABLE
    assert not cluster.asked(r.RecoverForCopies)


def test_a_ledger_that_is_deleted_meanwhile_leaves_no_task() -> None:
    cluster = Cluster()
    loaded = Versioned(cluster.ledger, Version(1, 0))
    outcomes = iter([(OK, loaded), (GONE, None)])
    cluster.answers[m.LoadMetadata] = lambda one: m.MetadataLoaded(one.request, *next(outcomes))
    cluster.conflicts = 1
    assert cluster.run().outcome is r.JobOutcome.DELETED
    assert [one.record for one in cluster.asked(r.DeleteTask)] == [None]


# Targets and reports.


def test_the_target_does_not_depend_on_the_order_of_the_list() -> None:
    fragment, quorum = Fragment(0, ("a", "b", "c")), Quorum(3, 3, 2)
    names = tuple(f"b{number}" for number in range(8))

    def chosen(ledger_id: int, writable: tuple[str, ...]) -> str | None:
        registered = r.RegisteredListed(0, OK, writable, frozenset())
        return choose_target(ledger_id, quorum, fragment, 2, registered, frozenset())

    for ledger_id in range(20):
        assert chosen(ledger_id, names) == chosen(ledger_id, names[::-1])
    assert len({chosen(ledger_id, names) for ledger_id in range(20)}) > 4


def test_only_entries_with_the_same_answers_are_one_range() -> None:
    lost = r.UnreadableEntries(1, 1, True, (("a", Code.NO_ENTRY),))
    unknown = r.UnreadableEntries(2, 2, False, (("a", Code.TIMEOUT),))
    later = replace(lost, first_entry_id=3, last_entry_id=3)
    last = replace(lost, first_entry_id=4, last_entry_id=4)
    expected = (lost, unknown, replace(later, last_entry_id=4))
    assert as_ranges([last, later, unknown, lost, unknown]) == expected
