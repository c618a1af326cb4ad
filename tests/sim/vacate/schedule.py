"""Plays one schedule, and checks that it ends."""

from __future__ import annotations

from tests.sim.checker import require
from tests.sim.vacate.actors import ApacheWorker, BookieProcess, Damage, Operator, Workers, Writers
from tests.sim.vacate.host import AuditorHost
from tests.sim.vacate.world import World

FAULTS_MS = 300_000
CALM_MS = 900_000


def play(seed: int) -> World:
    """Play the schedule of a seed.

    Raises:
        Violation: A rule is broken.
    """
    world = World(seed)
    Writers(world, 4)
    Workers(world)
    ApacheWorker(world)
    BookieProcess(world)
    Operator(world)
    Damage(world)
    for name in ("auditor-0", "auditor-1"):
        AuditorHost(world, name)
    world.run_until(FAULTS_MS)
    world.is_calm = True
    world.run_until(FAULTS_MS + CALM_MS)
    check_end(world)
    return world


def check_end(world: World) -> None:
    """AUTORECOVERY.md#Y5: without faults, each vacation ends, and no move is left."""
    state = world.store.now
    if state.vacation is not None:
        vacation = state.vacation.value
        is_over = vacation.departure.is_over
        named = list(world.named())
        require(is_over, "Y5", f"{vacation} has not ended; ledgers {named}, moves {state.moves}")
    require(not state.moves, "Y5", f"moves {state.moves} are left")
