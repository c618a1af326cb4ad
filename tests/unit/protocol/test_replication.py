"""One replication job, reply by reply (AUTORECOVERY.md#X4, AUTORECOVERY.md#X10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerlog_spark.model import (
    Code,
    DigestType,
    Fragment,
    LedgerMetadata,
    Quorum,
    Version,
)
from ledgerlog_spark.protocol.autorecovery.replicate import messages as r
from ledgerlog_spark.protocol.autorecovery.replicate.copying import UNREADABLE_MAX
from ledgerlog_spark.protocol.autorecovery.replicate.job import (
    ReplicationSettings,
)
from ledgerlog_spark.protocol.ledger import messages as m
from tests.unit.protocol.replicated_cluster import NAMES, Cluster


def test_a_lost_bookie_is_replaced_and_the_mark_is_deleted() -> None:
    cluster = Cluster()
    ended = cluster.run()
    assert ended == r.JobEnded(r.JobOutcome.HEALED, "", 4, 8, 1)
    (fragment,) = cluster.ledger.fragments
    target = fragment.ensemble[2]
    assert target in ("b3", "b4")
    assert cluster.held[target] == {0, 1, 2, 3}
    assert cluster.deleted
    assert isinstance(cluster.sent[-1], r.ReleaseLock)


def test_a_successor_chooses_the_same_target_and_copies_only_the_rest() -> None:
    first = Cluster()
    first.run()
    target = first.ledger.fragments[0].ensemble[2]
    second = Cluster()
    second.held[target] = {0, 1}
    ended = second.run()
    assert second.ledger.fragments[0].ensemble[2] == target
    assert ended.entries_copied == 2


def test_a_target_that_fails_is_replaced_by_another_one() -> None:
    cluster = Cluster()
    cluster.run()
    target = cluster.ledger.fragments[0].ensemble[2]
    again = Cluster()
    again.add_codes[target] = Code.READ_ONLY
    assert again.run().outcome is r.JobOutcome.HEALED
    assert again.ledger.fragments[0].ensemble[2] not in (target, "b2")
    both = Cluster()
    both.add_codes = {"b3": Code.READ_ONLY, "b4": Code.TIMEOUT}
    assert both.run().outcome is r.JobOutcome.TARGET_FAILED
    assert not both.deleted


def test_without_a_spare_nothing_is_read_or_written() -> None:
    cluster = Cluster()
    cluster.registered = {"b0", "b1"}
    assert cluster.run().outcome is r.JobOutcome.NO_SPARE
    assert not cluster.asked(r.ReadCopies)
    assert not cluster.deleted


def test_copies_without_a_digest_that_differ_are_left_alone() -> None:
    cluster = Cluster(digest_type=DigestType.DUMMY)
    assert cluster.run().outcome is r.JobOutcome.HEALED
    cluster = Cluster(digest_type=DigestType.DUMMY)
    cluster.payloads["b1", 2] = b"y"
    ended = cluster.run()
    assert (ended.outcome, ended.detail) == (r.JobOutcome.COPIES_DIFFER, "entry 2")
    assert not cluster.asked(m.CasMetadata)
    assert not cluster.deleted


def test_a_ledger_without_a_password_in_its_metadata_is_left_alone() -> None:
    cluster = Cluster(has_password=False)
    assert cluster.run().outcome is r.JobOutcome.NO_KEY
    assert not cluster.asked(r.AddCopies)


def test_a_member_that_is_away_without_a_mark_keeps_the_mark() -> None:
    cluster = Cluster()
    cluster.registered.discard("b1")
    ended = cluster.run()
    assert ended.outcome is r.JobOutcome.WAITING
    assert "b1" in ended.detail
    assert not cluster.deleted


def test_a_member_in_limbo_keeps_the_mark() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.in_limbo = {"b2"}
    ended = cluster.run()
    assert ended.outcome is r.JobOutcome.WAITING
    assert "b2 does not list" in ended.detail
    assert not cluster.deleted
    assert not cluster.asked(r.AddCopies)


def test_a_marked_bookie_that_is_back_gets_what_it_lacks() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.held["b2"] = {0, 3}
    assert cluster.run() == r.JobEnded(r.JobOutcome.HEALED, "", 2, 4, 0)
    assert cluster.held["b2"] == {0, 1, 2, 3}
    assert not cluster.asked(m.CasMetadata)


def test_a_member_without_lists_is_read_entry_by_entry_if_the_mark_names_it() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.unlisted = {"b0", "b2"}
    cluster.held["b2"] = {0, 3}
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert cluster.held["b2"] == {0, 1, 2, 3}
    read = [one for one in cluster.asked(r.ReadCopies) if one.bookie_id == "b2"]
    assert {one.first_entry_id for one in read} >= {0, 1, 2, 3}


def test_a_target_without_lists_must_keep_its_connection() -> None:
    cluster = Cluster(last=5_000)
    cluster.unlisted = {"b3", "b4"}
    assert cluster.run().outcome is r.JobOutcome.HEALED
    cluster = Cluster(last=5_000)
    cluster.unlisted = {"b3", "b4"}
    cluster.connections = {"b3": 1, "b4": 1}
    assert cluster.run().outcome is r.JobOutcome.TARGET_FAILED
    assert not cluster.asked(m.CasMetadata)


@pytest.mark.parametrize("unlisted", [set(), {"b3", "b4"}], ids=["lists", "no lists"])
def test_a_target_that_got_only_a_part_is_not_named(unlisted: set[str]) -> None:
    cluster = Cluster(last=5_000)
    cluster.unlisted = unlisted
    cluster.busy_reads = 2 * (UNREADABLE_MAX + 1)  # both sources, until the copy is cut
    assert cluster.run().outcome is r.JobOutcome.WAITING
    assert not cluster.asked(m.CasMetadata)
    assert not cluster.deleted
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert cluster.held[cluster.ledger.fragments[0].ensemble[2]] == set(range(5_001))


def test_damaged_copies_stay_a_task_until_all_are_written() -> None:
    cluster = Cluster(last=5_000)
    cluster.registered.add("b2")
    damaged = (r.DamagedCopies("b2", r.WHOLE_LEDGER),)
    cluster.task = r.Task(r.TaskQueue.HOLE, Version(1, 0), damaged=damaged)
    cluster.busy_reads = 2 * (UNREADABLE_MAX + 1)
    assert cluster.run().outcome is r.JobOutcome.WAITING
    assert not cluster.deleted
    assert cluster.run().outcome is r.JobOutcome.HEALED
    (*_, whole) = cluster.asked(r.AddCopies)
    assert whole.copies[-1].entry_id == 5_000


def test_after_a_conflict_the_target_is_listed_again_and_conflicts_are_bounded() -> None:
    cluster = Cluster()
    cluster.conflicts = 2
    assert cluster.run().outcome is r.JobOutcome.HEALED
    target = cluster.ledger.fragments[0].ensemble[2]
    lists = [one for one in cluster.asked(r.ListEntries) if one.bookie_id == target]
    assert len(lists) == 7  # before and after the copies, in three passes, and once as a member
    cluster = Cluster()
    cluster.conflicts = 1_000
    assert cluster.run().outcome is r.JobOutcome.CONFLICTS
    assert len(cluster.asked(m.CasMetadata)) == ReplicationSettings().conflicts_max + 1


def test_a_fragment_without_entries_is_renamed_without_a_copy() -> None:
    cluster = Cluster(last=-1)
    ended = cluster.run()
    assert (ended.outcome, ended.entries_copied, ended.replaced) == (r.JobOutcome.HEALED, 0, 1)


def test_lost_entries_are_reported_with_all_answers_and_their_number_is_bounded() -> None:
    cluster = Cluster(last=9)
    for name in ("b0", "b1"):
        cluster.held[name] -= {4, 5}
    cluster.registered.add("b2")
    cluster.held["b2"] -= {4, 5, 6}
    ended = cluster.run()
    assert ended.outcome is r.JobOutcome.UNREADABLE
    assert 6 in cluster.held["b2"]
    (report,) = cluster.reports
    answers = (("b0", Code.NO_ENTRY), ("b1", Code.NO_ENTRY), ("b2", Code.NO_ENTRY))
    assert report == (r.UnreadableEntries(4, 5, True, answers),)
    assert not cluster.deleted

    cluster = Cluster(last=5 * UNREADABLE_MAX)
    for name in ("b0", "b1"):
        cluster.held[name] = {0}
    assert cluster.run().outcome is r.JobOutcome.UNREADABLE
    assert not cluster.asked(m.CasMetadata)
    reads = cluster.asked(r.ReadCopies)
    assert len(reads) < 6 * 3 * UNREADABLE_MAX  # for each of three needs


def test_a_move_replaces_a_readable_copy_and_needs_no_other_member() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.read_only = {"b2"}
    cluster.held["b0"] = cluster.held["b1"] = set()
    moves = frozenset({("b2", r.WHOLE_LEDGER)})
    cluster.task = r.Task(r.TaskQueue.MOVE, Version(1, 0), moves=moves)
    assert cluster.run().outcome is r.JobOutcome.HEALED
    assert "b2" not in cluster.ledger.fragments[0].ensemble
    assert cluster.deleted


def test_a_move_waits_for_the_writer_of_an_open_ledger() -> None:
    cluster = Cluster()
    fragments = Fragment(0, NAMES[:3]), Fragment(2, NAMES[:3])
    cluster.ledger = LedgerMetadata(Quorum(3, 3, 2), fragments)
    cluster.registered.add("b2")
    cluster.read_only = {"b2"}
    moves = frozenset({("b2", r.WHOLE_LEDGER)})
    cluster.task = r.Task(r.TaskQueue.MOVE, Version(1, 0), moves=moves)
    ended = cluster.run()
    assert ended.outcome is r.JobOutcome.WAITING
    assert "b2 is still in the last fragment" in ended.detail
    first, last = cluster.ledger.fragments
    assert ("b2" in first.ensemble, "b2" in last.ensemble) == (False, True)
    assert not cluster.deleted
    assert not cluster.is_closed


@pytest.mark.parametrize("digest", [DigestType.CRC32C, DigestType.DUMMY])
def test_a_striped_ledger_is_copied_entry_by_entry(digest: DigestType) -> None:
    cluster = Cluster(last=200, digest_type=digest)
    cluster.ledger = replace(
        cluster.ledger, quorum=Quorum(4, 2, 2), fragments=(Fragment(0, NAMES[:4]),)
    )
    for index, name in enumerate(NAMES[:4]):
        cluster.held[name] = {e for e in range(201) if (index - e) % 4 < 2}
    cluster.registered = {"b0", "b1", "b3", "b4"}
    ended = cluster.run()
    assert ended.outcome is r.JobOutcome.HEALED
    assert cluster.held["b4"] == cluster.held["b2"]
    assert len(cluster.asked(r.AddCopies)) < 10 or digest is DigestType.DUMMY


@pytest.mark.parametrize("accepted", [{0}, {0, 1}, {3}, {0, 1, 2, 3}])
def test_a_target_is_named_without_entries_that_were_given_up(accepted: set[int]) -> None:
    """AUTORECOVERY.md#X13: such an entry is listed, but a read of it forces no bookie."""
    cluster = Cluster()
    cluster.accepted = accepted
    for held in cluster.held.values():
        held.difference_update(accepted)
    assert cluster.run().outcome is r.JobOutcome.HEALED
    (name,) = set(cluster.ledger.fragments[0].ensemble) - {"b0", "b1"}
    assert cluster.held.get(name, set()) == {0, 1, 2, 3} - accepted
    forced = [one for one in cluster.sent if isinstance(one, r.ForceEntries)]
    assert bool(forced) == (accepted != {0, 1, 2, 3})


def test_bookies_without_lists_may_lack_entries_that_were_given_up() -> None:
    cluster = Cluster()
    cluster.accepted, cluster.unlisted = {0, 2}, set(NAMES)
    for held in cluster.held.values():
        held.difference_update(cluster.accepted)
    assert cluster.run().outcome is r.JobOutcome.HEALED
    (name,) = set(cluster.ledger.fragments[0].ensemble) - {"b0", "b1"}
    assert cluster.held[name] == {1, 3}


def test_a_damaged_entry_that_was_given_up_is_left_alone() -> None:
    cluster = Cluster()
    cluster.registered.add("b2")
    cluster.accepted = {1}
    cluster.task = r.Task(r.TaskQueue.HOLE, Version(1, 0), damaged=(r.DamagedCopies("b2", 0),))
    cluster.held["b0"].discard(1)
    cluster.held["b1"].discard(1)
    assert cluster.run().outcome is r.JobOutcome.HEALED
    added = [one for one in cluster.sent if isinstance(one, r.AddCopies)]
    assert [copy.entry_id for one in added for copy in one.copies] == [0, 2, 3]
    assert cluster.reports == [()]


def test_a_ledger_is_closed_although_an_earlier_fragment_finds_no_spare() -> None:
    """AUTORECOVERY.md#X9: after an hour without an entry, so it is not open for ever."""
    cluster = Cluster()
    metadata = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, NAMES[:3]), Fragment(2, NAMES[:3])))
    cluster.ledger, cluster.registered = metadata, {"b0", "b1"}
    ended = cluster.run()
    was_closed = cluster.is_closed
    assert (ended.outcome, was_closed) == (r.JobOutcome.NO_SPARE, False)
    cluster.quiet_ms = ReplicationSettings().quiet_ms
    assert cluster.run().outcome is r.JobOutcome.NO_SPARE
    assert cluster.is_closed
    waits = [one.delay_ms for one in cluster.sent if isinstance(one, m.StartTimer)]
    assert waits == [ReplicationSettings().grace_ms] * 2
