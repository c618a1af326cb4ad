"""Scripted schedules of writers with absent bookies (`test_counterexamples.py`).

There are exactly as many bookies as the ensemble needs, so no bookie can replace another one.
"""

from __future__ import annotations

from functools import partial

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.placement.absent_members import place_new
from ledgerlog_spark.protocol.placement.place import Placed, Unplaceable
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from tests.sim.checker import require
from tests.sim.options import LEDGER
from tests.sim.scripts import hold, lose, recover, world_with
from tests.sim.world import World

RETRIES_MS = 400
"""After this time without an answer, a bookie is absent."""


def confirm(world: World, entries: int) -> None:
    """Add entries one after the other, each when the one before it is confirmed."""
    first = world.checker.last_confirmed + 1
    for entry_id in range(first, first + entries):
        world.add()
        confirmed = world.run_until(partial(is_confirmed, world, entry_id), 1_000)
        require(confirmed, "SCRIPT", f"{entry_id} is not confirmed")


def is_confirmed(world: World, entry_id: int) -> bool:
    return world.checker.last_confirmed >= entry_id


def small_world(bookies: int = 3) -> World:
    """Return a world with few bookies, all of which are candidates."""
    world = world_with(bookies=bookies, rpc_timeout_ms=30)
    world.prefers.clear()
    return world


def with_absent() -> World:
    """Return a world in which b2 has died, is absent, and lacks the entries 2 and 3."""
    world = small_world()
    confirm(world, 2)
    world.kill("b2")
    world.faults.lasts("kill", 1 << 40)
    confirm(world, 2)
    world.run_for(RETRIES_MS)
    return world


def close(world: World) -> None:
    world.clients["w"].feed(m.CloseRequested())
    closed = world.run_until(lambda: world.checker.record.is_closed, 500)
    require(closed, "SCRIPT", "not closed")
    world.run_for(20)


def b20_a_returned_bookie_gets_only_what_is_after_its_hole() -> World:
    """b2 returns: a new fragment with the same ensemble begins, and b2 gets only its entries."""
    world = with_absent()
    world.restart("b2")
    world.run_for(200)
    first, last = world.checker.record.fragments
    require(first.ensemble == last.ensemble, "SCRIPT", f"{world.checker.record.fragments}")
    require(last.first_entry_id == 4, "SCRIPT", f"it begins at {last.first_entry_id}")
    confirm(world, 2)
    world.run_for(50)
    held = [entry_id for entry_id in range(6) if world.bookies["b2"].peek(LEDGER, entry_id)]
    require(held == [0, 1, 4, 5], "SCRIPT", f"b2 has {held}")
    close(world)
    return world


def b20_a_live_writer_is_whole_again_after_a_return() -> World:
    """b2 returns, and the writer goes on. The audit checks the copies of the last fragment."""
    world = with_absent()
    world.restart("b2")
    world.run_for(200)
    confirm(world, 2)
    return world


def b20_entries_without_the_absent_bookie_need_the_others() -> World:
    """While b2 is absent, b1 does not get the next entry, so it is not confirmed."""
    world = with_absent()
    hold(world, ("add", "w", "b1"))
    world.add()
    world.run_for(20)
    world.network.holds.clear()
    world.network.release(lambda _message: True)
    world.run_for(100)
    close(world)
    return world


def b9_a_writer_with_an_ack_quorum_goes_on_without_end() -> World:
    """b2 stays away for much longer than the retries, and entries are confirmed."""
    world = with_absent()
    world.run_for(2_000)
    confirm(world, 200)
    close(world)
    return world


def b21_a_new_ledger_names_few_absent_bookies() -> World:
    """Two of three bookies are away. Only one of them may be named, so no ledger is created."""
    world = small_world()
    policy, places, quorum = PlacementPolicy(), BookieMap(), Quorum(3, 3, 2)
    away: tuple[str, ...] = ("b1", "b2")
    found = place_new(quorum, ("b0",), away, places, policy)
    if isinstance(found, Unplaceable):
        away = ("b2",)
        found = place_new(quorum, ("b0", "b1"), away, places, policy)
    assert isinstance(found, Placed)
    world.kill("b2")
    world.faults.lasts("kill", 1 << 40)
    writer = world.create_ledger(
        quorum, found.ensemble, ledger_id=LEDGER + 1, name="w2", absent=away
    )
    checker = world.checkers.of(LEDGER + 1)
    for _ in range(3):
        world.add(name="w2")
    confirmed = world.run_until(lambda: checker.last_confirmed == 2, 500)
    require(confirmed, "SCRIPT", "not confirmed")
    world.restart("b2")
    world.run_for(200)
    require(len(checker.record.fragments) == 2, "SCRIPT", "b2 did not return")
    writer.feed(m.CloseRequested())
    world.run_for(50)
    close(world)
    return world


def b22_an_idle_writer_replaces_a_lost_member() -> World:
    """b2 dies while the writer is idle. The writer begins a fragment, and closes without it."""
    world = small_world(4)
    confirm(world, 2)
    world.kill("b2")
    world.tell_lost("b2")
    changed = world.run_until(lambda: len(world.checker.record.fragments) == 2, 200)
    require(changed, "SCRIPT", "b2 is not replaced")
    require("b2" not in world.checker.record.last_fragment.ensemble, "SCRIPT", "b2 is named")
    close(world)
    require(len(world.checker.record.fragments) == 1, "SCRIPT", "the empty fragment stays")
    return world


def b23_a_writer_reports_what_it_leaves() -> World:
    """b2 is absent when the ledger is closed."""
    world = with_absent()
    close(world)
    return world


def c24_a_recovery_reports_what_it_leaves() -> World:
    """b2 gets the entry neither from the writer nor from the recovery."""
    world = small_world()
    lose(world, ("add", "w", "b2"), ("add", "r", "b2"))
    world.add()
    world.run_for(10)
    world.clients["w"].crash()
    recover(world)
    closed = world.run_until(lambda: world.checker.record.is_closed, 500)
    require(closed, "SCRIPT", "not closed")
    world.run_for(50)
    return world


ABSENT_COUNTEREXAMPLES = [
    (b22_an_idle_writer_replaces_a_lost_member, "widens_the_record", "L10"),
    (
        b20_a_returned_bookie_gets_only_what_is_after_its_hole,
        "older_entries_to_the_returned",
        "L26",
    ),
    (b20_a_live_writer_is_whole_again_after_a_return, "returns_in_the_old_fragment", "V9"),
    (b20_entries_without_the_absent_bookie_need_the_others, "absent_counts_as_stored", "L4"),
    (b9_a_writer_with_an_ack_quorum_goes_on_without_end, "absent_bookie_ends_the_writer", "L35"),
    (b21_a_new_ledger_names_few_absent_bookies, "names_too_many_absent", "L42"),
    (b22_an_idle_writer_replaces_a_lost_member, "closes_with_an_empty_fragment", "L10"),
    (b23_a_writer_reports_what_it_leaves, "holes_are_forgotten", "L41"),
    (c24_a_recovery_reports_what_it_leaves, "recovery_reports_no_holes", "L41"),
]
