"""One random schedule with losses."""

from __future__ import annotations

from tests.sim.checker import Violation
from tests.sim.draws import Draws
from tests.sim.loss.options import drawn_losses
from tests.sim.loss.world import LossPlan, LossWorld
from tests.sim.schedule import Outcome, Workload


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
    violation: Violation | None = None
    try:
        LossPlan(world).arm()
        Workload(world).run()
        world.audit()
    except Violation as broken:
        violation = broken
        world.note("checker", broken)
    except Exception as broken:  # noqa: BLE001 - whatever it is, the schedule has to be told
        violation = Violation("BUG", f"{type(broken).__name__}: {broken}")
        violation.__cause__ = broken
        world.note("checker", violation)
    finally:
        world.scheduler.close()
    return Outcome(
        seed,
        world.scheduler.events,
        world.faults.happened,
        violation,
        world.checkers.marks,
        world.trace,
        world.trace_hash if keeps_trace else None,
    )
