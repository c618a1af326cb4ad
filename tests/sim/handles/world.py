"""One schedule: processes with ledgers, faults of network and bookies, then no more faults."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import uuid
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from ledgerlog_spark.client import append_queue
from ledgerlog_spark.client.blocking import batch_queue
from ledgerlog_spark.client.blocking import client as blocking_client
from ledgerlog_spark.client.blocking import writer as blocking_writer
from ledgerlog_spark.client.handles import known_ends
from ledgerlog_spark.errors import (
    AddTimeoutError,
    DigestMismatchError,
    EntryUnknownError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerRecoveryError,
    LocalProtocolError,
    MetadataUnavailableError,
    MetadataUnknownError,
    NotEnoughBookiesError,
    QuorumError,
)
from ledgerlog_spark.log.committing import range_writer
from ledgerlog_spark.log.leader import leader
from ledgerlog_spark.protocol.leader.messages import LeaderSettings
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.transport.v2 import connection as v2_connection
from ledgerlog_spark.transport.v2 import link as v2_link
from tests.sim.handles import actors, blocking, calls, calm, leaders, reads, streams
from tests.sim.handles.bookies import RUN_ENTRIES_MAX, SimBookie
from tests.sim.handles.network import Network, SimLoop
from tests.sim.handles.process import DOWN_MS_MAX, UNSENT_BYTES_MAX, Process, when_down
from tests.sim.handles.story import OwnersMistakeError
from tests.sim.handles.threads import (
    PreemptedCondition,
    SimQueue,
    Threads,
    loop_thread,
    wait_in_virtual_time,
)
from tests.sim.log.checks import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgerlog_spark.metadata.ledgers.store import LedgerStore
    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.sim.handles.story import Story

BEGAN_MS = 1_700_000_000_000
BUSY_SECONDS = 12
HEAL_SECONDS = 60
"""Longer than any time limit, so every earlier call has ended after this time."""

ANNOUNCED_SECONDS = 0.12
"""Time in which a writer sends its LAC to every bookie. It begins 50 ms after the last confirmed
append."""

QUIET_SECONDS = 150
"""Without any client, no timer runs after this time."""

END_SECONDS = 900

CALM_ENTRIES_READ_MAX = 100
"""Each process reads this number of the last entries of each ledger. At the end, one process reads
all entries."""

LEADER: dict[str, Any] = {
    "window": Window(entries_max=6, size_bytes_max=4_000),
    "retry": RetryPolicy(first_delay_ms=20, delay_max_ms=400, attempts_max=10),
}


class HandleWorld:
    """Virtual time, and the known facts about bookies, processes and ledgers.

    Attributes:
        is_faulty: Whether faults may happen now.
        has_faults: Whether faults may have happened.
        set_back_ms: Time by which the clock of the store was set back.
        truth: The true records in the store.
        still_until_ms: Time before which the store answers no request.
        is_calm: Whether no fault happens, and the effects of all faults are over.
        is_busy: Whether actors begin new work.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.nodes = MemoryNodes(self.now_ms)
        self.root = "/ledgers"
        self.network = Network(self)
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.set_back_ms = 0
        self.still_until_ms = 0
        self.is_faulty = False
        self.has_faults = False
        self.is_calm = False
        self.is_busy = True
        self.gone_places: set[str] = set()
        self.cut_processes: set[str] = set()
        self.bookies: dict[str, SimBookie] = {}
        self.processes: list[Process] = []
        self.stories: dict[int, Story] = {}
        self.log = leaders.LogStory(self)
        self.table = streams.Table(self)
        self._sessions: dict[str, MetadataStores] = {}
        self._works: dict[asyncio.Task[Any], str] = {}
        self._failure: BaseException | None = None
        self.bookie_faults = 0
        self.threads = Threads(self)
        self.truth: LedgerStore

    def elapsed_ns(self) -> int:
        """Return the virtual time."""
        return int(self.loop.time() * 1e9)

    def now_ms(self) -> int:
        return BEGAN_MS + int(self.loop.time() * 1e3) - self.set_back_ms

    def violation(self, what: str) -> Violation:
        at_ms = int(self.loop.time() * 1e3)
        return Violation(f"handles, seed {self.seed}, at {at_ms} ms: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            # Also keep the failure, so that code that catches errors of calls cannot hide it.
            self._failure = self._failure or self.violation(what)
            raise self._failure

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback of the loop. The loop alone would report a violation and continue."""
        with contextlib.suppress(Violation):
            call()

    def on_loop_error(self, _: Any, context: dict[str, Any]) -> None:
        said = context.get("exception") or context["message"]
        if isinstance(said, OwnersMistakeError):
            return
        if self._failure is None:
            is_known = isinstance(said, Violation)
            self._failure = (
                said if is_known else self.violation(f"an error that nobody gets: {said!r}")
            )

    def raise_failure(self) -> None:
        """Raise the first failure, including failures in callbacks and in freed tasks."""
        if self._failure is not None:
            raise self._failure

    def happens(self, chance: float) -> bool:
        return self.is_faulty and self.random.random() < chance

    def fault(self, what: str) -> None:
        self.counts[what] += 1
        self.has_faults = True
        self.bookie_faults += 1

    def bookie_at(self, place: str) -> SimBookie | None:
        return next((each for each in self.bookies.values() if each.place == place), None)

    def copies(self, ledger_id: int, entry_id: int) -> int:
        """Return the number of bookies that have the entry."""
        ledgers = (bookie.inner.ledgers.get(ledger_id) for bookie in self.bookies.values())
        return sum(ledger is not None and entry_id in ledger.entries for ledger in ledgers)

    def name_at(self, place: str) -> str:
        return place.partition("-moved")[0]

    def is_cut(self, process: str) -> bool:
        return process in self.cut_processes

    # --- what callers were told ---

    def judge(self, process: Process, error: BaseException, story: Story | None) -> None:
        """Raise a violation unless something explains the failure."""
        if process.is_over:
            return
        self.counts[f"failed: {type(error).__name__}"] += 1
        if not isinstance(error, LedgerLogError) or not self._is_explained(process, error, story):
            self.require(False, f"nothing explains {error!r}")

    def _is_explained(  # noqa: PLR0911
        self, process: Process, error: LedgerLogError, story: Story | None
    ) -> bool:
        is_contested = story is not None and (story.is_contested or story.is_closing)
        match error:
            case _ if "was answered for" in str(error):
                return False  # each request gets an answer, at the latest its time-out
            case _ if "access list" in str(error):
                return process.tree.refusals > 0
            case MetadataUnavailableError() | MetadataUnknownError():
                return process.tree.faults > 0
            case LedgerFencedError() | LedgerClosedError():
                return is_contested
            case AddTimeoutError() | NotEnoughBookiesError() | QuorumError():
                return self.bookie_faults > 0
            case LedgerRecoveryError() | EntryUnknownError() | DigestMismatchError():
                return self.bookie_faults > 0 or process.tree.faults > 0
            case LocalProtocolError():
                return story is not None and "handle of ledger" in str(error)
            case _:
                return False

    # --- running ---

    def watch(self, what: str, task: asyncio.Task[Any]) -> None:
        self._works[task] = what

    async def until_all_ended(self, seconds: float) -> None:
        """Wait until every actor has ended. Otherwise raise a violation that names the actor."""
        deadline = self.loop.time() + seconds
        while True:
            self.raise_failure()
            for task in [task for task in self._works if task.done()]:
                del self._works[task]
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error
            if not self._works:
                return
            if self.loop.time() > deadline:
                raise self.violation(f"these never end: {sorted(self._works.values())}")
            await asyncio.wait(list(self._works), timeout=1, return_when=asyncio.FIRST_COMPLETED)

    async def join(self, bookie: SimBookie) -> None:
        stores = self._sessions.setdefault(bookie.name, memory_metadata(self.nodes))
        if await stores.registration.read_cookie(bookie.name) is None:
            await stores.registration.write_cookie(bookie.name, b"cookie", None)
        await stores.registration.register(bookie.info)

    async def leave(self, bookie: SimBookie) -> None:
        await self._sessions[bookie.name].registration.unregister(bookie.name)

    def _look_later(self, bookie: SimBookie) -> None:
        for process in self.processes:
            check = when_down(process, bookie.name)
            self.network.later(DOWN_MS_MAX, partial(self.guarded, check))

    # --- faults ---

    async def break_things(self) -> None:
        """Make one fault after the other, and undo each after a while."""
        random = self.random
        while self.is_busy:
            await asyncio.sleep(random.uniform(0.05, 1.2))
            name = random.choice(list(self.bookies))
            bookie = self.bookies[name]
            lines = [line for line in self.network.lines if line.is_open]
            what = random.random()
            if what < 0.25 and lines:
                self.fault("connections reset")
                self.network.reset_one(random.choice(lines))
            elif what < 0.28:
                self.fault("clocks set back")
                self.set_back_ms += random.choice((30, 2_000))
            elif what < 0.31:
                random.choice(self.processes).tree.go_away(random.uniform(3, 9))
            elif not bookie.is_up or bookie.is_stuck or bookie.is_slow:
                continue
            elif what < 0.5:
                self.fault("bookies stuck")
                bookie.is_stuck = True
                self._later(random.uniform(0.1, 6), self._unstick, bookie)
            elif what < 0.55 and not any(each.is_rotten for each in self.bookies.values()):
                self.fault("bookies rotten")
                bookie.is_rotten = True
                self._later(random.uniform(0.5, 6), self._mend, bookie)
            elif what < 0.7:
                self.fault("bookies slow")
                bookie.is_slow = True
                self._later(random.uniform(0.5, 6), self._hurry, bookie)
            else:
                self.fault("bookies down")
                if random.random() < 0.7:
                    bookie.stop()
                    self._look_later(bookie)
                else:
                    bookie.move()
                for process in self.processes:
                    process.control.bookie_lost(bookie.name)
                self._later(random.uniform(0.3, 5), self._bring_back, bookie)

    def _later(self, seconds: float, undo: Any, bookie: SimBookie) -> None:
        async def work() -> None:
            await asyncio.sleep(seconds)
            await undo(bookie)

        self.watch(f"what ends a fault of {bookie.name}", asyncio.ensure_future(work()))

    async def _unstick(self, bookie: SimBookie) -> None:
        bookie.is_stuck = False

    async def _mend(self, bookie: SimBookie) -> None:
        bookie.is_rotten = False

    async def _hurry(self, bookie: SimBookie) -> None:
        bookie.is_slow = False

    async def _bring_back(self, bookie: SimBookie) -> None:
        """Restart a bookie. Its session has ended only if the bookie was away for long."""
        if self.random.random() < 0.5 or bookie.place in self.gone_places:
            await self.leave(bookie)
            await asyncio.sleep(self.random.uniform(0, 1))
        self.network.cut_bookie(bookie.name)  # the connections to the previous machine
        bookie.start()
        await self.join(bookie)


def _spawn_all(world: HandleWorld) -> None:
    random = world.random
    for number in range(random.randint(1, 3)):
        process = random.choice(world.processes[:2])
        process.spawn(f"writer {number}", actors.write(process, random.randint(0, 2_000)))
    for number in range(random.choice((0, 0, 1))):
        process = random.choice(world.processes[:2])
        process.spawn(f"threads {number}", blocking.write(process, random.randint(0, 2_000)))
    for actor in (calls.draw_ids, calls.delete, calls.hear_twice):
        if random.random() < 0.15:
            process = random.choice(world.processes)
            process.spawn(actor.__name__, actor(process))
    if random.random() < 0.75:
        for number in range(random.choice((1, 1, 2, 3))):
            process = random.choice(world.processes)
            after_ms = random.choice((0, 500, 2_000, 6_000))
            process.spawn(f"leader {number}", leaders.lead(process, world.log, after_ms))
        for number in range(random.randint(0, 2)):
            process = random.choice(world.processes)
            process.spawn(f"tail {number}", leaders.tail(process, world.log))
        for number in range(random.randint(0, 2)):
            process = random.choice(world.processes)
            process.spawn(f"watch of the end {number}", leaders.watch_end(process, world.log))

    if random.random() < 0.5:
        for number in range(random.choice((1, 1, 2))):
            process = random.choice(world.processes)
            after_ms = random.choice((0, 1_000)) + 3_000 * number
            process.spawn(f"run {number}", streams.stream(process, world.table, after_ms))


ODD_ACTORS = (
    reads.close_under,
    reads.close_under,
    reads.in_one_room,
    reads.in_slices,
    reads.in_slices,
    reads.believe_a_lie,
    reads.look_at_recent,
    reads.come_back_late,
    blocking.read,
    blocking.read,
    calls.look_around,
    calls.hear_nothing,
    calls.close_under_calls,
)


async def _begin_others(world: HandleWorld) -> None:
    """Begin readers and sealers of existing ledgers repeatedly."""
    random = world.random
    ends_at = world.loop.time() + BUSY_SECONDS
    while world.loop.time() < ends_at:
        await asyncio.sleep(random.uniform(0.05, 1.5))
        living = [process for process in world.processes if not process.is_over]
        if living and world.table.ledgers and random.random() < 0.1:
            process = random.choice(living)
            process.spawn("sealer of a range", streams.seal_one(process, world.table))
        if not world.stories or not living:
            continue
        story = random.choice(list(world.stories.values()))
        process = random.choice(living)
        what = random.random()
        if what < 0.45:
            process.spawn(f"follower of {story.ledger_id}", actors.follow(process, story))
        elif what < 0.7:
            process.spawn(f"probe of {story.ledger_id}", actors.probe(process, story))
        elif what < 0.88:
            process.spawn(f"reader of {story.ledger_id}", actors.look(process, story))
        elif what < 0.94:
            process.spawn(f"sealer of {story.ledger_id}", actors.seal(process, story))
        elif what < 0.97 and world.is_faulty:
            process.crash()
        if random.random() < 0.25:
            story = random.choice(list(world.stories.values()))
            odd = random.choice(ODD_ACTORS)
            process.spawn(f"{odd.__name__} of {story.ledger_id}", odd(process, story))
    world.is_busy = False


async def _calm_down(world: HandleWorld) -> None:
    """End all faults, and wait until their effects are over."""
    world.is_faulty = False
    await world.until_all_ended(END_SECONDS)
    for process in world.processes:
        if not process.has_crashed:
            process.tree.release_reads()
    await asyncio.sleep(HEAL_SECONDS if world.has_faults else 2)
    world.is_calm = True


async def _check_calm(world: HandleWorld) -> None:
    """Check that all remaining processes work normally."""
    living = [process for process in world.processes if not process.is_over]
    for process in living:
        process.spawn("what goes on", _go_on(world, process))
    await world.until_all_ended(END_SECONDS)
    await asyncio.sleep(1)
    for story in world.stories.values():
        _check_announced(world, story)
        _check_followed(world, story)
    for process in living:
        for name in world.bookies:
            lines = world.network.open_lines(process.name, name)
            world.require(len(lines) <= 3, f"{process.name} keeps {len(lines)} connections")
        kept = sum(
            len(queue)
            for link in process.transport._links.values()
            for queue in link._deadlines._queues.values()
        )
        kept -= len(process.checked.open)  # periodic reads of followers
        world.require(kept <= 0, f"{process.name} keeps {kept} requests that were answered")


async def _go_on(world: HandleWorld, process: Process) -> None:
    for reign in world.log.reigns:
        if reign.process is process and reign.leader is not None and reign.leader.is_leading:
            since = world.loop.time()
            made = reign.append(2) + reign.append_many(7)
            await actors.ended(process, "flush of a leader", reign.leader.flush())
            failed = [each for each in made if not each.done() or each.exception() is not None]
            is_last = not reign.is_contested
            if is_last and not failed:
                control = sum(bookie.has_control for bookie in world.bookies.values())
                is_told = control > len(world.bookies) - 3  # each ensemble has such a bookie
                await asyncio.sleep(1 if is_told else calm.FOLLOWED_SECONDS)
                leaders.check_news(world.log, since)
                await leaders.check_age(reign)
            world.require(
                not (failed and is_last), f"{len(failed)} records failed for nothing: {failed[:1]}"
            )
    for story in list(world.stories.values()):
        if story.process is process and story.handle.is_writable:
            is_free = not story.is_contested
            made = story.append(3) + story.append_batch(20)
            await actors.ended(process, "drain", story.handle.drain())
            await actors.ended(process, "flush", story.handle.flush())
            failed = [each for each in made if not each.done() or each.exception() is not None]
            world.require(
                not (failed and is_free), f"{len(failed)} appends failed for nothing: {failed[:1]}"
            )
            await asyncio.sleep(ANNOUNCED_SECONDS)
            _check_announced(world, story)
        handle = await actors.opened(process, story)
        world.require(handle is not None, f"{process.name} cannot open {story.ledger_id}")
        assert handle is not None
        last = story.see_end(handle, -1)
        first = max(0, last - CALM_ENTRIES_READ_MAX) if last >= 0 else 0
        await actors.read_on(process, story, handle, first, last, is_slow=False)
        for bookie in handle.metadata.last_fragment.ensemble:
            for entry_id in range(min(last + 1, 8)):
                await actors.ended(process, "read", process.read_one(bookie, story, entry_id))


def _check_announced(world: HandleWorld, story: Story) -> None:
    """Check that an idle writer has sent its LAC to every bookie and to all followers."""
    if not story.announces or story.process.is_over or not story.handle.is_writable:
        return
    if story.is_contested:
        return
    last = story.handle.last_add_confirmed
    for name in story.handle.metadata.last_fragment.ensemble:
        bookie = world.bookies[name]
        ledger = bookie.inner.ledgers.get(story.ledger_id)
        if bookie.has_control and last >= 0:
            lac = -1 if ledger is None else ledger.lac
            world.require(
                lac == last, f"{name} knows {lac} of {story.ledger_id}, which is at {last}"
            )
    ensemble = story.handle.metadata.last_fragment.ensemble
    if not any(world.bookies[name].has_control for name in ensemble):
        return  # no bookie can announce the LAC
    for process, handle, follower in story.followers:
        if process.is_over or follower.is_over:
            continue
        lac = handle.last_add_confirmed
        world.require(lac == last, f"a follower of {story.ledger_id} knows {lac}, not {last}")


def _check_followed(world: HandleWorld, story: Story) -> None:
    """Check that followers know the end or the close of the ledger, and survive an outage."""
    for process, handle, follower in story.followers:
        if process.is_over:
            continue
        world.require(follower.error is None, f"a follower ended with {follower.error!r}")
        if story.closed is not None:
            world.require(
                follower.is_over, f"{handle} follows a ledger that is closed at {story.closed}"
            )
    for process in {process for process, _, _ in story.followers if not process.is_over}:
        has_others = any(news.process is process for news in world.log.news) or any(
            reign.process is process for reign in world.log.reigns
        )
        wanted = sum(
            each is process and not follower.is_over
            for one in world.stories.values()
            for each, _, follower in one.followers
        )
        is_right = process.control.watches <= wanted or has_others or process.tails > 0
        world.require(is_right, f"{process.control.watches} watches for {wanted} followers")


async def _end(world: HandleWorld) -> None:
    """Close some handles and leave the others, then check all ledgers from a new process."""
    for story in list(world.stories.values()):
        process = story.process
        if not process.is_over and world.random.random() < 0.5:
            process.spawn("a last close", actors.close(process, story))
    await world.until_all_ended(END_SECONDS)
    for process in world.processes:
        if not process.is_over:
            for story in world.stories.values():
                if story.process is process and story.handle.is_writable:
                    story.append(5)
            for reign in world.log.reigns:
                if reign.process is process and reign.leader and reign.leader.is_leading:
                    reign.append(5)
            await process.close()
    calm.check_no_timers(world)
    for pending in [told.pending for told in world.stories.values()] + [
        told.pending for told in world.log.reigns
    ]:
        world.require(not pending, f"{len(pending)} appends were never answered")
    last = Process(world, "last")
    world.processes.append(last)
    for story in world.stories.values():
        record = await actors.ended(
            last, "seal", last.client.seal(story.ledger_id, password=story.password)
        )
        handle = await last.client.open_ledger(story.ledger_id, password=story.password)
        found = [entry async for entry in handle.read()] if record.last_entry_id >= 0 else []
        story.check_whole(record, found)
    await leaders.check_end(last, world.log)
    await world.table.check_whole(last)
    await last.close()


async def _run(seed: int) -> HandleWorld:
    world = HandleWorld(seed)
    loop = world.loop
    assert isinstance(loop, SimLoop)
    loop.network = world.network
    loop.set_exception_handler(world.on_loop_error)
    setup = memory_metadata(world.nodes)
    await setup.initialize()
    world.truth = setup.ledgers
    for number in range(6):
        bookie = world.bookies[f"b{number}"] = SimBookie(world, f"b{number}")
        await world.join(bookie)
    if world.random.random() < 0.1:
        for bookie in world.bookies.values():
            bookie.has_control = False
    world.is_faulty = world.random.random() < 0.7
    world.is_calm = not world.is_faulty
    world.processes += [Process(world, f"p{number}") for number in range(4)]
    _spawn_all(world)
    if world.is_faulty:
        world.watch("what breaks things", asyncio.ensure_future(world.break_things()))
    world.watch("what begins others", asyncio.ensure_future(_begin_others(world)))
    await world.until_all_ended(END_SECONDS)
    await _calm_down(world)
    await _check_calm(world)
    await calm.check(world)
    await _end(world)
    for stores in (setup, *world._sessions.values()):
        await stores.close()
    world.raise_failure()
    await asyncio.sleep(QUIET_SECONDS)
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    world.require(not timers, f"timers are left: {timers[:3]}")
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    world.require(not left, f"tasks are left: {left}")
    return world


@contextlib.contextmanager
def _small_limits(random: Random) -> Iterator[None]:
    """Set limits so small that schedules reach them, and names that depend on the seed."""

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=random.getrandbits(128), version=4)

    batches: Any = append_queue.AppendQueue.__init__.__kwdefaults__
    with contextlib.ExitStack() as patches:
        for patch in (
            mock.patch.dict(batches, entries_max=RUN_ENTRIES_MAX, size_bytes_max=4_096),
            mock.patch.object(v2_connection, "WRITE_BUFFER_BYTES_MAX", 4_000),
            mock.patch.object(v2_connection, "UNSENT_BYTES_MAX", UNSENT_BYTES_MAX),
            mock.patch.object(v2_link, "LATE_REQUESTS_MAX", 20),
            mock.patch.object(uuid, "uuid4", new_uuid),
            mock.patch.object(leader, "LeaderSettings", partial(LeaderSettings, **LEADER)),
            mock.patch.object(known_ends, "ENDS_MAX", random.choice((2, 10_000, 10_000))),
            mock.patch.object(threading.Condition, "wait", wait_in_virtual_time),
            mock.patch.object(blocking_writer, "SharedCondition", PreemptedCondition),
            mock.patch.object(blocking_client, "loop_thread", loop_thread),
            mock.patch.object(batch_queue, "SimpleQueue", SimQueue),
            mock.patch.object(batch_queue, "AHEAD_MAX", 3),
            mock.patch.object(batch_queue, "AHEAD_SIZE_BYTES_MAX", 2_000),
            mock.patch.object(range_writer, "PENDING_SIZE_BYTES_MAX", streams.PENDING_SMALL),
        ):
            patches.enter_context(patch)
        yield


def handle_schedule(seed: int) -> HandleWorld:
    """Run one random schedule to its end, or raise `Violation`."""
    with _small_limits(Random(seed)), asyncio.Runner(loop_factory=SimLoop) as runner:
        try:
            world = runner.run(_run(seed))
        except LedgerLogError as error:
            raise Violation(f"handles, seed {seed}: {error!r}") from error
        finally:
            if Threads.current is not None:
                Threads.current.give_up()
    gc.collect(0)
    world.raise_failure()
    return world
