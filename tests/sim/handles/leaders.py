"""Leaders of one log of records, their rivals, and readers that follow the log."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LeaderDeposedError,
    LedgerLogError,
    LocalProtocolError,
    LogNotFoundError,
)
from ledgerlog_spark.log.records import Positions
from tests.sim.handles.actors import ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.records import Record
    from tests.sim.handles.process import Process
    from tests.sim.handles.world import HandleWorld

NAME = "orders"
ROLL_SECONDS_MAX = 10
"""A roll takes at most this time: there may be a pause before each of its three steps, if an
attempt failed just before the faults ended."""


class LogStory:
    """The known facts about the log.

    Attributes:
        known: Values by offset that were acknowledged, or seen by a reader.
        definite: Values whose append failed with a definite error.
        reigns: All leaders that ever began to open the log.
    """

    def __init__(self, world: HandleWorld) -> None:
        random = world.random
        self.world = world
        self.known: dict[int, bytes] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.places: dict[int, tuple[int, int]] = {}
        self.definite: set[bytes] = set()
        self.news: list[EndNews] = []
        self.reigns: list[Reign] = []
        self.is_there = False
        self.properties = {
            "rollBytes": str(random.choice((1_500, 6_000, 1 << 30))),
            "rollMs": str(random.choice((900, 60_000))),
            "onBookieFailure": random.choice(("change_ensemble", "roll_ledger")),
        }

    def see(self, offset: int, value: bytes) -> None:
        """Check that all readers and leaders see the same value at an offset."""
        known = self.known.setdefault(offset, value)
        self.world.require(known == value, f"{known!r} and {value!r} are at offset {offset}")

    def check_whole(self, records: Sequence[Record], end_offset: int) -> None:
        """Check that offsets have no gap, no acknowledged value is missing, and none is double."""
        offsets = [record.offset for record in records]
        self.world.require(offsets == list(range(end_offset)), f"{len(offsets)} of {end_offset}")
        for record in records:
            self.see(record.offset, record.value)
        values = [record.value for record in records]
        self.world.require(len(set(values)) == len(values), "a record is in the log twice")
        lost = [offset for offset in self.acknowledged if offset >= end_offset]
        self.world.require(not lost, f"offsets {lost} were acknowledged, the log ends before")
        there = self.definite.intersection(values)
        self.world.require(not there, f"{there} failed for certain, and are in the log")
        times = [record.append_time_ms for record in records]
        self.world.require(times == sorted(times), "append times fall")


class Reign:
    """One leader, from the call that opens it."""

    def __init__(self, story: LogStory, process: Process) -> None:
        self.story = story
        self.world = story.world
        self.process = process
        self.number = len(story.reigns)
        self.leader: Leader | None = None
        self.pending: set[asyncio.Future[Any]] = set()
        self.began = self.world.loop.time()
        self.settled_at = math.inf
        self._next_offset = 0
        self._made = 0
        story.reigns.append(self)

    @property
    def is_contested(self) -> bool:
        """Whether another process wanted to lead the log later, or at the same time."""
        reigns = self.story.reigns
        beside = any(each.settled_at >= self.began for each in reigns[: self.number])
        return beside or len(reigns) > self.number + 1

    def judge(self, error: BaseException) -> None:
        if isinstance(error, LeaderDeposedError | ConcurrentCommitError) and self.is_contested:
            self.world.counts["leaders deposed"] += 1
            return
        if self.process.is_over and isinstance(error, LedgerLogError):
            return
        self.world.judge(self.process, error, None)

    async def open(self) -> bool:
        world = self.world
        # Another leader may meanwhile acknowledge records after these: it began as early, and
        # deposed this leader before this leader got the answer that it leads.
        highest = max(self.story.acknowledged, default=-1)
        try:
            call = self.process.client.open_log(
                NAME, lead=True, properties=None if self.story.is_there else self.story.properties
            )
            self.leader = await ended(self.process, "lead", call)
        except LedgerLogError as error:
            self.judge(error)
            return False
        finally:
            self.settled_at = self.world.loop.time()
        self.story.is_there = True
        self._next_offset = self.leader.end_offset
        world.require(
            self._next_offset > highest,
            f"a leader begins at {self._next_offset}, {highest} was acknowledged",
        )
        return True

    def _value(self) -> bytes:
        self._made += 1
        size = self.world.random.choice((0, 3, 40, 40, 400))
        return b"%d:%d:" % (self.number, self._made) + self.world.random.randbytes(size)

    def append(self, count: int) -> list[asyncio.Future[Any]]:
        assert self.leader is not None
        made = []
        for _ in range(count):
            value = self._value()
            made.append(self.leader.append_async(value))
            self._watch(made[-1], [value])
        return made

    def append_many(self, count: int) -> list[asyncio.Future[Any]]:
        assert self.leader is not None
        values = [self._value() for _ in range(count)]
        future = self.leader.append_many_async(values)
        self._watch(future, values)
        return [future]

    def _watch(self, future: asyncio.Future[Any], values: list[bytes]) -> None:
        self.pending.add(future)
        begun, is_calm = self.world.loop.time(), self.world.is_calm

        def done(future: asyncio.Future[Any]) -> None:
            self.pending.discard(future)
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                self._acknowledged(future.result(), values)
                took_ms = (self.world.loop.time() - begun) * 1e3
                is_calm_still = is_calm and self.world.is_calm
                self.world.require(
                    took_ms < 3_000 or not is_calm_still, f"a record took {took_ms:.0f} ms"
                )
                return
            if isinstance(error, LedgerLogError) and error.definite:
                self.story.definite.update(values)
            if isinstance(error, LocalProtocolError) and "wait to be sent" in str(error):
                return
            self.judge(error)

        future.add_done_callback(lambda future: self.world.guarded(lambda: done(future)))

    def _acknowledged(self, result: Any, values: list[bytes]) -> None:
        places = list(result) if isinstance(result, Positions) else [result]
        offsets = [place.offset for place in places]
        wanted = list(range(self._next_offset, self._next_offset + len(values)))
        self.world.require(offsets == wanted, f"{wanted} were acknowledged as {offsets}")
        self._next_offset += len(values)
        for place, value in zip(places, values, strict=True):
            self.story.see(place.offset, value)
            self.story.acknowledged[place.offset] = value
            self.story.places[place.offset] = (place.ledger_id, place.entry_id)
        self.world.counts["records acknowledged"] += len(values)


async def lead(process: Process, story: LogStory, after_ms: int) -> None:
    """Lead the log for a while, then close, leave without a close, or be replaced."""
    await asyncio.sleep(after_ms / 1e3)
    random = process.world.random
    for _ in range(4):
        reign = Reign(story, process)
        if await reign.open():
            break
        await asyncio.sleep(random.uniform(0.1, 1))
    else:
        return
    leader = reign.leader
    assert leader is not None
    for _ in range(random.randint(3, 20)):
        what = random.random()
        if what < 0.45:
            reign.append(random.randint(1, 30))
        elif what < 0.7:
            reign.append_many(random.randint(1, 60))
        elif what < 0.8:
            await ended(process, "drain", leader.drain())
        elif what < 0.9:
            await ended(process, "flush", leader.flush())
        else:
            rolling = asyncio.ensure_future(leader.roll())
            if random.random() < 0.5:
                reign.append(random.randint(1, 5))
            with contextlib.suppress(LedgerLogError):
                await ended(process, "roll", rolling, calm_seconds_max=ROLL_SECONDS_MAX)
        if random.random() < 0.6:
            await asyncio.sleep(random.choice((0.001, 0.05, 0.3, 1.5)))
        if not leader.is_leading:
            break
    if random.random() < 0.4:
        await end(reign)


async def check_age(reign: Reign) -> None:
    """Check that an idle log rolls by age, repeatedly."""
    leader, roll_ms = reign.leader, int(reign.story.properties["rollMs"])
    assert leader is not None
    if roll_ms > 1_000:
        return
    for is_first in (True, False):
        if is_first:  # this timer belongs to the previous ledger
            reign.append(1)
            with contextlib.suppress(LedgerLogError):
                await ended(reign.process, "roll", leader.roll(), calm_seconds_max=ROLL_SECONDS_MAX)
        reign.append(1)
        await ended(reign.process, "flush of a leader", leader.flush())
        left = leader._ledger_id
        await asyncio.sleep(2.5 * roll_ms / 1e3)
        has_rolled = leader._ledger_id != left or not leader.is_leading or reign.is_contested
        reign.world.require(has_rolled, f"ledger {left} is older than {roll_ms} ms")


async def end(reign: Reign) -> None:
    """Close a leader, and check that all its appends are in the log when the close returns."""
    assert reign.leader is not None
    before = list(reign.pending)
    was_leading = reign.leader.is_leading
    try:
        end_offset = await ended(reign.process, "close of a leader", reign.leader.close())
    except LedgerLogError as error:
        reign.judge(error)
        return
    if was_leading:
        failed = [each for each in before if not each.done() or each.exception() is not None]
        reign.world.require(not failed, f"a close left {len(failed)} appends behind")
    highest = max(reign.story.acknowledged, default=-1)
    reign.world.require(
        reign.is_contested or end_offset > highest,
        f"closed at {end_offset}, {highest} is acknowledged",
    )
    reign.world.counts["leaders closed"] += 1


async def tail(process: Process, story: LogStory) -> None:
    """Follow the log from its start or its end, only with watches."""
    world, random = process.world, process.world.random
    process.tails += 1
    start = random.choice((0, 0, None))
    position: int | None = start
    while not process.is_over and world.is_busy:
        was_there = story.is_there
        try:
            log = await ended(process, "open_log", process.client.open_log(NAME))
            async with asyncio.timeout(random.choice((1, 5, 15))):
                async with contextlib.aclosing(log.tail(position)) as records:
                    async for record in records:
                        world.require(
                            position in (None, record.offset), f"{record.offset} after {position}"
                        )
                        position = record.offset + 1
                        story.see(record.offset, record.value)
                        _check_place(world, story, record)
                        world.counts["records tailed"] += 1
        except TimeoutError:
            continue
        except LogNotFoundError:
            world.require(not was_there, "the log does not exist")
            await asyncio.sleep(0.5)
        except LedgerLogError as error:
            world.judge(process, error, None)
            await asyncio.sleep(0.2)


def _check_place(world: HandleWorld, story: LogStory, record: Record) -> None:
    place = record.ledger_id, record.entry_id
    known = story.places.get(record.offset, place)
    world.require(known == place, f"offset {record.offset} is at {place}, acknowledged at {known}")


class EndNews:
    """The notifications of one watch of the log's end.

    Attributes:
        told_at: Time of the last notification, in seconds.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.told_at = -1.0
        self.cancel: Any = None

    def on_change(self) -> None:
        self.told_at = self.process.world.loop.time()


async def watch_end(process: Process, story: LogStory) -> None:
    """Watch the end of the log. Some watches are cancelled after a while."""
    world, random = process.world, process.world.random
    for _ in range(30):
        if story.is_there:
            break
        await asyncio.sleep(0.3)
    try:
        log = await ended(process, "open a log", process.client.logs.open(NAME))
    except LedgerLogError as error:
        if not isinstance(error, LogNotFoundError):
            world.judge(process, error, None)
        return
    news = EndNews(process)
    news.cancel = log.watch_end(news.on_change)
    process.news.append(news)
    if random.random() < 0.3:
        await asyncio.sleep(random.uniform(0, 5))
        news.cancel()
        news.cancel()
    else:
        story.news.append(news)


def check_news(story: LogStory, since: float) -> None:
    """Check that every watch was notified after the time `since`."""
    for news in story.news:
        if not news.process.is_over:
            story.world.require(
                news.told_at >= since, f"{news.process.name} heard of no change at the log's end"
            )


async def check_end(last: Process, story: LogStory) -> None:
    """Open one more leader without faults, then check the whole log."""
    if not story.is_there:
        return
    reign = Reign(story, last)
    last.world.require(await reign.open(), "nobody can lead the log")
    made = reign.append_many(5) + reign.append(30) + reign.append_many(90)
    await check_age(reign)
    await end(reign)
    last.world.require(all(each.exception() is None for each in made), "the last appends failed")
    assert reign.leader is not None
    log = await last.client.open_log(NAME)
    records = [record async for record in log.read()]
    story.check_whole(records, reign.leader.end_offset)
    for record in records:
        _check_place(last.world, story, record)
