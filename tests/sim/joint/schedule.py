"""One random joint schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.draws import Draws
from tests.sim.healing.schedule import AFTER_MS, US, HealingPlan, drawn_healing
from tests.sim.joint.world import JointOptions, JointWorld, joint_options
from tests.sim.schedule import Outcome, Workload, judged

VACATIONS = ("", "", "drain", "decommission")


def drawn_joint(draws: Draws) -> JointOptions:
    """Return the options of a seed: those of healing, with auditors and a vacation."""
    healing = drawn_healing(draws)
    healing = replace(
        healing,
        restarts=max(healing.restarts, draws.pick((0, 2, 4), "joint restarts")),
        gap_ms=draws.pick((healing.gap_ms, healing.gap_ms, 15), "joint gap"),
    )
    is_apache = healing.apache_healers > 0
    vacation = draws.pick(VACATIONS, "vacation")
    # A bookie that leaves takes no copies, and one in limbo needs another place for its copies.
    spares = 2 if vacation else 1
    healing = replace(healing, bookies=max(healing.bookies, healing.quorum.ensemble_size + spares))
    return joint_options(
        healing,
        audit_delay_ms=draws.pick((0, 20, 60), "audit delay"),
        audit_pause_rate=draws.pick((0.0, 0.0, 0.05), "audit pauses"),
        audit_expiries=draws.pick((0, 1, 2), "audit expiries"),
        # A directory that is lost is not safe with Apache's worker.
        limbo_losses=0 if is_apache else draws.pick((0, 1, 1), "limbo losses"),
        members_lost=draws.pick((0, 2, 4), "members lost"),
        vacation="drain" if is_apache and vacation else vacation,
        is_cancelled=draws.uniform("is cancelled") < 0.4,
    )


class JointPlan(HealingPlan):
    """Draws and schedules the faults of a world."""

    world: JointWorld

    def arm(self) -> None:
        super().arm()
        options = self.world.options
        self._each("auditor expiry", options.audit_expiries, self._expire_auditor)
        self._each("limbo loss", options.limbo_losses, self._lose)
        self._each("member lost", options.members_lost, self._tell_lost)
        stage = self.world.stage
        assert stage is not None
        if options.vacation:
            until_us = options.span_ms * US
            at_us = self.draws.integer(2, until_us, "vacation at")
            later_us = self.draws.integer(1, AFTER_MS * US, "cancelled after")
            call_at = self.world.scheduler.call_at
            call_at(at_us, lambda: stage.begin(options.vacation))
            if options.is_cancelled:
                call_at(at_us + later_us, stage.cancel)
                call_at(at_us + later_us + 20 * US, lambda: stage.begin(options.vacation))

    def _expire_auditor(self, number: int) -> None:
        audits = self.world.audits
        assert audits is not None
        auditor = self.draws.pick(audits.auditors, "auditor expires", number)
        audits.expire(auditor)

    def _lose(self, number: int) -> None:
        """Let a bookie lose its directory, if all others run."""
        world = self.world
        if any(not bookie.is_up or bookie.storage is None for bookie in world.bookies.values()):
            return
        name = self.draws.pick(sorted(world.bookies), "loses", number)
        world.lose_directory(name)

    def _tell_lost(self, number: int) -> None:
        """If a bookie is away, notify the writers that it is lost, as their client does."""
        away = sorted(n for n, one in self.world.bookies.items() if not one.is_registered)
        if away:
            self.world.tell_lost(self.draws.pick(away, "told", number))


def run_joint(
    seed: int, *, suppressed: frozenset[str] = frozenset(), keeps_trace: bool = False
) -> Outcome:
    """Run one seed: the workload with faults and everything that heals, then the audit."""
    options = drawn_joint(Draws(seed))
    world = JointWorld(seed, options, suppressed=suppressed, keeps_trace=keeps_trace)

    def play() -> None:
        JointPlan(world).arm()
        Workload(world).run()
        world.run_for(AFTER_MS + options.wait_ms)
        world.audit()
        world.is_over = True

    outcome = judged(world, seed, play, world.scheduler.close, keeps_trace=keeps_trace)
    marks: Any = world.checkers.marks
    for name, count in world.audit_marks.items():
        marks[f"auditors: {name}"] = count
    for name, count in world.stage.counts.items() if world.stage else ():
        marks[f"vacations: {name}"] = count
    return outcome
