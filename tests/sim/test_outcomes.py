"""The reports of clients in rare situations, which must be true and precise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerlog_spark.model import NO_ENTRY, Quorum
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.messages import Failure
from ledgerlog_spark.protocol.ledger.read.lac import LacPhase, LacReader
from ledgerlog_spark.protocol.ledger.recover.recovery import RecoveryPhase
from tests.fixtures.kinds import now
from tests.sim.blame import judge
from tests.sim.checker import Violation
from tests.sim.network import matching
from tests.sim.scripts import hold, lose, recover, world_with

LONG_US = 1 << 40


def test_a_close_that_finds_another_end_reports_it() -> None:
    """The writer got no answer for its entries, and recovery closed the ledger with all of them."""
    world = world_with(rpc_timeout_ms=2_000)
    lose(world, *(("add_reply", name, "w") for name in ("b0", "b1", "b2")))
    world.add()
    world.run_for(10)
    recover(world)
    assert world.run_until(lambda: "r" in world.checker.ends, 300)
    writer = world.clients["w"]
    writer.feed(m.CloseRequested())
    world.run_for(100)
    assert isinstance(writer.ended, m.LedgerFailed)
    assert writer.ended.failure is Failure.CLOSED
    world.audit()


def test_a_close_of_unknown_outcome_is_told_from_the_close_of_another() -> None:
    """The writer's close is lost. Recovery closes after entries without an answer to the writer."""
    world = world_with(rpc_timeout_ms=40)
    world.faults.lasts("partition", LONG_US)
    lose(world, *(("add_reply", name, "w") for name in ("b0", "b1", "b2")))
    lose(world, ("cas", "w", "zk"))
    world.add()
    world.run_for(10)
    writer = world.clients["w"]
    writer.feed(m.CloseRequested())
    recover(world)
    assert world.run_until(lambda: writer.ended is not None, 500)
    assert world.checker.record.last_entry_id == 0
    assert isinstance(writer.ended, m.LedgerFailed)
    assert writer.ended.failure is Failure.CLOSED
    world.audit()


def test_a_recovery_goes_on_without_a_bookie_that_has_no_successor() -> None:
    """Recovery does not wait for this bookie. Otherwise no further entry would fit the window."""
    world = world_with(bookies=3, rpc_timeout_ms=2_000)
    lose(world, *(("add_reply", name, "w") for name in ("b0", "b1", "b2")))
    for _ in range(6):
        world.add()
    world.run_for(10)
    world.clients["w"].crash()
    world.kill("b2")
    world.options = replace(world.options, window_entries=1)
    recover(world)
    recovery = world.clients["r"]
    assert world.run_until(lambda: recovery.ended is not None, 1_000)
    assert isinstance(recovery.ended, m.LedgerClosed)
    assert world.checker.record.last_entry_id == 5
    world.audit()


def test_a_recovery_goes_on_behind_a_late_batch_of_what_seemed_absent() -> None:
    """b0 alone has four entries. Two are on their way back when b1 and b2 deny that the third
    exists.
    """
    world = world_with(rpc_timeout_ms=2_000, recovery_batch_entries=2)
    lose(world, ("add", "w", "b1"), ("add", "w", "b2"))
    for _ in range(4):
        world.add()
    world.run_for(10)
    world.clients["w"].crash()
    hold(world, ("add", "r", "b1"), ("add", "r", "b2"), ("read_reply", "b1", "r"))
    late = [matching(kind, "b0", "r", 2) for kind in ("read_batch_reply", "read_reply")]
    world.network.holds += late
    recover(world)
    recovery = world.clients["r"]
    of_others = matching("read_reply", "b1", "r", 2)
    denied = world.run_until(lambda: any(map(of_others, world.network.held)), 200)
    assert denied, "no batch was given up"
    world.network.release(matching("read_reply", "b1"))
    world.run_for(10)
    assert now(recovery.ended) is None
    world.network.release(late[0])
    world.run_for(10)
    world.network.holds.clear()
    world.network.release(lambda _: True)
    assert world.run_until(lambda: recovery.ended is not None, 500)
    assert isinstance(recovery.ended, m.LedgerClosed)
    assert world.checker.record.last_entry_id == 3
    world.audit()


def test_a_close_that_an_earlier_attempt_may_have_made_is_not_denied() -> None:
    """The first attempt's close is late, the second fences nobody, the third finds no record."""
    world = world_with(rpc_timeout_ms=20, metadata_attempts_max=3)
    world.faults.lasts("partition", LONG_US)
    world.add()
    world.run_for(10)
    world.clients["w"].crash()
    recover(world, attempts_max=3)
    recovery = world.clients["r"]
    assert world.run_until(lambda: recovery.machine.phase is RecoveryPhase.FENCING, 200)
    hold(world, ("cas", "r", "zk"))
    lose(world, ("load", "r", "zk"))
    assert world.run_until(lambda: recovery.machine.phase is RecoveryPhase.WAITING, 1_000)
    world.network.drops.clear()
    lose(world, *(("read", "r", name) for name in ("b0", "b1", "b2")))
    assert world.run_until(
        lambda: recovery.machine.attempts == 2 and recovery.machine.phase is RecoveryPhase.FENCING,
        1_000,
    )
    world.network.holds.clear()
    world.network.release(matching("cas", "r"))
    assert world.run_until(lambda: world.checker.record.is_closed, 15)
    world.delete_ledger()
    assert world.run_until(lambda: recovery.ended is not None, 1_000)
    assert isinstance(recovery.ended, m.LedgerFailed)
    assert recovery.ended.failure is Failure.NOT_FOUND
    assert not recovery.ended.is_definite


def test_a_lac_read_knows_what_was_confirmed_before_the_last_fragment() -> None:
    """E2/Qw2/Qa2. Both bookies were replaced, and their successors have nothing yet."""
    world = world_with(Quorum(2, 2, 2))
    world.prefers["w"] = ("b3", "b4")
    world.add(3)
    world.run_for(20)
    lose(world, ("add", "w", "b0"), ("add", "w", "b1"))
    hold(world, ("add", "w", "b3"), ("add", "w", "b4"))
    world.add()
    world.run_for(100)
    assert world.checker.record.last_fragment.ensemble == ("b3", "b4")
    tail = world.lac_reader("tail", world.checker.record)
    world.run_for(20)
    assert isinstance(tail.ended, m.LacRead)
    assert tail.ended.last_add_confirmed == 2
    world.network.holds.clear()
    world.network.release(matching("add"))
    world.audit()


def test_an_entry_that_one_replica_denies_and_the_others_do_not_answer_for_is_unknown() -> None:
    """b0 never had the entry. b1 and b2 have it, but their answers are lost."""
    world = world_with()
    world.faults.lasts("partition", LONG_US)
    lose(world, ("add", "w", "b0"))
    world.add()
    world.run_for(20)
    assert world.checker.last_confirmed == 0
    for name in ("b1", "b2"):
        lose(world, ("read", "reader", name), ("read_batch", "reader", name))
    reader = world.reader("reader", world.checker.record, 0)
    assert world.run_until(lambda: reader.ended is not None, 5_000)
    assert isinstance(reader.ended, m.ReadFailed)
    assert reader.ended.failure is Failure.ENTRY_UNKNOWN
    world.network.drops.clear()
    world.audit()


def test_a_writer_that_may_change_no_ensemble_waits_for_a_bookie_that_is_busy() -> None:
    """The bookie is busy so long that it would otherwise be replaced."""
    world = world_with(ensemble_changes_max=0)
    world.bookies["b2"].refuses_adds = True
    world.add()
    world.run_for(13_000)
    writer = world.clients["w"]
    assert writer.ended is None
    assert world.checker.last_confirmed == 0
    world.bookies["b2"].refuses_adds = False
    world.audit()


@pytest.mark.parametrize(
    "failure", [Failure.BOOKIE_FAILED, Failure.NOT_ENOUGH_BOOKIES, Failure.TOO_MANY_CHANGES]
)
def test_a_failure_in_a_calm_cluster_is_explained_by_nothing(failure: Failure) -> None:
    """The first starts of the bookies, which every schedule has, do not explain it either."""
    world = world_with()
    world.add()
    world.run_for(20)
    failed = m.LedgerFailed(failure, is_definite=True, last_add_confirmed=NO_ENTRY)
    with pytest.raises(Violation, match="no fault in its time"):
        judge(world.clients["w"], m.Start(), failed, world.checker, world.faults)
    world.kill("b0")
    judge(world.clients["w"], m.Start(), failed, world.checker, world.faults)
    world.restart("b0")
    world.audit()


def test_a_lac_that_a_bookie_told_is_not_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds for the LAC of a ledger without entries."""
    world = world_with()
    monkeypatch.setattr(LacReader, "_finish", _unknown)
    world.lac_reader("lac", world.checker.record)
    with pytest.raises(Violation, match="a bookie told it a LAC"):
        world.run_for(20)


def _unknown(reader: LacReader, *, is_covered_now: bool) -> list[m.LedgerFailed]:
    reader.phase = LacPhase.DONE
    return [m.LedgerFailed(Failure.LAC_UNKNOWN, is_definite=is_covered_now)]


def test_changed_metadata_is_explained_only_by_a_write_of_another_client() -> None:
    world = world_with()
    world.add()
    world.run_for(20)
    recover(world)
    recovery = world.clients["r"]
    assert world.run_until(lambda: recovery.machine.phase is RecoveryPhase.READING, 100)
    failure = Failure.METADATA_CHANGED
    failed = m.LedgerFailed(failure, is_definite=False, last_add_confirmed=0, is_retriable=True)
    with pytest.raises(Violation, match="only it wrote"):
        judge(recovery, m.Start(), failed, world.checker, world.faults)
    name, last = world.checker.records[-1]
    assert name == "r"
    later = replace(last.version, number=last.version.number + 1)
    world.checker.records.append(("h0", replace(last, version=later)))
    judge(recovery, m.Start(), failed, world.checker, world.faults)
