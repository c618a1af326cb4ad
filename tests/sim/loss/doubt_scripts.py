"""Scripted schedules of one bookie that lost records. Each shows why one rule is needed."""

from __future__ import annotations

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
    serve,
    stay_broken,
    wipe,
)
from tests.sim.loss.world import LossWorld
from tests.sim.network import matching
from tests.sim.options import LEDGER
from tests.sim.scripts import hold, lose


def a_wiped_bookie_has_no_lac() -> LossWorld:
    """b1 is wiped. A reader that reaches only b1 asks for the LAC."""
    world = loss_world()
    world.add(3)
    confirm(world, 2)
    world.add()
    confirm(world, 3)
    stay_broken(world, "b1")
    wipe(world, "b1")
    serve(world, "b1")
    lose(world, ("read_lac", "l", "b0"), ("read_lac", "l", "b2"))
    world.lac_reader("l", world.checker.record)
    world.run_for(100)
    return world


def what_is_lost_while_serving_is_older_than_its_doubt() -> LossWorld:
    """b0 loses entry 0 of a ledger that was created after b0 registered."""
    world = loss_world()
    later_ledger(world)
    world.run_for(40)
    bookie = world.bookies["b0"]
    stay_broken(world, "b0")
    bookie.lose_record_at(place_of(world, "b0", LATER))
    world.run_for(20)
    ask(world, "b0", 0, LATER)
    return world


def a_new_id_is_no_proof() -> LossWorld:
    """b0 loses everything of ledger 8, so it has only records of ledger 7."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    later_ledger(world)
    stay_broken(world, "b0")
    cut_power(world, "b0", ledger_id=LATER)
    serve(world, "b0")
    ask(world, "b0", 0, LATER)
    return world


def a_clock_is_no_proof() -> LossWorld:
    """The clock of the ledger's creator is ahead of the clock of b0."""
    world = loss_world()
    world.store.skew_ms = 1_000
    later_ledger(world)
    stay_broken(world, "b0")
    cut_power(world, "b0", ledger_id=LATER)
    serve(world, "b0")
    ask(world, "b0", 0, LATER)
    return world


def an_answer_covers_no_later_loss() -> LossWorld:
    """b0 requests the creation of ledger 8. Before the answer arrives, b0 loses entry 0 of it."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    world.run_for(40)
    bookie = world.bookies["b0"]
    stay_broken(world, "b0")
    hold(world, ("write_node_reply", "zk", "b0"))
    bookie.lose_record_at(place_of(world, "b0", LEDGER))
    world.run_for(4)
    later_ledger(world)
    world.network.holds.clear()
    world.network.release(matching("write_node_reply"))
    world.run_for(5)
    hold(world, ("bookie_load_reply", "zk", "b0"))
    bookie.read_lac(LATER, lambda *_: None)
    world.run_for(5)
    bookie.lose_record_at(place_of(world, "b0", LATER))
    world.network.holds.clear()
    world.network.release(matching("bookie_load_reply"))
    world.run_for(2)
    ask(world, "b0", 0, LATER)
    return world


def a_record_that_is_made_again_looks_new() -> LossWorld:
    """b0 loses entry 0. Then an operator makes the record of the ledger again, from a backup."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0")
    cut_power(world, "b0")
    serve(world, "b0")
    world.run_for(10)
    world.store.recreate(LEDGER)
    ask(world, "b0", 0)
    return world


def a_copy_younger_than_the_counter_looks_current() -> LossWorld:
    """The directory of b0 is replaced by a copy that is younger than the last counted start."""
    world = loss_world()
    world.run_for(40)
    bookie = world.bookies["b0"]
    copy = bookie.directory.copied()
    bookie.count_starts = False
    world.add()
    confirm(world, 0)
    world.run_for(60)
    stay_broken(world, "b0")
    world.replace_directory("b0", copy, "older copy")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def a_new_state_begins_in_limbo() -> LossWorld:
    """b0 loses entry 0 and all it had of the ledger. The writer goes on, so b0 gets entry 1."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0")
    cut_power(world, "b0")
    serve(world, "b0")
    world.add()
    confirm(world, 1)
    ask(world, "b0", 0)
    return world


def a_listing_that_is_not_whole_ends_no_doubt() -> LossWorld:
    """b0 cannot list the ledgers."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0")
    cut_power(world, "b0")
    serve(world, "b0")
    world.run_for(100)
    ask(world, "b0", 0)
    return world


def an_old_listing_ends_no_doubt() -> LossWorld:
    """b0 loses entry 0 of the newest ledger, and lists the ledgers."""
    world = loss_world()
    later_ledger(world)
    cut_power(world, "b0", ledger_id=LATER)
    serve(world, "b0")
    world.run_for(100)
    ask(world, "b0", 0, LATER)
    return world


def a_ledger_in_limbo_has_a_durable_state() -> LossWorld:
    """b0 syncs before it answers. It is wiped, its doubt ends, and then it loses power.

    The power loss raises no doubt. So the state of the ledger must be durable before the end.
    """
    world = loss_world(weak_part=0.0)
    world.add()
    confirm(world, 0)
    wipe(world, "b0")
    bookie = world.bookies["b0"]
    bookie.sync_us = (5_000, 5_000)
    for other in world.bookies:
        lose(world, ("fetch", "b0", other))
    ended = world.run_until(lambda: bookie.is_serving and bookie.doubt.is_over, 1_000)
    require(ended, "SCRIPT", "the doubt lasts")
    lose_unsynced(world, "b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def the_state_in_memory_may_come_from_a_lost_record() -> LossWorld:
    """b0 loses its only record of the ledger while it serves. Its doubt ends, and it is killed."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    world.run_for(40)
    bookie = world.bookies["b0"]
    for other in world.bookies:
        lose(world, ("fetch", "b0", other))
    bookie.lose_record_at(place_of(world, "b0", LEDGER))
    world.run_for(10)
    ended = world.run_until(lambda: bookie.doubt.is_over, 1_000)
    require(ended, "SCRIPT", "the doubt lasts")
    world.run_for(10)
    world.kill("b0")
    world.restart("b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def a_bookie_that_does_not_answer_denies_nothing() -> LossWorld:
    """b0 loses entry 0 of a closed ledger, and does not reach b1 and b2."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(20)
    for other in world.bookies:
        lose(world, ("fetch", "b0", other))
    cut_power(world, "b0")
    serve(world, "b0")
    world.run_for(150)
    ask(world, "b0", 0)
    return world


def a_second_crash_keeps_the_doubt() -> LossWorld:
    """b0 dies again, right after its start in doubt."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0")
    cut_power(world, "b0")
    serve(world, "b0")
    world.kill("b0")
    world.restart("b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def the_last_run_decides() -> LossWorld:
    """b0 ran without syncs and lost power."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0")
    cut_power(world, "b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def an_empty_directory_is_not_new() -> LossWorld:
    """b0 is wiped."""
    world = loss_world()
    world.add()
    confirm(world, 0)
    stay_broken(world, "b0")
    wipe(world, "b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def an_older_copy_of_the_same_run_is_noticed() -> LossWorld:
    """The directory of b0 is replaced by a copy that the same process wrote before entry 0."""
    world = loss_world()
    world.run_for(40)
    copy = world.bookies["b0"].directory.copied()
    world.add()
    confirm(world, 0)
    world.run_for(60)
    stay_broken(world, "b0")
    world.replace_directory("b0", copy, "older copy")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def _killed_in_a_failing_sync(*, knows: bool) -> LossWorld:
    """Return a world in which a sync of b0 failed, and b0 was killed and started again.

    `knows` is whether the process recorded the failure.
    """
    world = loss_world()
    world.dies_unaware = not knows
    world.failing.add("b0")
    world.add()
    failed = world.run_until(lambda: not world.bookies["b0"].is_up, 100)
    require(failed, "SCRIPT", "no sync failed")
    serve(world, "b0")
    return world


def a_kill_during_a_failing_sync_proves_nothing() -> LossWorld:
    """b0 is killed before it can record that a sync failed. Later, it loses power when it is idle.

    The page cache still has entry 0 after the kill, and a second sync succeeds.
    """
    world = _killed_in_a_failing_sync(knows=False)
    stay_broken(world, "b0")
    world.run_for(100)
    world.kill("b0", power=True)
    world.restart("b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world


def what_only_the_cache_has_is_not_held() -> LossWorld:
    """b0 begins in doubt, repairs the ledger after its close, and then loses power."""
    world = _killed_in_a_failing_sync(knows=True)
    world.clients["w"].feed(m.CloseRequested())
    repaired = world.run_until(lambda: not world.bookies["b0"].is_in_doubt, 1_000)
    require(repaired, "SCRIPT", "b0 is not repaired")
    world.run_for(100)
    world.kill("b0", power=True)
    world.restart("b0")
    serve(world, "b0")
    ask(world, "b0", 0)
    return world
