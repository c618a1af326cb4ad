"""One schedule: requests, faults, a time without faults, more faults, and an end at any time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter
from functools import partial
from random import Random
from struct import pack
from typing import TYPE_CHECKING, Any
from unittest import mock

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.deadlines import Deadlines
from ledgerlog_spark.transport.port import AddRun, ReadBatch, ReadEntry, ReadSlices, WriteLac
from ledgerlog_spark.transport.v2 import connection as v2_connection
from ledgerlog_spark.transport.v2 import link as v2_link
from ledgerlog_spark.transport.v2 import transport as v2_transport
from ledgerlog_spark.transport.v2.transport import V2Lane, V2Transport
from ledgerlog_spark.wire import frames
from tests.sim.log.checks import Violation
from tests.sim.transport.bookie import (
    CONNECT_SECONDS,
    DOORS,
    HEALS_SECONDS,
    LOOKUPS,
    RECONNECT_MS_MAX,
    Bookie,
)
from tests.sim.transport.judge import (
    LATE_REQUESTS_MAX,
    LINKS_MAX,
    REQUESTS_MAX,
    SIZE_BASE,
    UNSENT_BYTES_MAX,
    Asked,
    Judge,
    Lane,
)
from tests.sim.transport.wire import HANGS_SECONDS, LATE_SECONDS, Line, WireLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgerlog_spark.model import BookieInfo

KEY = bytes(range(20))
FAULTY_SECONDS = 1.2
CALM_SECONDS = HEALS_SECONDS + 0.6
WRITE_BUFFER_BYTES_MAX = 2_000
TIMEOUTS_MS = (150, 150, 400, 400, 1_500)
CLOSE_SECONDS_MAX = 6.5
"""Maximum time of a close: each of two connections of a link may not end by itself."""

QUIET_SECONDS = HANGS_SECONDS + LATE_SECONDS
LANES = {"adds": V2Lane.ADDS, "reads": V2Lane.READS, "control": V2Lane.CONTROL}
ENTRIES = 5
"""Number of entries: so few that there are several requests for the same entry at a time."""


class TransportWorld:
    """Virtual time, bookies, connections, and one transport.

    Attributes:
        is_faulty: Whether faults may happen now.
        is_closed: Whether the transport is closed or being closed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = asyncio.get_running_loop()
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.tells_written = 0
        self.is_faulty = False
        self.is_closed = False
        self.is_busy = True
        self.lanes: dict[int, Lane] = {}
        self.judge = Judge(self)
        self.bookies = {name: Bookie(self, name) for name in ("b0", "b1", "b2", "b3")}
        self.transport = V2Transport(
            self.resolve,
            connect_timeout_ms=int(CONNECT_SECONDS * 1e3),
            reconnect_delay_ms_max=RECONNECT_MS_MAX,
        )
        self.serial = 0
        self._timed_out: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._failed: asyncio.Future[None] = self.loop.create_future()

    def violation(self, what: str) -> Violation:
        at_ms = self.loop.time() * 1e3
        return Violation(f"transport, seed {self.seed}, at {at_ms:.1f} ms: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            # Also keep the failure, so that code that catches errors cannot hide it.
            self._fail(self.violation(what))
            raise self.violation(what)

    def _fail(self, violation: Violation) -> None:
        if not self._failed.done():
            self._failed.set_exception(violation)

    def on_loop_error(self, _: Any, context: dict[str, Any]) -> None:
        said = context.get("exception")
        if isinstance(said, WireFormatError):
            self.judge.reports += 1
            if self.judge.reports <= self.judge.nonsense_sent:
                return
        if not isinstance(said, Violation):
            said = self.violation(f"{context['message']}: {said!r}")
        self._fail(said)

    async def rest(self, seconds: float) -> None:
        """Let time pass, and raise a violation that was found meanwhile."""
        await asyncio.wait([self._failed], timeout=seconds)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the first failure, including failures in freed tasks."""
        if self._failed.done():
            self._failed.result()

    def happens(self, chance: float) -> bool:
        return self.is_faulty and self.random.random() < chance

    def fault(self, what: str) -> None:
        self.counts[what] += 1

    def later(self, delay_ms: float, call: Callable[[], object]) -> None:
        self.loop.call_later(delay_ms / 1e3, call)

    def lines_of(self, bookie: str) -> list[Line]:
        lanes = [lane for lane in self.lanes.values() if lane.bookie.name == bookie]
        return [line for lane in lanes for line in lane.open_lines]

    def is_over(self, lane: Lane) -> bool:
        """Whether the link of a lane was closed without waiting requests."""
        return not lane.open and lane.link not in self.transport._links.values()

    # What the transport calls.

    def _connecting_lane(self) -> Lane:
        task = asyncio.current_task()
        for (name, lane), link in self.transport._links.items():
            if link._connecting is task:
                return self._lane(name, lane.name.lower(), link)
        raise self.violation("a link connects that was closed")

    def _lane(self, bookie: str, name: str, link: Any) -> Lane:
        lane = self.lanes.get(id(link))
        if lane is None:
            lane = self.lanes[id(link)] = Lane(self, self.bookies[bookie], name, link)
        return lane

    async def resolve(self, bookie_id: str) -> BookieInfo:
        lane = self._connecting_lane()
        self.require(lane.bookie.name == bookie_id, f"{bookie_id} is looked up for {lane.name}")
        lane.attempt()
        try:
            return await lane.bookie.resolve()
        except BaseException:
            lane.failed()
            raise

    async def connect(self, make: Any, host: str, port: int) -> Any:
        lane, bookie, random = self._connecting_lane(), self.bookies[host], self.random
        line: Line | None = None
        try:
            await bookie.let_in(port)
            protocol = make()
            line = Line(self, bookie, lane, protocol)
            line.refused_runs = not protocol.takes_runs
            line.refused_lacs = not bookie.says_lacs and not protocol.takes_lacs
            lane.lines.append(line)
            protocol.connection_made(line)
            if bookie.door == "resets":
                line.reset()
            await asyncio.sleep(random.choice((0, 0, 0.001)))
        except BaseException:
            lane.failed()
            if line is not None:
                line.abort()
            raise
        self.counts["connections"] += 1
        if line.was_told:
            lane.failed()
        return line, protocol

    # What users ask.

    def ask(
        self,
        what: str,
        bookie: str,
        request: Any,
        timeout_ms: int,
        keys: list[Any],
        again: Callable[[], None],
    ) -> None:
        """Make one request. Some are repeated in the callback of the previous one."""
        serial, random = self.serial, self.random
        lane_name = "adds" if what == "run" else "reads"
        if (
            getattr(request, "is_recovery", False)
            or getattr(request, "fence_key", None) is not None
        ):
            lane_name = "control"
        made: list[Asked] = []

        def on_reply(code: Code, *result: Any) -> None:
            self.require(bool(made), f"{what} {serial} was answered before it was sent")
            self.judge.replied(made[0], code, result[0] if result else None)
            if self.is_closed or not self.is_busy:
                return
            late = self._timed_out.setdefault((bookie, lane_name), [])
            if code is Code.TIMEOUT:
                late.append(again)
            if code in (Code.UNAVAILABLE, Code.BUSY) and random.random() < 0.8:
                return
            if random.random() < 0.2:
                again()
            elif late and random.random() < 0.4:
                late.pop()()

        name = {"run": "add", "read": "read", "batch": "read_batch", "slices": "read_slices"}[what]
        links = self.transport._links
        before, has_idle = len(links), False
        if before >= LINKS_MAX:
            has_idle = any(map(self._is_idle, list(self.lanes.values())))
        known = set(links)
        getattr(self.transport, name)(bookie, request, timeout_ms, on_reply)
        key = bookie, LANES[lane_name]
        link = links[key]
        if key not in known and has_idle:
            self.require(len(links) <= before, f"{len(links)} links are kept")
        lane = self._lane(bookie, lane_name, link)
        asked = Asked(serial, what, lane, request, keys, timeout_ms)
        made.append(asked)
        self.judge.begun(asked)
        self.judge.check_open(lane)
        asked.is_new = False

    def _is_idle(self, lane: Lane) -> bool:
        is_used = bool(lane.open) or lane.link._connecting is not None
        return not is_used and lane.link in self.transport._links.values()

    def add(self, bookie: str, *, size: int | None = None, is_recovery: bool | None = None) -> None:
        random = self.random
        ledger_id, count = random.randint(1, 2), random.choice((1, 1, 2, 4))
        first, step = random.randrange(ENTRIES), random.choice((1, 1, 2))
        ids: Any = range(first, first + step * count, step)
        if random.random() < 0.3:
            ids = tuple(sorted(random.sample(range(ENTRIES * 2), count)))
        if size is None:
            size = random.choice((0, 0, 30, 300, 1_500))
        if is_recovery is None:
            is_recovery = random.random() < 0.25
        timeout_ms = random.choice(TIMEOUTS_MS)

        def again() -> None:
            self.serial += 1
            entries = [
                (pack(">qqqq", ledger_id, entry_id, self.serial, size), bytes(size))
                for entry_id in ids
            ]
            run = AddRun(ledger_id, ids, entries, KEY, is_recovery)
            keys = [("add", ledger_id, entry_id) for entry_id in ids]
            self.ask("run", bookie, run, timeout_ms, keys, again)

        again()

    def read(self, bookie: str) -> None:
        random = self.random
        ledger_id, entry_id = random.randint(1, 2), random.randrange(-1, ENTRIES)
        fence_key = KEY if random.random() < 0.3 else None
        request = ReadEntry(ledger_id, entry_id, fence_key, is_recovery=random.random() < 0.2)
        timeout_ms = random.choice(TIMEOUTS_MS)

        def again() -> None:
            self.serial += 1
            keys = [("read", ledger_id, entry_id)]
            self.ask("read", bookie, request, timeout_ms, keys, again)

        again()

    def read_batch(self, bookie: str) -> None:
        random = self.random
        is_recovery, timeout_ms = random.random() < 0.3, random.choice(TIMEOUTS_MS)
        count = random.randint(1, 6)

        def again() -> None:
            self.serial += 1
            request = ReadBatch(1, 0, count, SIZE_BASE + self.serial, is_recovery)
            keys = [("batch", self.serial)]
            self.ask("batch", bookie, request, timeout_ms, keys, again)

        again()

    def read_slices(self, bookie: str) -> None:
        random = self.random
        timeout_ms, step = random.choice(TIMEOUTS_MS), random.randint(1, 3)
        entries = tuple(
            (entry_id, tuple((9 * place, random.randint(1, 9)) for place in range(step)))
            for entry_id in range(0, random.randint(1, 6) * step, step)
        )

        def again() -> None:
            self.serial += 1
            request = ReadSlices(1, entries, SIZE_BASE + self.serial)
            self.ask("slices", bookie, request, timeout_ms, [("slices", self.serial)], again)

        again()

    def tell(self, bookie: str) -> None:
        """Announce a LAC, and check that the socket got it after the adds before it."""
        if self.random.random() < 0.5:
            self.add(bookie, is_recovery=False)
        self.serial += 1
        before = self.tells_written
        was_told = self.transport.announce_lac(bookie, WriteLac(1, self.serial, KEY))
        self.require(
            self.tells_written == before + was_told or any(
                line.is_over and not line.was_told
                for lane in self.lanes.values() for line in lane.lines
            ),
            f"LAC {self.serial} was told: {was_told}",
        )  # fmt: skip
        if was_told:
            self.counts["told"] += 1

    async def use(self) -> None:
        random = self.random
        calls = (
            self.add, self.add, self.read, self.read, self.read_batch, self.read_slices,
        )  # fmt: skip
        while self.is_busy:
            await asyncio.sleep(random.choice((0.001, 0.01, 0.04, 0.08)))
            bookie = random.choice(list(self.bookies))
            what = random.random()
            if what < 0.08:
                self.tell(bookie)
            elif what < 0.095:
                call = random.choice(calls)
                for _ in range(random.choice((10, 30, 60))):
                    call(bookie)
            else:
                call = random.choice(calls)
                for _ in range(random.randint(1, 4)):
                    call(bookie)

    async def look(self) -> None:
        """Check everything, repeatedly."""
        while True:
            await asyncio.sleep(0.05)
            for lane in list(self.lanes.values()):
                self.judge.check_open(lane)
                self.judge.check_lines(lane)
                if self.is_over(lane) and not lane.open_lines:
                    del self.lanes[id(lane.link)]

    # Faults.

    async def break_things(self) -> None:
        random = self.random
        while self.is_faulty:
            await asyncio.sleep(random.uniform(0.005, 0.12))
            bookie = random.choice(list(self.bookies.values()))
            lines = [line for name in self.bookies for line in self.lines_of(name)]
            what = random.random()
            if what < 0.35 and lines:
                self._hold(random.choice(lines))
            elif what < 0.6 and lines:
                self._cut(random.choice(lines))
            elif what < 0.68:
                self.fault("slow lanes")
                name = random.choice(("adds", "reads", "control"))
                bookie.slow_lanes.add(name)
                self.loop.call_later(
                    random.uniform(0.2, 1), partial(bookie.slow_lanes.discard, name)
                )
            elif what < 0.76:
                self.fault("restarts")
                bookie.disturb(self.loop.time())
                bookie.restart()
            elif what < 0.8:
                self.fault("downgrades")
                bookie.disturb(self.loop.time())
                bookie.downgrade()
            elif what < 0.84:
                self._flap(bookie)
            elif what < 0.92:
                self._shut(bookie, "door", random.choice(DOORS))
            else:
                self._shut(bookie, "lookup", random.choice(LOOKUPS))

    def _hold(self, line: Line) -> None:
        self.fault("connections held")
        random = self.random
        is_deaf, is_mute = random.choice(((True, False), (False, True), (True, True)))
        seconds = random.choice((0.05, 0.2, 0.5, 1.2))
        line.hold(is_deaf=is_deaf, is_mute=is_mute)
        line.lane.disturb(self.loop.time() + seconds)
        self.loop.call_later(seconds, partial(line.hold, is_deaf=False, is_mute=False))
        if is_deaf and random.random() < 0.4:
            for place in range(12):
                self.later(5 * place, partial(self._press, line))

    def _press(self, line: Line) -> None:
        """Send a large run on a connection that takes no bytes."""
        if self.is_busy and not self.is_closed and line.lane.name != "reads":
            self.add(line.bookie.name, size=1_500, is_recovery=line.lane.name == "control")

    def _cut(self, line: Line) -> None:
        self.fault("connections cut")
        random = self.random
        place = random.randint(0, 120)
        if random.random() < 0.3:
            line.reset()
        elif random.random() < 0.5:
            line.cut_out = line.sent_bytes + place
        else:
            line.cut_in = line.received_bytes + place
        line.lane.disturb(self.loop.time() + HANGS_SECONDS)

    def _shut(self, bookie: Bookie, what: str, how: str) -> None:
        if bookie.door != "open" or bookie.lookup != "found":
            return
        self.fault(f"{what} {how}")
        setattr(bookie, what, how)
        seconds = self.random.choice((0.05, 0.3, 0.8))
        bookie.disturb(self.loop.time() + seconds)
        if self.random.random() < 0.6:
            for line in self.lines_of(bookie.name):
                line.reset()

        def open_again() -> None:
            bookie.door, bookie.lookup = "open", "found"

        self.loop.call_later(seconds, open_again)

    def _flap(self, bookie: Bookie) -> None:
        """Let a bookie be away for a while, there for a moment, and away again for a moment."""
        if bookie.door != "open" or bookie.lookup != "found":
            return
        self.fault("flaps")
        bookie.disturb(self.loop.time() + 0.6)

        def turn(door: str) -> None:
            if self.is_faulty:
                bookie.door = door
                for line in self.lines_of(bookie.name) if door != "open" else ():
                    line.reset()

        for at_ms, door in ((0, "refuses"), (300, "open"), (550, "refuses"), (600, "open")):
            self.later(at_ms, partial(turn, door))
        for at_ms in (20, 60, 120, 480, 570, 640, 700):
            self.later(at_ms, partial(self._try, bookie.name))

    def _try(self, bookie: str) -> None:
        """Make a request in each lane."""
        if self.is_busy and not self.is_closed:
            self.add(bookie, is_recovery=False)
            self.add(bookie, is_recovery=True)
            self.read_batch(bookie)
            self.read_slices(bookie)

    def make_peace(self) -> None:
        """End all faults, including those that are planned for later."""
        now = self.loop.time()
        self.is_faulty = False
        for bookie in self.bookies.values():
            bookie.door, bookie.lookup = "open", "found"
            bookie.slow_lanes.clear()
            bookie.calm_at = min(bookie.calm_at, now + HEALS_SECONDS)
        for lane in self.lanes.values():
            for line in lane.open_lines:
                if line.is_silent or line.cut_in is not None or line.cut_out is not None:
                    line.reset()
                else:
                    line.hold(is_deaf=False, is_mute=False)
            lane.calm_at = min(lane.calm_at, now + HEALS_SECONDS)


async def _run(seed: int) -> TransportWorld:
    world = TransportWorld(seed)
    loop = world.loop
    assert isinstance(loop, WireLoop)
    loop.world = world
    try:
        await _play(world, loop)
    finally:
        world.is_busy = False  # requests that fail at the end are not repeated
    return world


async def _play(world: TransportWorld, loop: WireLoop) -> None:
    random = world.random
    loop.set_exception_handler(world.on_loop_error)
    users = [asyncio.ensure_future(world.use()) for _ in range(random.randint(1, 3))]
    looks = asyncio.ensure_future(world.look())
    ends_in_peace = random.random() < 0.5
    for era in range(random.randint(2, 5)):
        world.is_faulty = bool(era % 2)
        if world.is_faulty:
            users.append(asyncio.ensure_future(world.break_things()))
        await world.rest(FAULTY_SECONDS if world.is_faulty else CALM_SECONDS)
        if world.is_faulty and (ends_in_peace or random.random() < 0.7):
            world.make_peace()
    await _close(world)
    await asyncio.gather(*users)
    looks.cancel()
    await world.rest(QUIET_SECONDS)
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    world.require(not timers, f"timers are left: {timers[:3]}")
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    world.require(not left, f"tasks are left: {left}")


async def _close(world: TransportWorld) -> None:
    begun = world.loop.time()
    world.is_closed = True
    closing = asyncio.ensure_future(world.transport.aclose())
    await asyncio.sleep(0)
    for name in world.bookies:  # the links are about to be closed
        for call in (world.add, world.read, world.read_batch, world.read_slices):
            call(name)
    await closing
    took = world.loop.time() - begun
    world.require(took < CLOSE_SECONDS_MAX, f"closing took {took:.1f} s")
    world.is_busy = world.is_faulty = False
    for name in world.bookies:
        for call in (world.add, world.read, world.read_batch, world.read_slices):
            call(name)
    world.require(not world.transport.announce_lac("b0", WriteLac(1, 0, KEY)), "told when closed")
    await world.rest(0.2)
    for lane in world.lanes.values():
        world.require(not lane.open, f"{list(lane.open)} were never answered")
        world.require(not lane.open_lines, f"connections to {lane.bookie.name} stay open")


@contextlib.contextmanager
def _small_limits() -> Iterator[None]:
    """Set limits so small that schedules reach them."""
    deadlines = partial(Deadlines, requests_max=REQUESTS_MAX)
    with contextlib.ExitStack() as patches:
        for patch in (
            mock.patch.object(v2_connection, "WRITE_BUFFER_BYTES_MAX", WRITE_BUFFER_BYTES_MAX),
            mock.patch.object(v2_connection, "UNSENT_BYTES_MAX", UNSENT_BYTES_MAX),
            mock.patch.object(v2_link, "LATE_REQUESTS_MAX", LATE_REQUESTS_MAX),
            mock.patch.object(v2_link, "Deadlines", deadlines),
            mock.patch.object(frames, "_CHUNK_SIZE_BYTES_MIN", 1 << 12),
            mock.patch.object(v2_transport, "LINKS_MAX", LINKS_MAX),
        ):
            patches.enter_context(patch)
        yield


def transport_schedule(seed: int) -> TransportWorld:
    """Run one random schedule to its end, or raise `Violation`."""
    with _small_limits(), asyncio.Runner(loop_factory=WireLoop) as runner:
        world = runner.run(_run(seed))
    gc.collect(0)
    world.raise_failure()
    return world
