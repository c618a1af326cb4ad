"""Scripted schedules of clients whose bookies lost records. Each shows why one rule is needed."""

from __future__ import annotations

from dataclasses import replace

from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import require
from tests.sim.loss.setup import (
    LATER,
    ask,
    confirm,
    cut_power,
    later_ledger,
    lose_unsynced,
    loss_world,
    place_of,
    recover,
    serve,
    stay_broken,
    wipe,
)
from tests.sim.loss.worker import Worker
from tests.sim.loss.world import LossWorld
from tests.sim.network import matching
from tests.sim.options import LEDGER
from tests.sim.scripts import hold, lose


def _two_hold_it() -> LossWorld:
    """Return a world in which b0 and b1 acknowledged entry 0, and b2 never got it."""
    world = loss_world()
    lose(world, ("add", "w", "b2"))
    world.add()
    confirm(world, 0)
    world.clients["w"].crash()
    world.network.drops.clear()
    return world


def t4_what_may_be_lost_is_not_denied() -> LossWorld:
    """b0 loses entry 0 by a power loss. b1 has it, but recovery does not reach b1."""
    world = _two_hold_it()
    cut_power(world, "b0")
    stay_broken(world, "b0")
    serve(world, "b0")
    world.network.drops.append(matching("read", "r", "b1", 0))
    recover(world)
    world.run_for(300)
    return world


def t4_closes_below() -> LossWorld:
    """The same schedule, but the checker reports only the consequences of the wrong answer."""
    world = _two_hold_it()
    world.checkers.of(LEDGER).ignores_answers = True
    cut_power(world, "b0")
    stay_broken(world, "b0")
    serve(world, "b0")
    world.network.drops.append(matching("read", "r", "b1", 0))
    recover(world)
    world.run_for(300)
    return world


def t4_an_old_acknowledgement_is_under_way() -> LossWorld:
    """b1's acknowledgement is still under way when b1 loses the entry and repairs itself.

    b2 stores the entry. The writer gets the answers of both after the fence. Entry 0 of b0 is lost.
    """
    world = loss_world(rpc_timeout_ms=4_000)
    world.checkers.of(LEDGER).ignores_answers = True
    hold(world, ("add", "w", "b0"), ("add_reply", "b1", "w"), ("add", "w", "b2"))
    world.add()
    world.run_for(20)
    cut_power(world, "b1")
    world.run_for(150)
    world.network.holds = world.network.holds[:1]
    world.network.release(matching("add", "w", "b2"))
    world.run_for(10)
    world.network.drops.append(matching("read", "r", "b2", 0))
    recover(world)
    world.run_for(100)
    world.network.release(matching("add_reply", "b1"))
    world.run_for(200)
    return world


def _closed_without_b2() -> LossWorld:
    """Return a world in which a recovery fenced b0 and b1 and closed the ledger at entry 0.

    The writer is alive, and b0 does not get its next entry.
    """
    world = loss_world(rpc_timeout_ms=4_000)
    world.add()
    confirm(world, 0)
    lose(world, ("read", "r", "b2"))
    recover(world)
    world.run_until(lambda: world.checker.record.is_closed, 500)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    world.network.drops.clear()
    hold(world, ("add", "w", "b0"))
    return world


def t3_the_first_add_is_checked() -> LossWorld:
    """b1 is wiped, and loses its fence of the closed ledger. Then the writer goes on."""
    world = _closed_without_b2()
    world.checkers.of(LEDGER).ignores_answers = True
    stay_broken(world, "b1")
    wipe(world, "b1")
    serve(world, "b1")
    world.add()
    world.run_for(100)
    return world


def t3_a_repaired_ledger_is_checked_too() -> LossWorld:
    """The same, after b1 has repaired the ledger."""
    world = _closed_without_b2()
    wipe(world, "b1")
    serve(world, "b1")
    repaired = world.run_until(lambda: not world.bookies["b1"].is_in_doubt, 500)
    require(repaired, "SCRIPT", "b1 is not repaired")
    world.add()
    world.run_for(100)
    return world


def t3_the_check_reads_the_newest_record() -> LossWorld:
    """b1 is wiped after the ledger is marked IN_RECOVERY, when a server still has it as OPEN."""
    world = loss_world(rpc_timeout_ms=4_000)
    world.add()
    confirm(world, 0)
    hold(world, ("read", "r", "b0"), ("cas", "r", "zk"), ("add", "w", "b0"))
    world.network.holds[1] = matching("read", "r", "b2")
    lose(world, ("read", "r", "b2"))
    recover(world)
    world.run_for(20)
    record = world.checker.record
    require(record.state is LedgerState.IN_RECOVERY, "SCRIPT", f"it is {record.state.name}")
    stay_broken(world, "b1")
    wipe(world, "b1")
    serve(world, "b1")
    world.network.release(matching("read", "r", "b0"))
    world.network.holds = [matching("add", "w", "b0")]
    world.add()
    world.run_for(100)
    return world


def t37_a_bookie_that_no_fragment_names_checks_too() -> LossWorld:
    """Recovery replaces b1 and b2 by b4 and b3. Then b1 is wiped, and the writer's adds arrive."""
    world = loss_world(rpc_timeout_ms=10_000, hedge_ms=10_000)
    world.checkers.of(LEDGER).ignores_answers = True
    hold(world, ("add", "w", "b1"), ("add", "w", "b2"))
    world.network.holds.append(matching("add", "w", "b0", 1))
    world.add()
    world.add()
    world.run_for(10)
    world.options = replace(world.options, rpc_timeout_ms=60)  # of the recovery
    lose(world, ("read", "r", "b2"), ("add", "r", "b2"), ("add_reply", "b1", "r"))
    world.prefers["r"] = ("b4", "b3")
    recover(world)
    world.run_until(lambda: world.checker.record.is_closed, 2_000)
    ensemble = world.checker.record.last_fragment.ensemble
    is_swapped = world.checker.record.is_closed and not {"b1", "b2"} & set(ensemble)
    require(is_swapped, "SCRIPT", f"{world.checker.record.state.name} on {ensemble}")
    world.network.drops.clear()
    world.network.holds.clear()
    wipe(world, "b1")
    serve(world, "b1")
    for name in ("b1", "b2"):
        world.network.release(matching("add", "w", name))
    world.run_for(100)
    return world


def t34_nobody_closes_what_an_ack_quorum_may_have_lost() -> LossWorld:
    """b0 and b1 acknowledged entry 0, and both lose it. b2 never had it."""
    world = _two_hold_it()
    world.checkers.of(LEDGER).ignores_answers = True
    cut_power(world, "b0")
    cut_power(world, "b1")
    recover(world)
    world.run_for(300)
    recover(world, "r2")
    world.run_for(300)
    return world


def t38_a_closing_write_names_what_was_lost() -> LossWorld:
    """b3 stores a write-back and loses it before the closing write names b3."""
    world = loss_world()
    lose(world, ("add", "w", "b2"))
    world.add()
    confirm(world, 0)
    world.clients["w"].crash()
    world.network.drops.clear()
    world.network.drops += [
        matching("add", "r", "b1", is_recovery=True),
        matching("add", "r", "b2", is_recovery=True),
        matching("add", "r", "b4", is_recovery=True),
    ]
    recover(world)
    world.run_until(lambda: world.checker.record.state is LedgerState.IN_RECOVERY, 100)
    world.network.holds.append(matching("cas", "r", "zk"))
    world.run_for(200)
    require(bool(world.network.held), "SCRIPT", "recovery does not close")
    cut_power(world, "b3")
    serve(world, "b3")
    world.run_for(60)
    world.network.holds.clear()
    world.network.release(matching("cas", "r", "zk"))
    world.run_for(10)
    fragment = world.checker.record.last_fragment
    require("b3" in fragment.ensemble, "SCRIPT", f"closed with {fragment}")
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    world.kill("b0")
    ask(world, "b3", 0)
    return world


def _moved_to_b3(*, is_apache: bool) -> LossWorld:
    """Return a world in which a worker has copied entry 0 of the closed ledger from b2 to b3.

    The write that replaces b2 by b3 is under way.
    """
    world = loss_world()
    world.add()
    confirm(world, 0)
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(30)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    hold(world, ("cas", "worker", "zk"))
    world.bookies["b3"].sync_us = (5_000, 5_000)
    worker = Worker(world, "worker", LEDGER, is_apache=is_apache)
    worker.begin(0, "b2", "b3")
    is_copied = world.run_until(lambda: bool(world.network.held), 200)
    require(is_copied, "SCRIPT", "the worker gives up")
    return world


def _write_of_the_worker(world: LossWorld) -> LossWorld:
    """Let b3 end its repair. Then let the worker write the record, and read entry 0 from b3."""
    serve(world, "b3")
    world.run_for(100)
    world.network.holds.clear()
    world.network.release(matching("cas"))
    world.run_for(10)
    ask(world, "b3", 0)
    return world


def a_power_loss_takes_no_recovery_add() -> LossWorld:
    """b3 loses power after it took the copy of Apache's worker, before the record names it."""
    world = _moved_to_b3(is_apache=True)
    lose_unsynced(world, "b3")
    return _write_of_the_worker(world)


def a_worker_names_no_bookie_that_began_a_doubt() -> LossWorld:
    """b3 is wiped after it took the copy of our worker, before the record names it."""
    world = _moved_to_b3(is_apache=False)
    wipe(world, "b3")
    return _write_of_the_worker(world)


def a_repair_begins_after_the_node_of_its_doubt() -> LossWorld:
    """b3 loses the copy of our worker while it serves, and cannot write its node at first."""
    world = _moved_to_b3(is_apache=False)
    hold(world, ("write_node", "b3", "zk"))
    world.bookies["b3"].lose_record_at(place_of(world, "b3", LEDGER))
    world.run_for(100)
    world.network.holds = [matching("write_node", "b3", "zk")]
    world.network.release(matching("cas"))
    world.run_for(10)
    ask(world, "b3", 0)
    return world


def new_ledgers_close_after_three_losses() -> LossWorld:
    """All three bookies lose power, and repair nothing. A ledger that is created later closes."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0", "b1", "b2")
    for name in ("b0", "b1", "b2"):
        cut_power(world, name)
        serve(world, name)
    world.run_for(10)
    later_ledger(world)
    world.clients["v"].crash()
    recover(world, "s", LATER)
    world.run_for(40)
    is_closed = world.store.records[LATER].value.is_closed
    require(is_closed, "V1", "a ledger that is newer than all losses does not close")
    return world


def the_writer_of_an_active_ledger_is_not_fenced() -> LossWorld:
    """b0 loses entry 0. The writer goes on."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    cut_power(world, "b0")
    serve(world, "b0")
    for last in range(1, 30):
        world.add()
        confirm(world, last)
    return world


def a_ledger_without_a_writer_leaves_limbo() -> LossWorld:
    """b0 loses entry 0, and the writer is dead. Nobody else recovers the ledger."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    world.clients["w"].crash()
    cut_power(world, "b0")
    serve(world, "b0")
    ended = world.run_until(lambda: not world.bookies["b0"].is_in_doubt, 2_000)
    require(ended, "R2", "b0 stays in limbo")
    return world


def only_its_writer_can_close_what_an_ack_quorum_may_have_lost() -> LossWorld:
    """b0 and b1 lose power under an idle writer, one after the other. Later, the writer closes."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    cut_power(world, "b0")
    serve(world, "b0")
    world.add()
    confirm(world, 1)
    cut_power(world, "b1")
    serve(world, "b1")
    world.run_for(300)
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(50)
    require(world.checker.record.is_closed, "V1", "the writer could not close its ledger")
    ended = world.run_until(
        lambda: not any(world.bookies[name].is_in_doubt for name in ("b0", "b1")), 2_000
    )
    require(ended, "R2", "in limbo after the close")
    return world


def a_recovery_closes_only_the_record_that_it_read() -> LossWorld:
    """Only b0 has entry 0. r finds it absent on b1 and b2, and its close is delayed.

    Meanwhile, r2 finds the entry on b0 and closes the ledger, and a tool reopens it.
    """
    world = loss_world(rpc_timeout_ms=1_000, hedge_ms=10_000)
    lose(world, ("add", "w", "b1"), ("add", "w", "b2"))
    lose(world, ("read", "r", "b0"), ("read", "r2", "b1"), ("load", "tool", "zk"))
    world.add()
    world.run_for(10)
    world.clients["w"].crash()
    world.recoverer("r").feed(m.Start())
    reads = world.run_until(lambda: "READING" in world.clients["r"].machine.phase.name, 50)
    require(reads, "SCRIPT", "r does not read")
    hold(world, ("cas", "r", "zk"))
    world.run_for(20)
    recover(world, "r2")
    closed = world.run_until(lambda: world.checker.record.is_closed, 200)
    require(closed and world.checker.record.last_entry_id == 0, "SCRIPT", "r2 does not close at 0")
    world.force("tool", LEDGER)
    world.run_for(5)
    require(world.checker.record.state is LedgerState.IN_RECOVERY, "SCRIPT", "it is not reopened")
    world.network.drops.clear()
    world.network.holds.clear()
    world.network.release(matching("cas"))
    world.run_for(1_500)
    return world
