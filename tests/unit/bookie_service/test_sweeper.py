"""The connections that are closed without progress, and the time, on a clock of the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bookie_server.config import BookieSettings
from bookie_server.service.limits.lanes import Lanes, PeerShares
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.service.v2.peer_watch import FRAME_STALLS_MAX, MOVED_BYTES_MIN, PeerWatch
from bookie_server.service.v2.sweeper import GRACE_SECONDS, WAIT_SECONDS_MAX, ConnectionSweeper

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 1 << 20


class Memory:
    is_beyond_reserve = False


class Connection:
    """The part of a connection that the sweeper uses."""

    def __init__(self, world: World, host: str = "a") -> None:
        self._world = world
        self.shares = PeerShares(world.lanes, host)
        self.watch = PeerWatch(world.now)
        self.memory = Memory()
        self.peer = host
        self.received_bytes = 0
        self.frames_received = 0
        self.is_incomplete = False
        self.taken_bytes: int | None = None
        self.is_idle = False
        self.is_proven = True
        self.waits_since: float | None = None
        self.is_closed = False
        world.connections.append(self)

    def shed(self) -> None:
        """Do nothing, because this connection receives nothing."""

    def close(self, *, is_abrupt: bool) -> None:
        assert is_abrupt
        self.is_closed = True
        self._world.connections.remove(self)
        for share in self.shares.held:
            share.give_back(share.held_bytes)


class World:
    def __init__(self, directory: Path) -> None:
        settings = BookieSettings(
            directories=(directory,), stall_timeout_ms=60_000, first_request_timeout_ms=30_000
        )
        self.now = 0.0
        self.lanes = Lanes.of(settings)
        self.connections: list[Connection] = []
        self.counters = ServiceCounters()
        self.sweeper = ConnectionSweeper(
            self.connections,  # type: ignore[arg-type]
            self.lanes,
            settings,
            self.counters,
            lambda: self.now,
        )

    def after(self, seconds: float) -> None:
        """Sweep ten times while the time passes."""
        for _ in range(10):
            self.now += seconds / 10
            self.sweeper.sweep()


@pytest.fixture
async def world(tmp_path: Path) -> World:
    await asyncio.sleep(0)
    return World(tmp_path)


async def test_who_takes_none_of_its_answers_is_closed_after_the_stall_timeout(
    world: World,
) -> None:
    silent, moving = Connection(world), Connection(world)
    for _ in range(7):
        silent.taken_bytes = 5
        moving.taken_bytes = (moving.taken_bytes or 0) + MOVED_BYTES_MIN
        world.after(10)
    assert (silent.is_closed, moving.is_closed) == (True, False)
    assert world.counters.connections_closed_by_us == 1
    assert world.counters.connections_swept == 0


async def test_a_connection_that_cannot_be_looked_at_keeps_no_other_from_being_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange, silent = Connection(world), Connection(world)

    def shed() -> None:
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(strange, "shed", shed)
    silent.taken_bytes = 5
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(type(context["exception"]))
    )
    sweeping = asyncio.create_task(world.sweeper.run())
    async with asyncio.timeout(20):
        while not silent.is_closed:
            world.now += 10
            world.lanes.adds.on_pressure()
            await asyncio.sleep(0)
    assert not sweeping.done()
    assert not strange.is_closed
    assert set(reported) == {RuntimeError}
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)


async def test_a_frame_of_which_too_little_comes_is_closed_after_the_stall_timeout(
    world: World,
) -> None:
    drops, bytewise = Connection(world), Connection(world)
    for peer in (drops, bytewise):
        peer.is_incomplete = peer.is_idle = True
        peer.is_proven = False
    for _ in range(6):
        drops.received_bytes += MOVED_BYTES_MIN // 7
        bytewise.received_bytes += 1
        assert not drops.is_closed
        world.after(10)
    assert (drops.is_closed, bytewise.is_closed) == (True, True)


async def test_a_first_frame_that_comes_slowly_and_steadily_is_waited_for(world: World) -> None:
    slow = Connection(world)
    slow.is_incomplete, slow.is_idle, slow.is_proven = True, True, False
    for _ in range(11):
        slow.received_bytes += MOVED_BYTES_MIN
        world.after(50)
    assert not slow.is_closed
    slow.frames_received, slow.is_proven = 1, True
    world.after(50)
    assert not slow.is_closed, "it is another frame now"


async def test_a_frame_that_comes_steadily_ends_all_the_same(world: World) -> None:
    endless = Connection(world)
    endless.is_incomplete = True
    seconds = 0
    while not endless.is_closed and seconds < 2_000:
        endless.received_bytes += MOVED_BYTES_MIN
        world.after(50)
        seconds += 50
    assert FRAME_STALLS_MAX * 60 <= seconds <= FRAME_STALLS_MAX * 60 + 50


async def test_a_first_frame_that_waits_for_memory_is_not_silence(world: World) -> None:
    waiting = Connection(world)
    waiting.is_idle, waiting.is_proven = True, False
    waiting.waits_since = world.now
    world.after(40)
    assert not waiting.is_closed


async def test_who_asks_for_nothing_is_closed_and_who_asked_once_stays(world: World) -> None:
    silent, proven = Connection(world), Connection(world)
    for peer in (silent, proven):
        peer.is_idle = True
    silent.is_proven = False
    world.after(29)
    assert not silent.is_closed
    world.after(3_600)
    assert (silent.is_closed, proven.is_closed) == (True, False)


async def test_under_pressure_the_largest_holder_that_does_not_move_goes_first(
    world: World,
) -> None:
    lane = world.lanes.reads
    small, large, moving = (Connection(world) for _ in range(3))
    small.shares.reads.force(2 * MEBIBYTE)
    moving.shares.reads.force(lane.size_bytes_max // 2)
    large.shares.reads.force(lane.free_bytes)
    small.taken_bytes = large.taken_bytes = 0
    moving.taken_bytes = 0
    world.sweeper.sweep()
    world.after(10)
    assert not large.is_closed, "nobody waits"
    waiting = Connection(world, "b").shares.reads
    waiting.trust(4 * MEBIBYTE)
    granted: list[str] = []
    waiting.wait(4 * MEBIBYTE, lambda: granted.append("granted"))
    for _ in range(4):
        moving.taken_bytes += MOVED_BYTES_MIN
        world.after(GRACE_SECONDS / 2)
    assert (large.is_closed, small.is_closed, moving.is_closed) == (True, False, False)
    assert granted == ["granted"]
    assert world.counters.connections_swept == 1


async def test_a_grace_is_given_before_anybody_is_closed(world: World) -> None:
    hog = Connection(world)
    hog.shares.reads.force(world.lanes.reads.size_bytes_max)
    hog.taken_bytes = 0
    Connection(world, "b").shares.reads.wait(4 * MEBIBYTE, lambda: None)
    world.sweeper.sweep()
    world.after(GRACE_SECONDS * 0.9)
    assert not hog.is_closed
    world.after(GRACE_SECONDS)
    assert hog.is_closed


async def test_who_waits_itself_is_closed_only_for_holding_what_others_need(world: World) -> None:
    patient, stuck = Connection(world), Connection(world)
    stuck.memory.is_beyond_reserve = True
    for peer in (patient, stuck):
        peer.shares.adds.force(world.lanes.adds.size_bytes_max // 2)
        peer.waits_since = world.now
    Connection(world, "b").shares.adds.wait(4 * MEBIBYTE, lambda: None)
    world.after(WAIT_SECONDS_MAX * 0.9)
    assert not stuck.is_closed
    world.after(WAIT_SECONDS_MAX)
    assert (stuck.is_closed, patient.is_closed) == (True, False)


async def test_who_moved_since_the_last_look_is_not_closed_between_two_looks(world: World) -> None:
    """A read without room relieves the lane immediately, long after the last look."""
    lane = world.lanes.reads
    moving, idle, stalled = (Connection(world) for _ in range(3))
    stalled.shares.reads.force(2 * MEBIBYTE)
    idle.shares.reads.force(4 * MEBIBYTE)
    moving.shares.reads.force(lane.free_bytes)
    moving.taken_bytes = stalled.taken_bytes = 0
    world.sweeper.sweep()
    world.now += 3 * GRACE_SECONDS
    moving.taken_bytes += MOVED_BYTES_MIN
    world.sweeper.relieve(lane)
    assert (moving.is_closed, idle.is_closed, stalled.is_closed) == (False, False, True)
