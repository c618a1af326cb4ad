"""Scripted schedules of releases. Each shows why one rule is needed.

By default, a ledger has E3/Qw3/Qa2. It is closed on b0, b1 and b2 at entry 2. A worker has moved
the entries of b2 to b3. So b2 holds entries, and the record does not name it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ledgerlog_spark.model import Code, LedgerState, Version, Versioned
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import require
from tests.sim.faults import JITTER
from tests.sim.late_add import late_add
from tests.sim.loss.apache import HastyRecovery
from tests.sim.network import matching
from tests.sim.options import LEDGER
from tests.sim.release.worker import Worker
from tests.sim.release.world import ReleaseWorld, release_options
from tests.sim.scripts import CALM, hold, lose

WAIT_MS = 40


def release_world(**options: object) -> ReleaseWorld:
    """Return a cluster without random faults, with the writer of a new ledger on b0, b1 and b2."""
    chosen = release_options(replace(CALM, **options), wait_ms=WAIT_MS)  # type: ignore[arg-type]
    world = ReleaseWorld(1, chosen, suppressed=frozenset({JITTER}))
    world.create_ledger(CALM.quorum, ("b0", "b1", "b2"))
    world.prefers["*"] = ("b3", "b4", "b5")
    for bookie in world.bookies.values():
        bookie.is_collecting = False
        bookie.start()
    world.run_for(20)
    return world


def confirm(world: ReleaseWorld, entries: int) -> None:
    world.add(entries)
    world.run_for(10)
    last = world.checker.last_confirmed
    require(last == entries - 1, "SCRIPT", f"confirmed is {last}")


def closed_world() -> ReleaseWorld:
    """Return a world in which a worker has moved the entries of a closed ledger from b2 to b3."""
    world = release_world()
    confirm(world, 3)
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(20)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    move(world, "first", "b2", "b3")
    world.run_for(100)
    require(named(world) == ("b0", "b1", "b3"), "SCRIPT", f"moved to {named(world)}")
    return world


def named(world: ReleaseWorld) -> tuple[str, ...]:
    return world.checker.record.last_fragment.ensemble


def move(
    world: ReleaseWorld, name: str, old: str, target: str, *, is_apache: bool = False
) -> Worker:
    worker = Worker(world, name, LEDGER, is_apache=is_apache)
    world.workers.append(worker)
    worker.begin(0, old, target)
    return worker


def expire(world: ReleaseWorld, worker: Worker) -> None:
    """End the session of a worker. The worker does not notice it, and goes on."""
    worker.is_alive = False
    world.store.locks.pop(LEDGER, None)


def begin_release(world: ReleaseWorld, name: str, until: str = "") -> None:
    """Let a bookie wait, and then release the ledger.

    The first message of the kind `until` between the bookie and the store is held, and the schedule
    runs until then. A pass may read an old record, so there are several passes.
    """
    bookie = world.bookies[name]
    bookie.collect()
    world.run_for(2 * WAIT_MS)
    if until:
        source, target = ("zk", name) if until.endswith("reply") else (name, "zk")
        hold(world, (until, source, target))

    def has_begun() -> bool:
        if until:
            return any(one.kind == until for one in world.network.held)
        return not world.holds(name, LEDGER)

    for _ in range(6):
        bookie.collect()
        if world.run_until(has_begun, 100):
            break
    if not until:
        world.run_for(20)


def let_pass(world: ReleaseWorld, kind: str) -> None:
    """Deliver the held messages of one kind, and hold no further ones."""
    world.network.holds = []
    world.network.release(matching(kind))


def a_ledger_that_was_moved_is_released() -> ReleaseWorld:
    """Nothing disturbs the release of b2."""
    world = closed_world()
    begin_release(world, "b2")
    require(not world.holds("b2", LEDGER), "SCRIPT", "b2 keeps its entries")
    require(world.checker.record == world.checker.records[-2][1].value, "SCRIPT", "no touch")
    return world


def a_list_from_before_the_release_meets_the_touch() -> ReleaseWorld:
    """A worker wants to move b3's part back to b2. It has listed b2, and lost its session.

    Its write of the record is under way. b2 releases the ledger, then the write arrives.
    """
    world = closed_world()
    hold(world, ("cas", "worker", "zk"))
    worker = move(world, "worker", "b3", "b2")
    worker.patience_ms = 2_000
    world.run_for(20)
    require(bool(world.network.held), "SCRIPT", "the worker does not write")
    expire(world, worker)
    begin_release(world, "b2")
    require(not world.holds("b2", LEDGER), "SCRIPT", "b2 keeps its entries")
    let_pass(world, "cas")
    world.run_for(200)
    return world


def a_workers_write_that_comes_first_ends_the_release() -> ReleaseWorld:
    """As before, but the write arrives between b2's read of the record and its touch."""
    world = closed_world()
    hold(world, ("cas", "worker", "zk"))
    worker = move(world, "worker", "b3", "b2")
    world.run_for(20)
    require(bool(world.network.held), "SCRIPT", "the worker does not write")
    expire(world, worker)
    begin_release(world, "b2", "touch")
    world.network.release(matching("cas"))
    world.run_for(5)
    require(named(world) == ("b0", "b1", "b2"), "SCRIPT", f"named are {named(world)}")
    let_pass(world, "touch")
    world.run_for(200)
    return world


def a_list_during_a_release_shows_nothing() -> ReleaseWorld:
    """b2 has touched the record, and has no answer yet. A worker reads the record, and lists b2."""
    world = closed_world()
    begin_release(world, "b2", "touch_reply")
    world.store.locks.clear()
    move(world, "worker", "b3", "b2")
    world.run_for(8)
    let_pass(world, "touch_reply")
    world.run_for(200)
    return world


def a_list_during_the_drop_shows_nothing() -> ReleaseWorld:
    """b2 has submitted the drop, and its disk is slow. A worker reads the record, and lists b2."""
    world = closed_world()
    begin_release(world, "b2", "touch_reply")
    world.bookies["b2"].make_slow((15_000, 15_000))
    let_pass(world, "touch_reply")
    dropping = world.run_until(lambda: not world.holds("b2", LEDGER), 20)
    require(dropping, "SCRIPT", "b2 keeps its entries")
    world.store.locks.clear()
    move(world, "worker", "b3", "b2")
    world.run_for(300)
    return world


def a_repeated_add_ends_a_release() -> ReleaseWorld:
    """The same with Apache's worker, which sends all entries to b2 again, and lists nothing."""
    world = closed_world()
    begin_release(world, "b2", "touch_reply")
    world.store.locks.clear()
    move(world, "worker", "b3", "b2", is_apache=True)
    world.run_for(12)
    let_pass(world, "touch_reply")
    world.run_for(200)
    return world


def an_unnamed_bookie_may_have_what_a_recovery_wrote() -> ReleaseWorld:
    """A recovery has written entry 0 back to b3, which no record names. It pauses before its close.

    b0 has entry 0, b1 and b2 do not answer the recovery any more.
    """
    world = release_world(rpc_timeout_ms=20)
    lose(world, ("add", "w", "b2"))
    world.add()
    world.run_for(10)
    world.clients["w"].crash()
    world.network.drops.clear()
    for name in ("b1", "b2", "b4"):
        world.network.drops.append(matching("add", "r", name, is_recovery=True))
    recoverer = world.recoverer("r", attempts_max=4)
    recoverer.machine.__class__ = HastyRecovery
    recoverer.feed(m.Start())
    world.run_until(lambda: world.checker.record.state is LedgerState.IN_RECOVERY, 100)
    world.network.holds.append(matching("cas", "r", "zk"))
    closes = world.run_until(lambda: bool(world.network.held), 500)
    require(closes and world.holds("b3", LEDGER), "SCRIPT", "the recovery does not close")
    world.clients["r"].freeze()
    begin_release(world, "b3")
    world.network.holds.clear()
    world.network.drops.clear()
    world.network.release(matching("cas", "r", "zk"))
    world.run_for(10)
    world.clients["r"].thaw()
    world.run_for(300)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    return world


def a_record_that_is_restored_names_the_bookie_again() -> ReleaseWorld:
    """b2 has released the ledger. An operator restores the first record, which is OPEN.

    The writer still runs, and b2 gets another add of it.
    """
    world = closed_world()
    begin_release(world, "b2")
    require(not world.holds("b2", LEDGER), "SCRIPT", "b2 keeps its entries")
    first = world.store.first[LEDGER].value
    version = Version(1, world.store.records[LEDGER].version.number + 1)
    closed = world.store.records[LEDGER]
    restored = Versioned(first, version)
    world.store.records[LEDGER] = restored
    world.checker.records.append(("operator", restored))
    codes: list[Code] = []
    add = late_add(world.checker, LEDGER)
    world.bookies["b2"].storage.add(add, codes.append)  # type: ignore[union-attr]
    world.run_for(50)
    require(codes == [Code.OK], "L31", f"b2 answers {codes}, the ledger is OPEN")
    last = Versioned(closed.value, Version(1, version.number + 1))
    world.store.records[LEDGER] = last
    world.checker.records.append(("operator", last))
    return world


def a_release_ends_with_its_process() -> ReleaseWorld:
    """b2 dies after its touch. After the start, it lists its entries, and a worker names it."""
    world = closed_world()
    begin_release(world, "b2", "touch_reply")
    world.kill("b2", power=True)
    world.restart("b2")
    let_pass(world, "touch_reply")
    world.run_for(50)
    require(world.holds("b2", LEDGER), "SCRIPT", "b2 has lost its entries")
    move(world, "worker", "b3", "b2")
    world.run_for(100)
    require(named(world) == ("b0", "b1", "b2"), "SCRIPT", f"named are {named(world)}")
    return world


def a_forced_recovery_names_a_bookie_that_released() -> ReleaseWorld:
    """b3 has released the ledger. A forced recovery reopens it, and b3 replaces b1."""
    world = closed_world()
    move(world, "back", "b3", "b2")
    world.run_for(100)
    begin_release(world, "b3")
    require(not world.holds("b3", LEDGER), "SCRIPT", "b3 keeps its entries")
    world.network.drops.append(matching("add", "tool", "b1", is_recovery=True))
    world.force("tool", LEDGER)
    world.run_for(300)
    require(world.checker.record.is_closed, "SCRIPT", "not closed")
    return world


Script = Callable[[], ReleaseWorld]
