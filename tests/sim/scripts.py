"""Helpers of scripted schedules, and the scripts about liveness and wrong fences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import require
from tests.sim.faults import JITTER
from tests.sim.network import matching
from tests.sim.options import LEDGER, Options
from tests.sim.world import World

CALM = Options(bookies=6, window_entries=64, rpc_timeout_ms=50)
Script = Callable[[], World]


def world_with(
    quorum: Quorum = CALM.quorum, *, ensemble: tuple[str, ...] | None = None, **options: Any
) -> World:
    """Return a cluster without faults, with the writer of a new ledger on b0, b1, ..."""
    world = World(1, replace(CALM, **options), suppressed=frozenset({JITTER}))
    world.create_ledger(quorum, ensemble or tuple(f"b{i}" for i in range(quorum.ensemble_size)))
    world.prefers["*"] = ("b3", "b4", "b5")
    for bookie in world.bookies.values():
        bookie.start()
    world.run_for(20)
    return world


def recover(world: World, name: str = "r", *, attempts_max: int = 1) -> None:
    world.recoverer(name, attempts_max=attempts_max).feed(m.Start())


def lose(world: World, *matches: tuple[str, str, str]) -> None:
    """Lose all messages of these (kind, source, target) triples."""
    for kind, source, target in matches:
        world.network.drops.append(matching(kind, source, target))


def hold(world: World, *matches: tuple[str, str, str]) -> None:
    for kind, source, target in matches:
        world.network.holds.append(matching(kind, source, target))


def closing_unheard() -> World:
    """Return a world in which the writer's close reaches the store, but its answer is lost."""
    world = world_with(rpc_timeout_ms=20)
    lose(world, ("cas_reply", "zk", "w"))
    world.add()
    world.run_for(10)
    world.clients["w"].feed(m.CloseRequested())
    return world


def deleted_under(world: World, client: str) -> World:
    """Delete the closed ledger before a client loads the metadata after its write."""
    world.delete_ledger()
    world.run_for(100)
    ended = world.clients[client].ended
    require(isinstance(ended, m.LedgerFailed), "SCRIPT", f"it ends with {ended}")
    return world


def v2_recovery_looks_for_stuck_runs_after_every_answer() -> World:
    """Recovery writes back two runs without a spare bookie; the second has lost its ack quorum.

    b2 fails the first run. b1 stores the first run and fails the second. The first run can still be
    confirmed. Only its confirmation by b0 shows that the second run can never be confirmed.
    """
    world = world_with(bookies=3, rpc_timeout_ms=2_000)
    world.add()
    world.add()
    world.run_for(10)
    require(world.checker.last_confirmed == 1, "SCRIPT", "not confirmed")
    world.clients["w"].crash()
    for name in ("b0", "b1", "b2"):
        hold(world, ("add", "r", name))
    recover(world)
    world.run_for(10)
    add = {(run, name): matching("add", "r", name, run) for run in (0, 1) for name in world.bookies}
    require(all(any(map(one, world.network.held)) for one in add.values()), "SCRIPT", "one run")
    world.kill("b2")
    for released in (add[0, "b2"], add[0, "b1"]):
        world.network.release(released)
        world.run_for(10)
    world.kill("b1")
    for released in (add[1, "b1"], add[0, "b0"], add[1, "b0"]):
        world.network.release(released)
        world.run_for(10)
    world.run_for(300)
    return world


def f7_a_bookie_that_was_replaced_does_not_fence_an_open_ledger() -> World:
    """b2 loses state and is replaced by b3. A late add reaches b2, and then b2 replaces b3."""
    world = world_with(bookies=4, rpc_timeout_ms=30)
    world.prefers["*"] = ("b3", "b2")
    world.add()
    world.run_for(10)
    hold(world, ("add", "w", "b2"))
    world.add()
    world.run_for(60)
    require(world.checker.record.last_fragment.ensemble[2] == "b3", "SCRIPT", "not replaced")
    world.lose_state("b2")
    world.network.holds.clear()
    world.network.release(matching("add"))
    world.run_for(50)
    world.kill("b3")
    world.add()
    confirmed = world.run_until(lambda: world.checker.last_confirmed == 2, 2_000)
    require(confirmed, "SCRIPT", "the writer did not go on")
    return world


def b18_a_deleted_record_settles_no_unknown_write() -> World:
    """The close is written, its answer is lost, and the ledger is deleted before it is loaded."""
    world = closing_unheard()
    world.run_for(10)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    return deleted_under(world, "w")


def b18_recovery_of_a_deleted_record_may_have_closed_it() -> World:
    """The same for a recovery: its closing write took effect, and then the record is deleted."""
    world = world_with(rpc_timeout_ms=20)
    world.add()
    world.run_for(10)
    world.clients["w"].crash()
    lose(world, ("cas_reply", "zk", "r"))
    recover(world)
    closed = world.run_until(lambda: world.checker.record.is_closed, 500)
    require(closed, "SCRIPT", "not closed")
    return deleted_under(world, "r")


def b18_a_conflict_may_be_with_the_own_write() -> World:
    """The close arrives twice. The answer to the first is lost, and the second conflicts."""
    world = world_with(rpc_timeout_ms=20, metadata_attempts_max=3)
    world.add()
    world.run_for(10)
    hold(world, ("cas", "w", "zk"))
    lose(world, ("cas_reply", "zk", "w"))
    world.clients["w"].feed(m.CloseRequested())
    (close,) = world.network.held
    close.deliver()
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    world.network.drops.clear()
    lose(world, ("load", "w", "zk"))
    world.faults.lasts("partition")
    world.network.release(matching("cas"))
    world.run_for(300)
    ended = world.clients["w"].ended
    require(isinstance(ended, m.LedgerFailed), "SCRIPT", f"it ends with {ended}")
    return world


def b18_a_second_close_does_not_forget_the_first() -> World:
    """The first close is delayed for long. The second close cannot reach the store."""
    world = world_with(rpc_timeout_ms=20, metadata_attempts_max=3)
    world.add()
    world.run_for(10)
    hold(world, ("cas", "w", "zk"))
    lose(world, ("load", "w", "zk"))
    world.faults.lasts("partition")
    writer = world.clients["w"]
    writer.feed(m.CloseRequested())
    world.run_for(300)
    require(isinstance(writer.ended, m.LedgerFailed), "SCRIPT", f"it ends with {writer.ended}")
    world.options = replace(world.options, store_away_rate=1.0)
    first, writer.ended = writer.ended, None
    writer.feed(m.CloseRequested())
    world.run_for(300)
    world.options = replace(world.options, store_away_rate=0.0)
    require(isinstance(writer.ended, m.LedgerFailed), "SCRIPT", f"after {first} it goes on")
    world.network.release(matching("cas"))
    world.run_for(10)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    return world


def v10_a_fence_that_rotted_is_no_matter_after_its_ledger_was_deleted() -> World:
    """b0 and b1 are fenced, b0's fence is damaged, the ledger is deleted; a late add comes."""
    world = world_with(rpc_timeout_ms=2_000)
    hold(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add()
    lose(world, ("read", "r", "b2"))
    recover(world)
    world.run_until(lambda: "r" in world.checker.ends, 100)
    world.run_for(200)
    world.bookies["b0"].rot_fence(is_vouched=False)
    world.kill("b0")
    world.restart("b0")
    world.run_for(20)
    world.delete_ledger()
    for name in ("b0", "b1", "b2"):
        world.collect(name)
    world.run_for(50)
    storage = world.bookies["b0"].storage
    assert storage is not None
    require(not storage.is_fenced(LEDGER), "SCRIPT", "it has the fence")
    world.network.holds.clear()
    world.network.release(matching("add"))
    world.run_for(300)
    return world


def e2_a_reader_of_an_old_record_loads_it_again() -> World:
    """E2/Qw2/Qa2. All bookies were replaced since the reader opened the ledger."""
    world = world_with(Quorum(2, 2, 2))
    world.prefers["w"] = ("b3", "b4")
    world.add(3)
    world.run_for(20)
    lose(world, ("add", "w", "b0"), ("add", "w", "b1"))
    world.add(2)
    world.run_for(200)
    require(world.checker.last_confirmed == 4, "SCRIPT", "not confirmed")
    world.network.drops.clear()
    reader = world.reader("old", world.store.first[LEDGER].value, 4)
    world.run_for(300)
    require(isinstance(reader.ended, m.RangeRead), "SCRIPT", f"it ends with {reader.ended}")
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(50)
    return world


def v2_a_late_answer_makes_room_for_the_next_request() -> World:
    """Striped, with room for one frame. Entry 0 comes from another bookie; then the late answer."""
    world = world_with(Quorum(3, 2, 2), read_frames=3, rpc_timeout_ms=2_000)
    for _ in range(6):
        world.add()
    world.run_for(20)
    require(world.checker.last_confirmed == 5, "SCRIPT", "not confirmed")
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(20)
    for name in ("b0", "b1", "b2"):
        world.network.holds.append(matching("read_reply", name, "reader", 0))
    world.reader("reader", world.checker.record, 5)
    world.run_for(15)
    require(len(world.network.held) == 1, "SCRIPT", f"held: {world.network.held}")
    world.network.holds.clear()
    world.run_for(100)
    world.network.release(matching("read_reply"))
    world.run_for(200)
    return world


def f7_a_fence_that_rotted_is_asked_of_the_record() -> World:
    """b0 and b1 are fenced; the fence of b0 is damaged, and it starts again."""
    world = world_with(rpc_timeout_ms=2_000)
    hold(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add()
    lose(world, ("read", "r", "b2"))
    recover(world)
    world.run_until(lambda: "r" in world.checker.ends, 100)
    world.run_for(200)
    world.bookies["b0"].rot_fence(is_vouched=False)
    world.kill("b0")
    world.restart("b0")
    world.run_for(20)
    world.network.holds.clear()
    world.network.release(matching("add"))
    world.run_for(300)
    return world
