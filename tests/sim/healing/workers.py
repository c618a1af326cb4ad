"""Replication workers of the simulator: ours, and a model of Apache's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobEnded
from tests.sim.healing.jobs import Job

if TYPE_CHECKING:
    from tests.sim.healing.world import HealingWorld

IDLE_MS = 8
KINDS = ("mark", "hole", "move")


class HealWorker:
    """A process that takes ledgers of the queues, one after the other.

    Attributes:
        session: Its newest session.
        is_alive: Whether the process runs.
    """

    def __init__(self, world: HealingWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.session = world.store.new_session()
        self.is_alive = True
        self.job: Job | None = None
        self.taken = 0

    def start(self) -> None:
        self._sleep(IDLE_MS)

    def _sleep(self, delay_ms: int) -> None:
        self.world.scheduler.call_later(delay_ms * 1_000, self._take)

    def _take(self) -> None:
        world = self.world
        if not self.is_alive or world.is_over or self.job is not None:
            return
        notes = [(kind, one) for kind in KINDS for one in sorted(world.store.notes[kind])]
        if not notes:
            self._sleep(IDLE_MS)
            return
        self.taken += 1
        kind, ledger_id = world.draws.pick(notes, self.name, "takes", self.taken)
        self.job = Job(self, kind, ledger_id)
        self.job.begin()

    def job_ended(self, job: Job, _ended: JobEnded) -> None:
        if job is self.job:
            self.job = None
            self._sleep(IDLE_MS)

    def expire(self, noticed_after_us: int) -> None:
        """End the session. The process notices it later, and drops its job."""
        self.session.is_alive = False
        self.world.note(self.name, "its session expires")
        self.world.scheduler.call_later(noticed_after_us, self._renew)

    def _renew(self) -> None:
        if self.is_alive and not self.session.is_alive:
            self.session = self.world.store.new_session()
            self.world.lost_session(self)

    def drop_job(self) -> None:
        """Forget the job of the lost session (AUTORECOVERY.md#X2)."""
        if self.job is not None:
            self.job.drop()
            self.job = None
        self._sleep(IDLE_MS)

    def crash(self) -> None:
        """End the process. Its session ends some time later, and another process takes its place."""
        self.is_alive = False
        self.world.note(self.name, "is killed")
        if self.job is not None:
            self.job.drop()
        session = self.session
        self.world.scheduler.call_later(
            self.world.options.session_ms * 1_000, lambda: setattr(session, "is_alive", False)
        )
