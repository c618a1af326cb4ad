"""Scripted schedules with an absent bookie, and another bookie that loses its directory."""

from __future__ import annotations

from tests.sim.checker import require
from tests.sim.loss.setup import confirm, loss_world, recover, serve, stay_broken, wipe
from tests.sim.loss.world import LossWorld
from tests.sim.options import LEDGER

RETRIES_MS = 400
"""After this time without an answer, a bookie is absent."""


def _without_b2() -> LossWorld:
    """Return a world with three bookies, in which b2 is absent and lacks the entries 1 and 2."""
    world = loss_world(bookies=3, rpc_timeout_ms=30)
    world.prefers.clear()
    world.add()
    confirm(world, 0)
    world.run_for(20)
    world.kill("b2")
    world.faults.lasts("kill", 1 << 40)
    for last in (1, 2):
        world.add()
        confirm(world, last)
    world.run_for(RETRIES_MS)
    require(bool(world.clients["w"].machine.absent_bookies), "SCRIPT", "b2 is not absent")
    world.checkers.of(LEDGER).ignores_answers = True
    return world


def a_hole_and_an_empty_directory_are_not_two_denials() -> LossWorld:
    """b2 is back with its hole, b1 was formatted, and b0 restarts while the ledger is recovered."""
    world = _without_b2()
    world.clients["w"].crash()
    stay_broken(world, "b1")
    wipe(world, "b1")
    serve(world, "b1")
    world.kill("b0")
    world.restart("b2")
    serve(world, "b2")
    recover(world)
    world.run_for(300)
    require(not world.checker.record.is_closed, "L1", "closed without b0")
    world.restart("b0")
    serve(world, "b0")
    recover(world, "r2")
    world.run_for(300)
    return world
