"""Replication workers of the simulator: ours, and a model of Apache's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobEnded
from tests.sim.healing.jobs import Job
from tests.sim.release.worker import Worker

if TYPE_CHECKING:
    from tests.sim.healing.world import HealingWorld

IDLE_MS = 8
APACHE_TARGETS_MAX = 50
KINDS = ("mark", "hole", "move")


class HealWorker:
    """A process that takes ledgers from the queues, one after the other.

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
        """End the process. Its session ends some time later."""
        self.is_alive = False
        self.world.note(self.name, "is killed")
        if self.job is not None:
            self.job.drop()
        session = self.session
        self.world.scheduler.call_later(
            self.world.options.session_ms * 1_000, lambda: setattr(session, "is_alive", False)
        )


class ApacheWorker:
    """A model of Apache's worker. It heals closed ledgers of marks, and requests no lists.

    It takes the version of a mark, moves each lost member with all its entries, and deletes the
    mark at that version.
    """

    def __init__(self, world: HealingWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.session = world.store.new_session()
        self.moves = 0

    def start(self) -> None:
        self._sleep()

    def _sleep(self) -> None:
        self.world.scheduler.call_later(5 * IDLE_MS * 1_000, self._take)

    def _take(self) -> None:
        world, store = self.world, self.world.store
        if world.is_over or world.faults.is_healed or self.moves >= APACHE_TARGETS_MAX:
            return
        marks = store.notes["mark"]
        closed = [one for one in sorted(marks) if self._is_closed(one)]
        if not closed:
            self._sleep()
            return
        self.moves += 1
        ledger_id = world.draws.pick(closed, self.name, "takes", self.moves)
        if not store.lock(ledger_id, self.session):
            self._sleep()
            return
        note = marks[ledger_id]
        self._go_on(ledger_id, note.version, note.bookies)

    def _is_closed(self, ledger_id: int) -> bool:
        record = self.world.store.records.get(ledger_id)
        return record is not None and record.value.is_closed

    def _go_on(self, ledger_id: int, version: Version, bookies: frozenset[str]) -> None:
        """Move the next lost member, or delete the mark."""
        world = self.world
        record = world.store.records.get(ledger_id)
        registered = {n for n, one in world.bookies.items() if one.is_registered}
        lost = [
            (place, name)
            for place, fragment in enumerate(record.value.fragments if record else ())
            for name in fragment.ensemble
            if name not in registered
        ]
        if record is None or not lost:
            self._end(ledger_id, version, bookies, is_whole=True)
            return
        place, old = lost[0]
        free = sorted(registered - set(record.value.fragments[place].ensemble))
        self.moves += 1
        if not free or self.moves >= APACHE_TARGETS_MAX:
            self._end(ledger_id, version, bookies, is_whole=False)
            return
        target = world.draws.pick(free, self.name, "to", self.moves)
        move = Worker(world, f"{self.name}.{self.moves}", ledger_id, is_apache=True)
        world.store.locks[ledger_id] = move
        world.workers.append(move)
        world.checkers.mark("moved by Apache's worker")
        move.on_end = lambda: None

        def wait() -> None:
            if not move.has_ended:
                world.scheduler.call_later(2_000, wait)
                return
            is_moved = old not in self._ensemble(ledger_id, place)
            if is_moved and world.store.lock(ledger_id, self.session):
                self._go_on(ledger_id, version, bookies)
            else:
                self._end(ledger_id, version, bookies, is_whole=False)

        move.begin(place, old, target)
        wait()

    def _ensemble(self, ledger_id: int, place: int) -> tuple[str, ...]:
        record = self.world.store.records.get(ledger_id)
        if record is None or place >= len(record.value.fragments):
            return ()
        return record.value.fragments[place].ensemble

    def _end(
        self, ledger_id: int, version: Version, bookies: frozenset[str], *, is_whole: bool
    ) -> None:
        world = self.world
        if is_whole and world.store.delete_note("mark", ledger_id, version):
            checker = world.checkers.of(ledger_id)
            # It does not detect the missing entries of a bookie that is registered again.
            checker.mark_deleted(self.name, frozenset(), world.long_away())
            del bookies
        world.store.unlock(ledger_id, self.session)
        self._sleep()
