"""One random schedule with losses."""

from __future__ import annotations

from tests.sim.draws import Draws
from tests.sim.loss.options import drawn_losses
from tests.sim.loss.world import LossPlan, LossWorld
from tests.sim.schedule import Outcome, Workload, judged


def run_losses(
    seed: int,
    limit: str,
    *,
    suppressed: frozenset[str] = frozenset(),
    keeps_trace: bool = False,
) -> Outcome:
    """Run one seed: the workload with faults and losses, then the audit of the healed cluster."""
    options = drawn_losses(Draws(seed), limit)
    world = LossWorld(seed, options, suppressed=suppressed, keeps_trace=keeps_trace)

    def play() -> None:
        LossPlan(world).arm()
        Workload(world).run()
        world.audit()

    return judged(world, seed, play, world.scheduler.close, keeps_trace=keeps_trace)
