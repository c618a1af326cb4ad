"""Scripted schedules of a recovery whose replacement loses its directory (PROTOCOL.md#C25).

A ledger has E3/Qw3/Qa2, and b0, b1 and b2. b0 and b2 have stored entry 0, and b2 dies for good. A
recovery writes the entry back to b0, and to b3 in place of b2. Its add to b1 is late.
"""

from __future__ import annotations

from ledgerlog_spark.model import LedgerState
from tests.sim.checker import require
from tests.sim.healing.scripts import healing_world, lose_bookie, mark
from tests.sim.healing.world import HealingWorld
from tests.sim.network import matching
from tests.sim.scripts import hold, recover

ADD_OF_WRITER = matching("add", "w", "b1")
ADD_OF_RECOVERY = matching("add", "r", "b1")
CLOSE = matching("cas", "r", "zk")


def closing_world(rpc_timeout_ms: int) -> HealingWorld:
    """Return a world in which b3 has the entry, and the first write of the close is held."""
    world = healing_world(rpc_timeout_ms=rpc_timeout_ms)
    hold(world, ("add", "w", "b1"))
    world.add(1)
    world.run_for(10)
    require(world.checker.last_confirmed == 0, "SCRIPT", "entry 0 is not confirmed")
    world.clients["w"].crash()
    lose_bookie(world)
    hold(world, ("add", "r", "b1"))
    recover(world, attempts_max=4)
    marked = world.run_until(lambda: world.checker.record.state is LedgerState.IN_RECOVERY, 50)
    require(marked, "SCRIPT", "the ledger is not in recovery")
    world.network.holds.append(CLOSE)
    closes = world.run_until(lambda: any(map(CLOSE, world.network.held)), 100)
    require(closes, "SCRIPT", "the recovery closes nothing")
    require("b3" in world.checker.stored[0], "SCRIPT", "b3 has no entry")
    return world


def lose_directory(world: HealingWorld, *, is_fix: bool) -> None:
    wiped = world.wipe_spare("b3", is_fix=is_fix, is_in_doubt=False)
    require(wiped, "SCRIPT", "b3 is not empty")
    world.run_for(5)


def finish(world: HealingWorld) -> HealingWorld:
    """Deliver the close and all later messages, and mark the ledger, because b2 is lost."""
    world.network.holds = []
    world.network.release(CLOSE)
    closed = world.run_until(lambda: world.checker.record.is_closed, 1_000)
    require(closed, "SCRIPT", "the ledger is not closed")
    world.network.release(ADD_OF_RECOVERY)
    mark(world)
    return world


def a_replacement_loses_its_directory() -> HealingWorld:
    """The cookie of b3 was fixed."""
    world = closing_world(rpc_timeout_ms=400)
    lose_directory(world, is_fix=True)
    return finish(world)


def the_cookie_of_a_replacement_is_made_again() -> HealingWorld:
    """The cookie of b3 was deleted and created again, so it has version 0 again."""
    world = closing_world(rpc_timeout_ms=400)
    lose_directory(world, is_fix=False)
    return finish(world)


def a_close_is_sent_again_after_the_loss() -> HealingWorld:
    """The first write of the close has no answer, and b3 loses its directory before the second."""
    world = closing_world(rpc_timeout_ms=40)
    lose_directory(world, is_fix=True)
    world.network.holds.remove(CLOSE)
    closed = world.run_until(lambda: world.checker.record.is_closed, 1_000)
    require(closed, "SCRIPT", "the ledger is not closed")
    return finish(world)
