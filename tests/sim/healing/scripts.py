"""Scripted schedules of healing. Each shows why one rule is needed.

By default, a ledger has E3/Qw3/Qa2. It is closed on b0, b1 and b2 at entry 2. b2 dies for good, and
the auditor marks the ledger. b3, b4 and b5 are spares. `targets` lists the order in which workers
try them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledgerlog_spark.model import Code, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.replicate import messages as r
from ledgerlog_spark.protocol.autorecovery.replicate.targets import choose_target
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import require
from tests.sim.faults import JITTER
from tests.sim.healing.jobs import Job
from tests.sim.healing.workers import HealWorker
from tests.sim.healing.world import HealingWorld, healing_options
from tests.sim.network import matching
from tests.sim.options import LEDGER
from tests.sim.release.world import release_options
from tests.sim.scripts import CALM, hold

WAIT_MS = 40
LOST = frozenset({"b2"})


def healing_world(
    quorum: Quorum = CALM.quorum, ensemble: tuple[str, ...] = ("b0", "b1", "b2"), **options: Any
) -> HealingWorld:
    """Return a cluster without random faults, with the writer of a new ledger."""
    base = release_options(replace(CALM, **options), wait_ms=WAIT_MS)
    world = HealingWorld(1, healing_options(base), suppressed=frozenset({JITTER}))
    world.create_ledger(quorum, ensemble)
    world.prefers["*"] = ("b3", "b4", "b5")
    for bookie in world.bookies.values():
        bookie.is_collecting = False
        bookie.start()
    world.run_for(20)
    return world


def confirm(world: HealingWorld, entries: int) -> None:
    before = world.checker.last_confirmed
    world.add(entries)
    world.run_for(10)
    last = world.checker.last_confirmed
    require(last == before + entries, "SCRIPT", f"confirmed is {last}")


def close(world: HealingWorld) -> None:
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(20)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")


def lose_bookie(world: HealingWorld, name: str = "b2") -> None:
    world.kill(name)
    world.dead.add(name)
    world.run_for(70)


def mark(world: HealingWorld, *names: str) -> None:
    world.store.note("mark", LEDGER, frozenset(names or LOST))


def closed_world(entries: int = 3) -> HealingWorld:
    """Return a world whose closed ledger has lost b2, and is marked."""
    world = healing_world()
    confirm(world, entries)
    close(world)
    lose_bookie(world)
    mark(world)
    return world


class Healer(HealWorker):
    """A worker that does one job when a script requests it. `targets` are tried in this order."""

    targets: tuple[str, ...] = ()

    def _sleep(self, delay_ms: int) -> None:
        """Take no ledger by itself before the audit."""
        if self.world.faults.is_healed:
            super()._sleep(delay_ms)

    def work(self, kind: str = "mark") -> Job:
        """Begin a job for the ledger."""
        self.job = job = Job(self, kind, LEDGER)
        if self.targets:
            job.machine._choose = self._choose
        job.begin()
        return job

    def _choose(
        self,
        ledger_id: int,
        quorum: Quorum,
        fragment: Any,
        index: int,
        registered: r.RegisteredListed,
        excluded: frozenset[str],
    ) -> str | None:
        free = {*registered.writable} - {*fragment.ensemble, *excluded}
        for name in self.targets:
            if name in free:
                return name
        return choose_target(ledger_id, quorum, fragment, index, registered, excluded)


def healer(world: HealingWorld, *targets: str) -> Healer:
    """Return a worker. After the script, another worker does the rest."""
    one = Healer(world, f"h{len(world.healers)}")
    one.targets = targets
    world.healers.append(one)
    return one


def work(world: HealingWorld, *targets: str, kind: str = "mark", for_ms: int = 150) -> Job:
    """Run one job to its end."""
    job = healer(world, *targets).work(kind)
    world.run_for(for_ms)
    return job


def finish(world: HealingWorld) -> HealingWorld:
    """End the workers of the script. The audit starts another one."""
    for one in world.healers:
        one.crash()
        one.session.is_alive = False
    return world


def ensembles(world: HealingWorld) -> list[tuple[int, tuple[str, ...]]]:
    return [(one.first_entry_id, one.ensemble) for one in world.checker.record.fragments]


def require_outcome(job: Job, outcome: r.JobOutcome) -> None:
    found = job.ended.outcome if job.ended is not None else None
    require(found is outcome, "SCRIPT", f"the job ends with {job.ended}")


def a_lost_bookie_is_replaced() -> HealingWorld:
    """Nothing disturbs the job."""
    world = closed_world()
    require_outcome(work(world, "b4"), r.JobOutcome.HEALED)
    named = ensembles(world)
    require(named == [(0, ("b0", "b1", "b4"))], "SCRIPT", f"named are {named}")
    return finish(world)


def a_mark_of_another_time_is_not_deleted() -> HealingWorld:
    """A worker has healed the ledger, and is about to delete the mark. Its session ends.

    Another worker deletes the mark. b4 dies, and the new mark has the version 0 too.
    """
    world = closed_world()
    first = healer(world, "b4")

    def sleep_ms(worker: HealWorker, effect: Any) -> int:
        return 250 if worker is first and isinstance(effect, r.DeleteTask) else 0

    world.sleep_ms = sleep_ms
    first.work()
    world.run_for(60)
    require(ensembles(world)[0][1][2] == "b4", "SCRIPT", "the first worker names nothing")
    first.expire(1_000)
    world.run_for(5)
    require_outcome(work(world, for_ms=60), r.JobOutcome.HEALED)
    lose_bookie(world, "b4")
    mark(world, "b4")
    world.run_for(200)
    return finish(world)


def a_record_changes_before_its_mark_is_deleted() -> HealingWorld:
    """b2 returns without the first entries. A worker finds nothing to do in the open fragment.

    Before it deletes the mark, the writer replaces b2. So b2 owes the first entries from now on.
    """
    world = healing_world()
    hold(world, ("add", "w", "b2"), ("cas", "w", "zk"))
    confirm(world, 3)
    world.kill("b2")
    world.run_for(30)
    world.restart("b2")
    mark(world)
    first = healer(world)
    world.sleep_ms = lambda _, effect: 60 if isinstance(effect, r.DeleteTask) else 0
    job = first.work()
    world.run_for(40)
    require(bool(world.network.held), "SCRIPT", "the writer does not replace b2")
    world.network.holds = []
    world.network.release(matching("cas"))
    world.run_for(120)
    named = ensembles(world)
    require(named[-1] == (3, ("b0", "b1", "b3")), "SCRIPT", f"named are {named}")
    require_outcome(job, r.JobOutcome.CHANGED)
    return finish(world)


def entries_behind_the_end_are_left_over() -> HealingWorld:
    """A worker must not look for entries after the end, because no bookie owes them."""
    world = closed_world()
    work(world)
    return finish(world)


def an_open_ledger_keeps_its_last_fragment() -> HealingWorld:
    """The writer has replaced b2 by b3 from entry 3 on. Then b3 dies too."""
    world = healing_world()
    confirm(world, 3)
    world.kill("b2")
    world.dead.add("b2")
    confirm_after_change(world)
    world.clients["w"].freeze()
    lose_bookie(world, "b3")
    mark(world, "b2", "b3")
    job = healer(world, "b4").work()
    world.run_for(50)
    world.clients["w"].thaw()
    job.drop()
    return finish(world)


def confirm_after_change(world: HealingWorld) -> None:
    world.add(1)
    changed = world.run_until(lambda: len(world.checker.record.fragments) == 2, 1_000)
    require(changed, "SCRIPT", "b2 is not replaced")
    world.run_for(20)


def damage_is_written_again() -> HealingWorld:
    """The digest check found a damaged copy on b1, which b1 still lists."""
    world = healing_world()
    confirm(world, 3)
    close(world)
    world.store.note("hole", LEDGER, frozenset({"b1"}))
    world.store.notes["hole"][LEDGER].damaged = frozenset({("b1", 1)})
    before = len(world.checker.copies._copies["b1", 1])
    require_outcome(work(world, kind="hole"), r.JobOutcome.HEALED)
    written = len(world.checker.copies._copies["b1", 1]) - before
    require(written == 1, "DAMAGE", f"b1 got the damaged entry {written} times")
    return finish(world)


def a_list_is_younger_than_the_force() -> HealingWorld:
    """b4 acknowledges adds before it syncs them. It dies between the last add and the force."""
    world = closed_world()
    bookie = world.bookies["b4"]
    bookie.is_weak = True
    hold(world, ("force", "h0", "b4"))
    healer(world, "b4").work()
    forces = world.run_until(lambda: bool(world.network.held), 40)
    require(forces, "SCRIPT", "the worker forces nothing")
    world.kill("b4")
    bookie.is_weak = False
    world.restart("b4")
    world.run_for(5)
    world.network.holds = []
    # An entry that the force can find.
    first = world.checker.copies._copies["b0", 0][0].stored
    bookie.store_durably(LEDGER, 0, first)
    world.run_for(8)
    world.network.release(matching("force"))
    world.run_for(150)
    return finish(world)


def a_target_loses_its_directory() -> HealingWorld:
    """b4 has all copies, was listed, and loses its directory. Its cookie was fixed."""
    return _wiped(is_fix=True)


def a_cookie_is_made_again() -> HealingWorld:
    """b4 loses its directory. Its cookie was deleted and created again, so it has version 0
    again."""
    return _wiped(is_fix=False)


def _wiped(*, is_fix: bool) -> HealingWorld:
    world = closed_world()
    hold(world, ("cas", "h0", "zk"))
    healer(world, "b4").work()
    world.run_for(38)
    require(bool(world.network.held), "SCRIPT", "the worker writes nothing")
    require(world.wipe_spare("b4", is_fix=is_fix, is_in_doubt=False), "SCRIPT", "not wiped")
    world.network.holds = []
    world.network.release(matching("cas"))
    world.run_for(200)
    return finish(world)


def a_target_is_outside_the_ensemble() -> HealingWorld:
    world = closed_world()
    work(world, for_ms=200)
    return finish(world)


def a_conflict_is_a_release() -> HealingWorld:
    """b4 has copies from an earlier move, and releases them. Its touch causes a conflict."""
    world = closed_world()
    world.answer_ms = 2_000
    hold(world, ("cas", "h0", "zk"))
    healer(world, "b4").work()
    world.run_for(30)
    require(bool(world.network.held), "SCRIPT", "the worker writes nothing")
    world.network.holds = []
    release(world, "b4")
    world.answer_ms = 40
    world.network.release(matching("cas"))
    world.run_for(250)
    return finish(world)


def release(world: HealingWorld, name: str) -> None:
    """Let a bookie wait, and release the ledger. The worker's lock has ended."""
    world.run_for(2 * WAIT_MS)
    for _ in range(6):
        world.store.locks.clear()
        world.bookies[name].collect()
        if world.run_until(lambda: not world.holds(name, LEDGER), 60):
            return


def an_entry_that_only_the_dead_bookie_has() -> HealingWorld:
    """Only b2 has entry 1, because b0 and b1 lost it. The other entries get three copies."""
    world = closed_world()
    forget(world, "b0", 1)
    forget(world, "b1", 1)
    job = work(world, "b4", for_ms=250)
    require_outcome(job, r.JobOutcome.UNREADABLE)
    found = ensembles(world)
    b2, b4 = ("b0", "b1", "b2"), ("b0", "b1", "b4")
    require(found == [(0, b4), (1, b2), (2, b4)], "SPLIT", f"named are {found}")
    report = world.store.reports.get(LEDGER)
    is_exact = [(one.first_entry_id, one.is_lost) for one in report or ()] == [(1, False)]  # type: ignore[attr-defined]
    require(is_exact, "REPORT", f"reported is {report}")
    for name in ("b0", "b1"):
        world.bookies[name].forgotten.clear()
    return finish(world)


def forget(world: HealingWorld, name: str, entry_id: int) -> None:
    """Let a bookie deny one of its entries to workers, as after an unnoticed loss."""
    world.bookies[name].forgotten[entry_id] = Code.NO_ENTRY


def a_bookie_in_limbo_may_have_the_entry() -> HealingWorld:
    """b0 and b1 deny entry 1. b2 is registered and holds it, but is in limbo."""
    return _unknown(Code.IO_ERROR)


def a_silent_bookie_may_have_the_entry() -> HealingWorld:
    """b0 and b1 deny entry 1. b2 holds it, but is busy."""
    return _unknown(Code.BUSY)


def _unknown(code: Code) -> HealingWorld:
    world = healing_world()
    confirm(world, 3)
    close(world)
    lose_bookie(world, "b0")
    mark(world, "b0")
    forget(world, "b1", 1)
    world.bookies["b2"].forgotten[1] = code
    world.dead.discard("b0")
    world.restart("b0")
    world.run_for(20)
    forget(world, "b0", 1)
    world.store.note("hole", LEDGER, frozenset({"b0"}))
    world.bookies["b0"].unlisted.add(1)
    work(world, kind="hole", for_ms=200)
    require(LEDGER in world.store.reports, "SCRIPT", "nothing is reported")
    for one in world.bookies.values():
        one.forgotten.clear()
        one.unlisted.clear()
    return finish(world)


def an_open_ledger_gets_its_grace() -> HealingWorld:
    """b2, a member of the last fragment, is lost, and the idle writer does not notice it."""
    world = open_world()
    job = healer(world).work()
    world.run_for(40)
    record = world.checker.record
    require(record.state is LedgerState.OPEN, "GRACE", "closed before the grace")
    world.run_for(200)
    require(world.checker.record.is_closed, "SCRIPT", f"not closed: {job.ended}")
    return finish(world)


def open_world() -> HealingWorld:
    world = healing_world()
    confirm(world, 3)
    lose_bookie(world)
    mark(world)
    return world


def an_open_ledger_without_a_spare_stays_open() -> HealingWorld:
    """b3, b4 and b5 do not exist. A fence would stop a writer that still has its ack quorum."""
    world = open_world()
    for name in ("b3", "b4", "b5"):
        world.kill(name)
        world.dead.add(name)
    world.run_for(70)
    job = healer(world).work()
    world.run_for(300)
    require_outcome(job, r.JobOutcome.NO_SPARE)
    return finish(world)


def a_log_lists_more_than_the_bookies_prove() -> HealingWorld:
    """A log lists the ledger up to entry 2."""
    world = open_world()
    world.floors[LEDGER] = 2
    healer(world).work()
    world.run_for(250)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    return finish(world)


def an_answer_is_garbled() -> HealingWorld:
    """The bytes of an entry are changed between b0 and the worker."""
    world = closed_world()
    world.garbled.add(("b0", 1))
    work(world, "b4", for_ms=200)
    return finish(world)


def a_stripe_is_counted_from_entry_0() -> HealingWorld:
    """E4/Qw2: the second fragment begins at entry 3."""
    world = healing_world(Quorum(4, 2, 2), ("b0", "b1", "b2", "b3"))
    world.prefers["*"] = ("b4", "b5")
    confirm(world, 3)
    world.kill("b2")
    world.dead.add("b2")
    world.add(4)
    changed = world.run_until(lambda: len(world.checker.record.fragments) == 2, 1_000)
    require(changed, "SCRIPT", "b2 is not replaced")
    world.run_for(30)
    close(world)
    lose_bookie(world, "b3")
    mark(world, "b2", "b3")
    work(world, for_ms=400)
    return finish(world)


def a_list_from_before_the_release_meets_the_touch() -> HealingWorld:
    """A worker has listed b4, and its session ends. b4 releases the ledger, then the CAS arrives.

    A proxy of the store applies the write of the dead session late.
    """
    world = closed_world()
    hold(world, ("cas", "h0", "zk"))
    job = healer(world, "b4").work()
    world.run_for(30)
    require(bool(world.network.held), "SCRIPT", "the worker writes nothing")
    del job
    release(world, "b4")
    world.network.holds = []
    world.network.release(matching("cas"))
    world.run_for(250)
    return finish(world)


def a_list_during_a_release_shows_nothing() -> HealingWorld:
    """b4 has copies from a dead worker, and has touched the record. Another worker lists b4."""
    world = closed_world()
    hold(world, ("cas", "h0", "zk"))
    dead = healer(world, "b4")
    dead.work()
    world.run_for(30)
    dead.crash()
    dead.session.is_alive = False
    world.network.held.clear()
    world.network.holds = []
    hold(world, ("touch_reply", "zk", "b4"))
    world.run_for(2 * WAIT_MS)
    for _ in range(6):
        world.bookies["b4"].collect()
        if world.run_until(lambda: bool(world.network.held), 60):
            break
    require(bool(world.network.held), "SCRIPT", "b4 touches nothing")
    world.store.locks.clear()
    healer(world, "b4").work()
    world.run_for(9)
    world.network.holds = []
    world.network.release(matching("touch_reply"))
    world.run_for(250)
    return finish(world)


Script = Callable[[], HealingWorld]
