"""One schedule of shipped leader logs: processes, their crashes, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.log.leader import leader as leader_module
from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.leader.messages import LeaderSettings
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.log.state.records import LogKind
from ledgerlog_spark.retry import RetryPolicy
from tests.sim.leader.hosts import actors
from tests.sim.leader.hosts.blame import LeaderCall
from tests.sim.leader.hosts.content import Records, Rows
from tests.sim.leader.hosts.ledgers import LeaderLedgers
from tests.sim.leader.hosts.news import News, notify_of_an_append
from tests.sim.leader.hosts.restarts import start_again
from tests.sim.leader.hosts.truth import Truth
from tests.sim.leader.hosts.view import LeaderView
from tests.sim.leader.ledgers import SimLedger, SimLedgers
from tests.sim.log.hosts.base import SKEWS_MS, Hosts, play_hosts
from tests.sim.log.hosts.process import Process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.testing.memory.nodes import NodeChange
    from tests.sim.leader.hosts.ledgers import SimReader, SimWriter

GRACES = {"deletedRetentionMs": "1500", "stagingTtlMs": "3000"}
SMALL_SETTINGS = partial(
    LeaderSettings,
    window=Window(entries_max=4, size_bytes_max=2_000),
    retry=RetryPolicy(first_delay_ms=20, delay_max_ms=400, attempts_max=10),
)
"""Limits so small that appends wait for room, and that attempts are given up."""

CATCH_UP_SECONDS = 3
RELEASE_SECONDS = 8
"""With faults, a ledger that is created after its caller gave up is released within this time."""
NEWS_SECONDS = 0.5
"""A watch of the log's end follows the new ledger within this time after a roll."""


class LeaderHosts(Hosts):
    """The known facts about what processes did to leader logs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self.random
        self.quorums = SimLedgers(
            random,
            self.later,
            self.now_ms,
            lambda ledger, last: self.writers[ledger.ledger_id].on_confirmed(last),
            lambda ledger, is_lost: self.writers[ledger.ledger_id].on_broken(is_lost),
            self._on_moved,
        )
        self.quorums.break_probability = random.choice((0, 0.01, 0.05))
        self.writers: dict[int, SimWriter] = {}
        self.followers: dict[int, list[SimReader]] = {}
        self.log_of: dict[int, str] = {}
        self.records: set[int] = set()
        self.truths: dict[str, Truth] = {}
        self.tails: dict[str, int] = {}
        self.leaders: dict[str, list[Leader]] = {}
        self.content = Rows() if random.random() < 0.3 else Records()
        self.properties = {
            **GRACES,
            "stagingTtlMs": self.extra.choice(("150", "3000")),
            "rollBytes": str(random.choice((150, 600, 5_000))),
            "rollMs": str(random.choice((300, 1_500, 100_000))),
            "onBookieFailure": random.choice(("change_ensemble", "roll_ledger")),
        }
        if random.random() < 0.3:
            self.properties["retentionMs"] = "2000"
        self.settings = ClientSettings(
            linger_ms=2,
            backlog_entries_max=3,
            open_timeout_ms=random.choice((120_000, 120_000, 700)),
            close_timeout_ms=random.choice((30_000, 300)),
        )
        self.cancel_probability = random.choice((0, 0.3))
        self.tried: set[int] = set()
        """Ledgers that a leader tried to list."""
        self.watches: list[News] = []
        """Watches of processes that run to the end of the schedule."""
        self.processes: list[Process] = []
        self.openings: Counter[tuple[Any, str]] = Counter()
        """The number of running calls that open a leader, by client and log."""
        self.left_ms: dict[tuple[Any, str], int] = {}
        """Time at which such a call or a leader last ended. Requests from before may still run."""
        self.is_over: asyncio.Future[None] = self.loop.create_future()
        self._values = 0

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call `call` after a virtual delay. Its errors are violations of the schedule."""

        def run() -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 (raised by whoever waits for the schedule)
                self.failure = self.failure or error

        self.loop.call_later(delay_ms / 1e3, run)

    def _on_moved(self, ledger: SimLedger) -> None:
        for reader in self.followers.get(ledger.ledger_id, ()):
            reader.notice()

    def end(self) -> None:
        """Stop the actors that would run forever."""
        self.is_busy = False
        self.is_over.set_result(None)

    def process(self, name: str, skew_ms: int = 0) -> Process:
        process = Process(self, name, skew_ms=skew_ms, ledgers_of=LeaderLedgers)
        self.processes.append(process)
        write_head = process.store.write_head

        def write_noted(log_id: str, request: Any) -> Awaitable[Any]:
            self.tried.update(request.listed)
            return write_head(log_id, request)

        process.store.write_head = write_noted  # type: ignore[assignment]
        return process

    def check_released(self, process: Process) -> None:
        """Check that the process released the ledgers of openings that were given up."""
        for ledger_id, writer in self.writers.items():
            is_left = writer.is_of(process.ledgers) and writer.is_given
            is_known = ledger_id in self.tried or ledger_id in process.ledgers.looked_at
            self.require(
                not is_left or is_known, f"{process.name} left ledger {ledger_id} behind, unlisted"
            )

    def stand_still(self) -> None:
        """Let the store, the bookies, or both answer no request for a while."""
        until_ms = self.now_ms() + self.random.choice((200, 1_000, 3_000))
        which = self.random.choice(("store", "bookies", "both"))
        if which != "bookies":
            self.still_until_ms = until_ms
        if which != "store":
            self.quorums.still_until = until_ms
            self.quorums.faults += 1

    def heal(self) -> None:
        """End all faults."""
        self.is_faulty = self.quorums.faulty = False
        self.still_until_ms = self.quorums.still_until = 0
        self.cancel_probability = 0
        for process in self.processes:
            process.tree.release_reads()  # all servers of the store have the newest data
        self.settings = replace(self.settings, open_timeout_ms=120_000, close_timeout_ms=30_000)

    def new_values(self, name: str, count: int) -> list[str]:
        """Return values that were never appended before."""
        first, self._values = self._values, self._values + count
        return [f"{name} {number}" for number in range(first, self._values)]

    def truth_of(self, log_id: str) -> Truth:
        return self.truths.setdefault(log_id, Truth(self.views[log_id]))

    # --- leaders ---

    def opened(self, process: Process, log_id: str, leader: Leader) -> None:
        self.counts["leaders opened"] += 1
        key = process.ledgers, log_id
        leader._ended.add_done_callback(lambda _: self.left_ms.update({key: self.now_ms()}))
        self.leaders.setdefault(log_id, []).append(leader)

    @contextlib.contextmanager
    def opening(self, process: Process, log_id: str) -> Iterator[None]:
        """Count a call that opens a leader of the log, inside the `with` block."""
        key = process.ledgers, log_id
        self.openings[key] += 1
        try:
            yield
        finally:
            self.openings[key] -= 1
            self.left_ms[key] = self.now_ms()

    def is_led_by(self, client: Any, log_id: str) -> bool:
        """Whether the process of this client leads the log, or is opening it."""
        process = next(each for each in self.processes if each.ledgers is client)
        leaders = (each for each in process.leaders if each.log_id == log_id)
        is_led = any(not leader._ended.done() for leader in leaders)
        is_left_now = self.left_ms.get((client, log_id)) == self.now_ms()
        return is_led or is_left_now or self.openings[client, log_id] > 0

    def check_ended(self, process: Process, leader: Leader) -> None:
        """Check that an ended leader left no timer, no watch and no writer."""
        host = leader._host
        self.require(not host._timers, f"{leader!r} ended, and its timers run")
        self.require(not host._watches, f"{leader!r} ended, and watches the head")
        if self.is_led_by(process.ledgers, leader.log_id):
            return
        written = [writer for writer in self.writers.values() if writer.is_of(process.ledgers)]
        left = [w.id for w in written if self.log_of[w.id] == leader.log_id and not w.is_over]
        self.require(not left, f"{leader!r} ended, and ledgers {left} are written")

    def sent(self, ledger_id: int, times_ms: dict[int, int]) -> None:
        """Record the append times, by offset, in an entry that a leader sent."""
        self.truth_of(self.log_of[ledger_id]).times_ms.update(times_ms)

    def judge_end(self, process: Process, leader: Leader, error: LedgerLogError) -> None:
        """Check that the reason for the end of a leader happened."""
        LeaderCall(self, process, leader.log_id, leader=leader, since_faults=0).judge(error)

    # --- what the store says ---

    def _look(self, changes: list[NodeChange]) -> None:
        below = f"{self.paths.ids}/"
        touched: dict[str, None] = {}
        for change in changes:
            path = change.path
            if path.startswith(below):
                touched[path[len(below) :].split("/")[0]] = None
            elif (ledger_id := self.ledger_of(path)) is not None:
                self._ledger(ledger_id, is_there=path in self.nodes.current.nodes)
        for log_id in touched:
            if log_id in self.views:
                self.views[log_id].changed()
            elif self.nodes.current.nodes.get(self.paths.head(log_id)) is not None:
                self.views[log_id] = LeaderView(self, log_id)
                self.newest_id = log_id

    def _ledger(self, ledger_id: int, *, is_there: bool) -> None:
        if is_there:
            self.records.add(ledger_id)
        elif ledger_id in self.records:
            self.records.remove(ledger_id)
            self.views[self.log_of[ledger_id]].deleting(ledger_id)
            self.quorums.drop(ledger_id)
            self.counts["ledgers deleted"] += 1


def _spawn_all(world: LeaderHosts) -> list[Process]:
    random = world.random
    processes = [world.process(f"p{n}", random.choice(SKEWS_MS)) for n in range(5)]
    for number in range(random.randint(1, 5)):
        process = processes[number % len(processes)]
        after_ms = random.choice((0, 0, 200, 1_500, 4_000))
        process.spawn(f"leader {number}", actors.lead(process, random.randint(5, 60), after_ms))
    watcher = world.process("watcher")
    watcher.spawn("watch to the end", actors.watch_to_the_end(watcher))
    process = random.choice(processes)
    process.spawn("upkeep", actors.keep_up(process))
    some: list[tuple[float, str, Any]] = [
        (1.0, "tail", actors.tail),
        (0.5, "tail again", actors.tail),
        (0.8, "read", actors.read),
        (0.5, "truncate", actors.truncate),
        (0.4, "wrong schema", actors.lead_wrongly),
        (0.5, "check", actors.check),
        (0.25, "delete", actors.delete),
        (0.4, "watch the end", actors.watch_end),
    ]
    if world.extra.random() < 0.5:
        process = world.extra.choice(processes)
        process.spawn("start again", start_again(process))
    if world.extra.random() < 0.6:
        process = world.extra.choice(processes)
        process.spawn("recover", actors.recover(process))
    for probability, what, make in some:
        if random.random() < probability:
            process = random.choice(processes)
            process.spawn(what, make(process))
    return processes


async def _settle(world: LeaderHosts) -> None:
    """Run one leader alone and a tail of the whole log. After this, no unlisted ledger is left."""
    world.heal()
    await asyncio.sleep(2)
    process = world.process("last")
    log = await actors.opened(process)
    assert log is not None
    tailing = asyncio.ensure_future(actors._follow(process, log.log_id))
    leader = await actors.led(process, log)
    assert leader is not None
    watches = [News(process, log)]
    watches += [news for news in world.watches if news.log_id == log.log_id]
    for _ in range(3):
        actors.append(process, leader, 2)
        leader.send_now()
        await asyncio.sleep(0.05)
    rolling = asyncio.ensure_future(leader.roll())
    await asyncio.sleep(world.extra.randint(1, 60) / 1e3)
    await log.set_properties({"rollMs": "90000"})
    await rolling
    await asyncio.sleep(NEWS_SECONDS)
    await notify_of_an_append(leader, watches, world)
    await _break_while_idle(world, leader)
    for news in watches[1:]:
        await news.end_with_client()
    await actors.close(process, leader)
    watches[0].end()
    await asyncio.sleep(NEWS_SECONDS)
    for news in watches[1:]:
        news.check_silent()
    await world.until_all_ended()
    await asyncio.sleep(CATCH_UP_SECONDS)
    truth, view = world.truth_of(log.log_id), world.views[log.log_id]
    seen = world.tails.get("last", 0)
    world.require(seen == view.head.end_offset, f"a tail stands still at {seen}")
    tailing.cancel()
    truth.check_all(list(await actors.whole(world, log)))
    checks = view.checks
    checks.whole(view.store.state)
    orphan = await process.ledgers.create_as_older_releases(log.log_id)
    for _ in range(4):
        await asyncio.sleep(10)
        orphans = await log.delete_orphans()
        world.require(orphans == orphan, f"{orphans} instead of {orphan} are orphans")
        orphan = ()
        _, errors = await process.logs.sweeper().sweep_all()
        world.require(not errors, f"the last sweeps failed: {errors}")
    listed = checks.listed_now(view.store.state)
    world.require(
        world.records == listed, f"ledgers {sorted(world.records ^ listed)} are left or gone"
    )
    for log_id, other in world.views.items():
        is_left = world.paths.log(log_id) in world.nodes.current.nodes
        is_gone = other.deleted_at_ms is not None
        world.require(is_left != is_gone, "records of a deleted log stay for ever")


async def _break_while_idle(world: LeaderHosts, leader: Leader) -> None:
    """Check that a leader replaces a broken ledger even if nothing is appended."""
    ledger = world.quorums.by_id[leader._ledger_id]
    world.quorums.fail_writer(ledger)
    await asyncio.sleep(NEWS_SECONDS)
    world.require(
        ledger.state is LedgerState.CLOSED, f"ledger {ledger.ledger_id} broke, and stays open"
    )


async def _run(seed: int) -> LeaderHosts:
    world = LeaderHosts(seed)
    with world.times_and_tokens(mock.patch.object(leader_module, "LeaderSettings", SMALL_SETTINGS)):
        world.is_faulty = world.quorums.faulty = False
        first = world.process("first")
        await first.stores.initialize()
        await first.logs.create(
            "log",
            schema=world.content.schema,
            properties=world.properties,
            kind=LogKind.LEADER,
            content=world.content.content,
        )
        world.is_faulty = world.quorums.faulty = world.random.random() < 0.85
        processes = _spawn_all(world)
        if world.is_faulty and world.random.random() < 0.4:
            world.later(world.random.randint(100, 4_000), world.stand_still)
        for process in processes:
            if world.random.random() < 0.3:
                world.later(world.random.randint(100, 6_000), process.crash)
        world.later(7_000, world.end)
        await world.until_all_ended()
        if world.counts["openings cancelled"]:
            await asyncio.sleep(RELEASE_SECONDS)
        for process in processes:
            if not process.has_crashed:
                world.check_released(process)
                for leader in process.leaders:
                    if leader._ended.done():
                        world.check_ended(process, leader)
                if all(leader._ended.done() for leader in process.leaders):
                    watched = [change for change, on in process.tree._watches.items() if on]
                    world.require(not watched, f"{process.name} has ended, and watches {watched}")
                process.crash()
        await _settle(world)
        if world.failure is not None:
            raise world.failure
    return world


def host_schedule(seed: int) -> LeaderHosts:
    """Run one random schedule to its end, or raise `Violation`."""
    world: LeaderHosts = play_hosts(seed, _run)
    return world
