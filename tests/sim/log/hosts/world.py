"""One schedule of the shipped log layer: processes, their crashes, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from ledgerlog_spark.errors import LedgerLogError, WireFormatError
from ledgerlog_spark.log.maintenance import log_maintenance as log_upkeep
from ledgerlog_spark.metadata.ledgers.ids import NUMBER_END
from ledgerlog_spark.protocol.log.commit.restore import RestoreRequest
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from tests.sim.log import rows
from tests.sim.log.checks import ENTRY_ROWS, INDEX, Place
from tests.sim.log.hosts import actors, readers
from tests.sim.log.hosts.base import SKEWS_MS, Hosts, play_hosts
from tests.sim.log.hosts.process import Process
from tests.sim.log.hosts.view import LogView
from tests.sim.log.world import Ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.testing.memory.nodes import NodeChange
    from tests.sim.log.hosts.writers import SimWriter

DAMAGED = "0" * 32
CROSSED_SECONDS_MAX = 2_000
GRACES = {
    "deletedRetentionMs": "1500",
    "stagingTtlMs": "3000",
    "versionRetentionMs": "1200",
    "txnRetentionMs": "1000",
}


class HostWorld(Hosts):
    """The known facts about what processes did to transactional logs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.ledgers: dict[int, Ledger] = {}
        self.registered_ms: dict[int, int] = {}
        self.log_of: dict[int, str] = {}
        self.owners: dict[Place, tuple[str, int, str]] = {}
        self.made: dict[int, Ledger] = {}
        self.password = rows.drawn_password(self.random)
        self.usual_schema = rows.drawn_schema(self.random)
        self.deleting: set[str] = set()  # logs that are deleted even if they are in use
        self.born_ms: dict[int, int] = {}
        self.restores: dict[str, RestoreRequest] = {}
        self.properties = dict(GRACES)
        self._entries = itertools.count(1)
        self.writers: dict[int, SimWriter] = {}
        self._ids: set[int] = set()
        self._ids_counted: set[int] = set()

    def check_ids(self, ids: Sequence[int]) -> None:
        """Check that these ids were never returned before, and cannot be used elsewhere."""
        for ledger_id in ids:
            self.require(ledger_id not in self._ids, f"ledger id {ledger_id} was given twice")
            is_ours = ledger_id in self._ids_counted
            self.require(is_ours, f"ledger id {ledger_id} is of no counter that there is")
        self._ids.update(ids)

    def new_names(self, count: int) -> list[int]:
        """Return new names of entries with rows, which get the present time."""
        names = [next(self._entries) for _ in range(count)]
        self.born_ms.update(dict.fromkeys(names, self.now_ms()))
        return names

    def written(
        self, ledger_id: int, owner: tuple[str, int, str], count: int, copies: Sequence[int] = ()
    ) -> StagedRange:
        """Append new entries, or copies of others, to a ledger, and return their range."""
        ledger = self.ledgers[ledger_id]
        self.require(ledger.sealed_at is None, f"ledger {ledger_id} is written after its close")
        new = list(copies) or self.new_names(count)
        first = ledger.last + 1
        self.owners[ledger_id, first] = owner
        ledger.entries += new
        rows, index = len(new) * ENTRY_ROWS, -1
        if self.random.random() < 0.3:
            ledger.entries.append(INDEX)
            index = ledger.last
        return StagedRange(ledger_id, first, ledger.last, index, rows=rows, size_bytes=rows * 10)

    def check_older_sealed(self) -> None:
        """Check that replaced runs have no ledger that is registered and open (LOGS.md#P6)."""
        nodes = self.nodes.current.nodes
        for log_id, view in self.views.items():
            state = view.store.state
            for app, ledger_ids in state.registered.items() if view.deleted_at_ms is None else ():
                for ledger_id in ledger_ids:
                    node = nodes.get(self.paths.registration(log_id, app, ledger_id))
                    is_older = (
                        node is not None and int(node.data) < state.producers[app].value.epoch
                    )
                    is_open = self.ledgers[ledger_id].sealed_at is None
                    self.require(
                        not (is_older and is_open), f"ledger {ledger_id} of an older run stays open"
                    )

    def spawn_seal(self, process: Process, ledger_id: int) -> None:
        """Seal a ledger while it is written."""

        async def seal() -> None:
            with contextlib.suppress(LedgerLogError):
                await process.logs.seal(ledger_id, password=self.ledgers[ledger_id].password)

        process.spawn(f"a seal of ledger {ledger_id}", seal())

    def listed_last(self, ledger_id: int) -> int:
        """Return the last listed entry of a ledger; -1 if none is, or if the log is deleted."""
        view = self.views[self.log_of[ledger_id]]
        if view.deleted_at_ms is not None:
            return -1
        items = view.checks.items(view.store.state)
        return max((i.last_entry_id for i in items if i.ledger_id == ledger_id), default=-1)

    def check_closed(self, ledger_id: int) -> None:
        """Check that a ledger was not closed below its listed entries."""
        view = self.views[self.log_of[ledger_id]]
        if view.deleted_at_ms is None:
            view.checks.ledgers(view.store.state)

    # --- what the store says ---

    def _look(self, changes: list[NodeChange]) -> None:
        below = f"{self.paths.ids}/"
        touched: dict[str, None] = {}
        for change in changes:
            path = change.path
            self._count_id(path)
            if path.startswith(below):
                touched[path[len(below) :].split("/")[0]] = None
                self._registered(path)
            elif (ledger_id := self.ledger_of(path)) is not None:
                self._deleted_ledger(ledger_id, path)
        touched.pop(DAMAGED, None)
        for log_id in touched:
            if log_id in self.views:
                self.views[log_id].changed()
            elif self.nodes.current.nodes.get(self.paths.head(log_id)) is not None:
                self.views[log_id] = LogView(self, log_id)
                self.newest_id = log_id

    def _count_id(self, path: str) -> None:
        """Record an id that the store drew. The caller may get it much later."""
        directory, is_of_counter, number = path.rpartition("/ID-")
        nodes = self.nodes.current.nodes
        if not is_of_counter or path not in nodes or not 0 <= int(number) < NUMBER_END:
            return
        if directory != f"{self.root}/idgen":
            high = int(directory.rpartition("/HOB-")[2])
            self._ids_counted.add((high << 32) | int(number))
        elif f"{self.root}/idgen-long" not in nodes:
            self._ids_counted.add(int(number))

    def _registered(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        if above.endswith("/ledgers") and path in self.nodes.current.nodes:
            self.ledgers[int(name)] = self.made[int(name)]
            self.registered_ms[int(name)] = self.now_ms()
            self.log_of[int(name)] = path[len(self.paths.ids) + 1 :].split("/", maxsplit=1)[0]

    def _deleted_ledger(self, ledger_id: int, path: str) -> None:
        if path in self.nodes.current.nodes:
            return
        ledger = self.ledgers[ledger_id]
        self.views[self.log_of[ledger_id]].deleting(ledger_id)
        ledger.is_deleted = True
        self.counts["ledgers deleted"] += 1
        view = self.views[self.log_of[ledger_id]]
        if view.deleted_at_ms is None:
            view.checks.ledgers(view.store.state)


def _spawn_all(world: HostWorld) -> list[Process]:
    random = world.random
    processes = [
        Process(world, f"p{number}", skew_ms=random.choice(SKEWS_MS)) for number in range(5)
    ]
    if random.random() < 0.2:
        _spawn_few(processes)
        return processes

    def spawn(what: str, make: Any, *arguments: Any) -> None:
        process = random.choice(processes)
        process.spawn(what, make(process, *arguments))

    replaces = random.choice((0.15, 0.15, 0.9))
    span, step_ms = random.choice(((2, 700), (2, 700), (100, 600)))
    for app, batches in (("stream", 6), ("nightly", 3)):
        for batch_id in range(random.randint(2, batches)):
            for number in range(random.choice((1, 1, 2, 3))):
                query = "q2" if random.random() < 0.08 else "q1"
                run = f"{query}/{app}-{batch_id // span}-{number}"
                mode = WriteMode.OVERWRITE if random.random() < replaces else WriteMode.APPEND
                after_ms = batch_id * step_ms + random.randint(0, step_ms + 200)
                process = processes[(batch_id // span + number) % len(processes)]
                work = actors.job(process, app, batch_id, run, mode, after_ms)
                process.spawn(f"job {run}", work)
    crowd = random.choice((1, 2, 6))
    if crowd > 2:
        spawn("stand in the queue", actors.stand_in_queue)
    for number in range(crowd):
        mode = WriteMode.OVERWRITE if random.random() < 0.1 else WriteMode.APPEND
        after_ms = random.randint(0, 3_000 if crowd < 6 else 150)
        spawn(f"once {number}", actors.job, None, 0, f"once-{number}", mode, after_ms)
    for process in processes[:2]:
        process.spawn(f"upkeep of {process.name}", actors.keep_up(process))
    some: list[tuple[float, str, Any]] = [
        (0.8, "sweep", actors.sweep),
        (0.8, "merge", actors.merge),
        (0.7, "restore", actors.restore),
        (0.5, "truncate", actors.truncate),
        (0.4, "set", actors.set_property),
        (1.0, "read", readers.read),
        (0.6, "read again", readers.read),
        (0.6, "follow", readers.follow),
        (0.5, "travel", readers.travel),
        (0.3, "seal", actors.seal),
        (0.3, "let go", actors.delete_orphans),
        (0.3, "delete", actors.delete),
    ]
    for probability, what, make in some:
        if random.random() < probability:
            spawn(what, make)
    if world.extra.random() < 0.25:
        process = world.extra.choice(processes)
        process.spawn("fail first", actors.fail_first(process))
    return processes


def _spawn_few(processes: list[Process]) -> None:
    """Begin a stream that pauses for the grace period of its ledgers, and slow sweepers."""
    stream, *sweepers = processes
    stream.spawn("a stream that comes back", actors.come_back(stream))
    for process in sweepers:
        process.spawn(f"slow sweeps of {process.name}", actors.sweep_slowly(process))


async def _settle(world: HostWorld) -> None:
    """After all actors have ended, let all grace periods pass. No unneeded data is left."""
    world.is_faulty = False
    if world.random.random() < 0.3:
        await _damage(world, Process(world, "damage"))
    await asyncio.sleep(4)
    for number in range(3):
        dying = Process(world, f"dying {number}")
        dying.spawn("a sweep that dies", actors.sweep_all(dying))
        await asyncio.sleep(world.random.randint(5, 600) / 1e3)
        dying.crash()
    await _crossed(world)
    process = Process(world, "last")
    for _ in range(4):
        await asyncio.sleep(10)
        _, errors = await process.logs.sweeper().sweep_all()
        errors = [each for each in errors if not isinstance(each, WireFormatError)]
        world.require(not errors, f"the last sweeps failed: {errors}")
    _nothing_left(world)
    for log_id, view in world.views.items():
        if view.deleted_at_ms is None:
            await _read_whole(world, view, process.logs.open_by_id("log", log_id))


async def _damage(world: HostWorld, process: Process) -> None:
    """Damage the head of the first log. The passes over the other logs are not delayed by it."""
    await process.tree.create(world.paths.head(DAMAGED), b"no head of ours", make_parents=True)


async def _crossed(world: HostWorld) -> None:
    """Check that a pass ends even if other changes of the heads come before each change of the
    pass.
    """
    process = Process(world, "crossed")
    process.tree.is_crossed = True
    try:
        async with asyncio.timeout(CROSSED_SECONDS_MAX):
            await process.logs.sweeper().sweep_all()
    except TimeoutError:
        raise world.violation("a pass that is always crossed does not end") from None
    process.crash()


async def _kept_up(world: HostWorld, processes: Sequence[Process]) -> None:
    """Check that the remembered state of earlier passes hides no due work (LOGS.md#W8)."""
    keepers = [each for each in processes if each.upkeep is not None and not each.has_crashed]
    if not keepers or world.random.random() < 0.5:
        return
    world.is_faulty = False
    for other in keepers[1:]:
        other.crash()  # if the release of its lease was lost, the lease lasts longer
    await asyncio.sleep(1.1)
    keepers[0].spawn("upkeep alone", actors.keep_up_alone(keepers[0]))
    await world.until_all_ended()
    _nothing_left(world)
    world.counts["kept up"] += 1


def _nothing_left(world: HostWorld) -> None:
    """Check that, after all grace periods, no data exists that no version needs."""
    for log_id, view in world.views.items():
        nodes = world.nodes.current
        mine = {i for i in world.ledgers if world.log_of[i] == log_id}
        left = {i for i in mine if not world.ledgers[i].is_deleted}
        if view.deleted_at_ms is not None:
            world.require(not left, f"ledgers {sorted(left)} of a deleted log stay for ever")
            world.require(
                world.paths.log(log_id) not in nodes.nodes, "records of a deleted log stay for ever"
            )
            continue
        state = view.store.state
        listed = {item.ledger_id for item in view.checks.items(state)}
        world.require(left == listed, f"ledgers {sorted(left ^ listed)} are left or gone")
        view.checks.no_pages_left(state)
        jobs = [app for app in state.producers if app.startswith(JOB_APP_PREFIX)]
        world.require(not jobs, f"jobs {jobs} are never forgotten")


def _nobody_waits(world: HostWorld) -> None:
    """Check that the queue has no member of an ended writer."""
    for log_id in world.views:
        waiting = world.nodes.current.names.get(world.paths.queue(log_id), {})
        world.require(not waiting, f"{sorted(waiting)} wait for ever")


async def _read_whole(world: HostWorld, view: LogView, log: Any) -> None:
    snapshot = await log.snapshot()
    names = [name for item in snapshot.items for name in view.checks.names(item)]
    wanted = view.checks.true_names(snapshot.interval)
    is_whole = names[-len(wanted) :] == wanted or not wanted
    world.require(is_whole, "the newest version is not whole")


async def _run(seed: int) -> HostWorld:
    world = HostWorld(seed)
    with world.times_and_tokens(_remembered(world)):
        world.is_faulty = False
        first = Process(world, "first")
        await first.stores.initialize()
        await _use_up_ids(world, first)
        if world.random.random() < 0.4:
            world.properties["retentionMs"] = "2500"
        schema = rows.drawn_schema(world.random) if world.random.random() < 0.4 else b""
        await first.logs.create("log", schema=schema, properties=world.properties)
        world.is_faulty = world.random.random() < 0.8
        processes = _spawn_all(world)
        for process in processes:
            if world.random.random() < 0.25:
                after_ms = world.random.randint(100, 6_000)
                world.loop.call_later(after_ms / 1e3, process.crash)
        world.loop.call_later(7, lambda: setattr(world, "is_busy", False))
        await world.until_all_ended()
        if not any(process.tree.faults or process.has_crashed for process in processes):
            _nobody_waits(world)
        await _kept_up(world, processes)
        for process in processes:
            if not process.has_crashed:
                process.crash()
        await asyncio.sleep(3)
        _nobody_waits(world)
        await _settle(world)
        if world.failure is not None:
            raise world.failure
    return world


async def _use_up_ids(world: HostWorld, process: Process) -> None:
    """In some schedules, let a counter of ids be near its end."""
    if world.random.random() < 0.2:
        counter = f"{world.root}/idgen"
        if world.random.random() < 0.5:
            counter = f"{world.root}/idgen-long/HOB-{1:010d}"
        await process.tree.create(counter, make_parents=True)
        node = world.nodes.current.nodes[counter]
        made = NUMBER_END - world.random.randint(0, 40)
        world.nodes.current.nodes[counter] = replace(node, children_made=made)


def _remembered(world: HostWorld) -> Any:
    """Record restores by their producers."""

    def remembered(**fields: Any) -> RestoreRequest:
        request = RestoreRequest(**fields)
        world.restores[request.app] = request
        return request

    return mock.patch.object(log_upkeep, "RestoreRequest", remembered)


def host_schedule(seed: int) -> HostWorld:
    """Run one random schedule to its end, or raise `Violation`."""
    world: HostWorld = play_hosts(seed, _run)
    return world
