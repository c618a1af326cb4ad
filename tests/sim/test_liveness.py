"""Maximum durations, in virtual time, if a bookie or the store never comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledgerlog_spark.protocol.ledger import messages as m
from tests.fixtures.kinds import now
from tests.sim.faults import JITTER
from tests.sim.options import Options
from tests.sim.world import World

DEADLINE_MS = 100
CHANGE_MS = 10
"""Time of an ensemble change: the list of bookies and one compare-and-swap, with 1 ms per trip."""


def serving(bookies: int = 5, **others: Any) -> World:
    options = replace(
        Options(), bookies=bookies, window_entries=64, rpc_timeout_ms=DEADLINE_MS, **others
    )
    world = World(1, options, suppressed=frozenset({JITTER}))
    world.create_ledger(options.quorum, ("b0", "b1", "b2"))
    for bookie in world.bookies.values():
        bookie.start()
    world.run_for(20)
    return world


def confirmed_within(world: World, entries: int, within_ms: int) -> bool:
    return world.run_until(lambda: world.checker.last_confirmed == entries - 1, within_ms)


def test_a_silent_bookie_stops_writes_for_no_longer_than_one_change() -> None:
    world = serving()
    world.network.part(("b2",), ("w",), both_ways=True)
    longest_us = 0
    for entry_id in range(60):
        began_us = world.scheduler.now_us
        world.add()
        assert confirmed_within(world, entry_id + 1, DEADLINE_MS)
        longest_us = max(longest_us, world.scheduler.now_us - began_us)
        world.run_for(5)
    assert longest_us <= CHANGE_MS * 1_000
    assert "b2" not in world.checker.record.last_fragment.ensemble
    world.audit()


def test_a_dead_bookie_is_replaced_and_writes_go_on() -> None:
    world = serving()
    world.kill("b0")
    for _ in range(10):
        world.add()
    assert confirmed_within(world, 10, CHANGE_MS)
    assert world.clients["w"].machine.ensemble_changes == 1
    world.audit()


def test_without_a_spare_writes_go_on_until_a_dead_bookie_is_back_with_what_it_missed() -> None:
    world = serving(bookies=3)
    world.kill("b0")
    for _ in range(10):
        world.add()
    assert confirmed_within(world, 10, CHANGE_MS)
    world.restart("b0")
    writer = world.clients["w"].machine
    assert world.run_until(lambda: writer._pipeline.entries_in_flight == 0, 1_000)
    assert writer.ensemble_changes == 0
    assert all(world.bookies["b0"].peek(7, entry_id) is not None for entry_id in range(10))
    world.audit()


def test_without_a_spare_writes_never_stop_while_an_ack_quorum_answers() -> None:
    """No add waits for a bookie that is away: before, after and when the window is full."""
    world = serving(bookies=3)
    world.kill("b0")
    longest_us = 0
    for entry_id in range(300):
        began_us = world.scheduler.now_us
        world.add()
        assert confirmed_within(world, entry_id + 1, DEADLINE_MS)
        longest_us = max(longest_us, world.scheduler.now_us - began_us)
        world.run_for(10)
    assert longest_us <= CHANGE_MS * 1_000
    writer = world.clients["w"].machine
    assert writer.absent_bookies == ("b0",)
    assert writer._pipeline.entries_in_flight == 0
    world.restart("b0")
    assert world.run_until(lambda: not writer.absent_bookies, 1_000)
    assert writer.ensemble_changes == 1
    world.add()
    assert confirmed_within(world, 301, DEADLINE_MS)
    world.run_for(10)
    assert world.bookies["b0"].peek(7, 300) is not None
    assert world.bookies["b0"].peek(7, 299) is None
    world.audit()


def test_without_an_ack_quorum_the_writer_gives_up_after_a_bounded_time() -> None:
    world = serving(bookies=3)
    world.add()
    assert confirmed_within(world, 1, DEADLINE_MS)
    for name in ("b0", "b1"):
        world.kill(name)
    world.add()
    writer = world.clients["w"]
    assert world.run_until(lambda: writer.ended is not None, 2_000)
    assert isinstance(writer.ended, m.LedgerFailed)
    assert writer.ended.failure is m.Failure.NOT_ENOUGH_BOOKIES
    assert world.checker.last_confirmed == 0
    writer.feed(m.CloseRequested())
    assert world.run_until(lambda: world.checker.record.is_closed, 100)
    world.audit()


def test_recovery_needs_no_deadline_to_pass_when_one_bookie_is_gone() -> None:
    world = serving()
    for _ in range(20):
        world.add()
    assert confirmed_within(world, 20, 20)
    world.clients["w"].crash()
    world.kill("b1")
    recovery = world.recoverer("r")
    recovery.feed(m.Start())
    assert world.run_until(lambda: recovery.ended is not None, DEADLINE_MS)
    assert isinstance(recovery.ended, m.LedgerClosed)
    world.audit()


def test_duelling_recoveries_all_end_with_the_same_answer() -> None:
    world = serving()
    for _ in range(8):
        world.add()
    world.run_for(1)
    rivals = [world.recoverer(f"r{number}") for number in range(6)]
    for rival in rivals:
        rival.feed(m.Start())
    assert world.run_until(lambda: all(rival.ended for rival in rivals), 500)
    ends = {
        (rival.ended.versioned.value.last_entry_id, rival.ended.versioned.value.length)
        for rival in rivals
        if isinstance(rival.ended, m.LedgerClosed)
    }
    assert len(ends) == 1
    assert all(isinstance(rival.ended, m.LedgerClosed) for rival in rivals)
    world.audit()


def test_an_add_without_its_quorum_is_waited_for_no_longer_than_twice_what_is_allowed() -> None:
    """The first add starts the timer, which must also limit the last add."""
    world = serving(bookies=3, add_quorum_timeout_ms=200)
    world.add()
    assert confirmed_within(world, 1, DEADLINE_MS)
    world.faults.lasts("partition", 1 << 40)
    world.network.part(("w",), ("b1", "b2"), both_ways=True)
    world.add()
    writer = world.clients["w"]
    assert world.run_until(lambda: writer.ended is not None, 2 * 200 + 1)
    assert isinstance(writer.ended, m.LedgerFailed)
    assert writer.ended.failure is m.Failure.ADD_TIMEOUT
    world.audit()


def test_a_recovery_waits_for_bookies_that_are_busy() -> None:
    world = serving(bookies=3)
    world.add()
    assert confirmed_within(world, 1, DEADLINE_MS)
    world.clients["w"].crash()
    for name in ("b1", "b2"):
        world.bookies[name].refuses_adds = True
    recovery = world.recoverer("r", attempts_max=1)
    recovery.feed(m.Start())
    world.run_for(15)
    assert now(recovery.ended) is None
    for name in ("b1", "b2"):
        world.bookies[name].refuses_adds = False
    assert world.run_until(lambda: recovery.ended is not None, 500)
    assert isinstance(recovery.ended, m.LedgerClosed)
    world.audit()
