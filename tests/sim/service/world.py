"""One schedule: the data plane of a bookie, its peers, and the checks."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from bookie_server.config import CONNECTION_RESERVE_BYTES, FRAMES_IN_SHARED_MIN, BookieSettings
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.service.v2 import connection as v2_connection
from bookie_server.service.v2 import shared as v2_shared
from bookie_server.service.v2.operations import V2Operations
from bookie_server.service.v2.server import V2Server
from tests.fixtures.autojump import AutojumpLoop
from tests.sim.log.checks import Violation
from tests.sim.service.peers import BadPeer, GoodPeer
from tests.sim.service.storage import LateStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.sim.service.pipe import Pipe

FRAME_BYTES_MAX = 65_536
END_SECONDS = 90
BAD_SECONDS = 40
"""Time for which peers without progress are watched."""
STUCK_SECONDS_MAX = 5.0
RELIEF_SECONDS = 2.0
DRAIN_MS = 8_000


class _InOrder(dict[Any, None]):
    """A set with a fixed order of iteration."""

    def add(self, member: Any) -> None:
        self[member] = None

    def discard(self, member: Any) -> None:
        self.pop(member, None)


class SheddingError(Exception):
    """An error of one check of a connection."""


class SheddingFails(V2Operations):
    """A connection for which one check of the sweeper may fail."""

    is_failing = False

    def shed(self) -> None:
        if self.is_failing:
            self.is_failing = False
            raise SheddingError
        super().shed()


class ServiceWorld:
    """Virtual time, one bookie, and all connected peers.

    Attributes:
        is_stopping: Whether the bookie is stopping.
        is_ending: Whether bad peers begin no new requests.
        answers: Number of answers to good peers.
        refused: Number of these answers with BUSY.
        refused_cuts: Malformed requests for slices that got an answer.
        storage_ms_max: Maximum time of an answer of the storage, except for adds while it is stuck.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.loop = asyncio.get_running_loop()
        self.storage_ms_max = random.choice((2, 30, 200))
        connections_max = random.choice((8, 12, 24))
        self.settings = BookieSettings(
            directories=(Path("unused"),),
            port=0,
            bookie_id="b",
            connections_max=connections_max,
            frame_size_bytes_max=FRAME_BYTES_MAX,
            in_flight_bytes_max=connections_max * CONNECTION_RESERVE_BYTES
            + random.choice((1, 1, 2, 8)) * FRAMES_IN_SHARED_MIN * FRAME_BYTES_MAX,
            stall_timeout_ms=8_000,
            first_request_timeout_ms=1_000,
        )
        self.storage = LateStorage(self)
        self.lanes = Lanes.of(self.settings)
        self.counters = ServiceCounters()
        shared = v2_shared.V2Shared(self.settings, self.storage, self.lanes, self.counters)
        self.server = V2Server(self.settings, shared)
        self.server._connections = self.server.sweeper._connections = _InOrder()  # type: ignore[assignment]
        self._sweeping = asyncio.create_task(self.server.sweeper.run())
        self.server._sweeping = self._sweeping
        self.pipes: list[Pipe] = []
        self.is_stopping = False
        self.is_ending = False
        self.answers = 0
        self.refused = 0
        self.refused_cuts = 0
        self._failure: Violation | None = None
        self._in_the_way: dict[tuple[str, Pipe], float] = {}

    def require(self, holds: bool, message: str) -> None:
        if not holds and self._failure is None:
            self._failure = Violation(f"service, seed {self.seed}: {message}")
        if not holds:
            assert self._failure is not None
            raise self._failure

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.loop.call_later(delay_ms / 1_000, call)

    def connection(self) -> V2Operations:
        """The bookie's end of a new connection."""
        connection = SheddingFails(self.server._shared, self.server.admit, self.server.left)
        connection.is_failing = self.random.random() < 0.1
        return connection

    def check_bytes_held(self) -> None:
        """Check that the bytes held for peers, counted from outside, are within the limit."""
        unsent = sum(pipe.get_write_buffer_size() for pipe in self.pipes if not pipe.is_lost)
        held, counted = self.storage.open_bytes + unsent, self.lanes.held_bytes
        self.require(held <= counted, f"{held} bytes are held, and {counted} are counted")
        allowed = self.settings.in_flight_bytes_max
        self.require(counted <= allowed, f"{counted} bytes are held, allowed are {allowed}")
        for lane in self.lanes.all:
            is_sum_right = 0 <= lane.shared_bytes <= lane.held_bytes
            self.require(is_sum_right, f"{lane.name} shares {lane.shared_bytes} of its bytes")
        self.check_lines()

    def check_lines(self) -> None:
        """Check that a share waits only if bytes are missing, or a share before it gets them."""
        for lane in self.lanes.all:
            for share in lane.waiting:
                is_in_vain = share.wanted_bytes <= lane.allowance_of(share)
                self.require(not is_in_vain, f"somebody in line waits for {lane.name} in vain")
                if lane._is_first(share):
                    break

    def check_relief(self) -> None:
        """Check that, while a share waits, holders without progress are closed soon."""
        now = self.loop.time()
        before, self._in_the_way = self._in_the_way, {}
        for number, lane in enumerate(self.lanes.held):
            for pipe in self.pipes if lane.waiting else ():
                share = pipe.protocol.shares.held[number]
                is_waiting = pipe.protocol.waits_since is not None
                if pipe.is_lost or is_waiting or share.held_bytes <= share.reserve_bytes:
                    continue
                if pipe.stuck_since is None:
                    continue
                since = max(before.get((lane.name, pipe), now), pipe.stuck_since)
                self._in_the_way[lane.name, pipe] = since
                said = f"others wait for {lane.name} behind one that takes nothing"
                self.require(now - since < RELIEF_SECONDS, f"{said} for {now - since:.1f} s")

    async def run(self) -> None:
        """Run the peers and stalls of the storage, until all peers end and no bytes are held."""
        random = self.random
        good = [GoodPeer(self, number) for number in range(random.choice((1, 3, 6, 14)))]
        kind = random.choice((None, None, "sink", "hoard", "cut"))
        bad_count = random.choice((0, 0, 2, 6)) if kind != "hoard" else 6
        bad = [BadPeer(self, number, kind) for number in range(bad_count)]
        tasks = [asyncio.create_task(peer.run()) for peer in good]
        tasks += [asyncio.create_task(peer.run()) for peer in bad]
        tasks.append(asyncio.create_task(self._disturb()))
        stops = random.random() < 0.3
        until = self.loop.time() + (random.uniform(0, 1.5) if stops else END_SECONDS)
        at_least = self.loop.time() + (BAD_SECONDS if bad and random.random() < 0.4 else 0)
        while self.loop.time() < until and (
            self.loop.time() < at_least or not all(peer.is_over for peer in good)
        ):
            self._raise_failures([*tasks, self._sweeping])
            self.check_relief()
            await asyncio.sleep(0.05)
        self.is_ending = True
        if not stops:
            late = [peer for peer in good if not peer.is_over]
            self.require(not late, f"{late} have not ended after {END_SECONDS} s")
        self.storage.release()
        await self._stop(good)
        self.is_stopping = True
        await asyncio.gather(*tasks)
        self._raise_failures(tasks)
        await asyncio.sleep(3)
        self._require_nothing_left()
        self._raise_failures(tasks)

    async def _disturb(self) -> None:
        while not self.is_ending:
            await asyncio.sleep(self.random.uniform(0.01, 2))
            if self.random.random() < 0.3 and not self.is_ending:
                self.storage.is_stuck = True
                await asyncio.sleep(self.random.uniform(0.1, STUCK_SECONDS_MAX))
                self.storage.release()

    def _raise_failures(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done():
                task.result()
        if self._failure is not None:
            raise self._failure

    async def _stop(self, good: list[GoodPeer]) -> None:
        """Stop the bookie. Accepted requests are answered, and others are dropped."""
        began = self.loop.time()
        self.is_stopping = True
        sinks = [pipe for pipe in self.pipes if not pipe.is_taking]
        is_drained = await self.server.stop(DRAIN_MS)
        self.require(is_drained or bool(sinks), f"a stop left {self.storage.requests} requests")
        took = self.loop.time() - began
        self.require(took <= DRAIN_MS / 1_000 + 0.1, f"a stop took {took:.1f} s")
        await asyncio.sleep(1)
        for peer in good:
            self.require(peer.pipe is None or peer.pipe.is_lost, f"{peer} is still connected")

    def _require_nothing_left(self) -> None:
        count = self.server.connections_count
        self.require(not count, f"{count} connections are left")
        self.require(not self.storage.requests, "storage has requests that nobody waits for")
        for lane in self.lanes.all:
            self.require(not lane.waiting, f"somebody waits for {lane.name}")
            left = lane.held_bytes, lane.shared_bytes
            self.require(left == (0, 0), f"{lane.name} counts {left} bytes, and nobody is there")
            self.require(not lane._hosts, f"{lane.name} knows hosts that are gone")


async def _run(seed: int) -> ServiceWorld:
    world = ServiceWorld(seed)
    clock = SimpleNamespace(monotonic=lambda: world.loop.time() + world.random.uniform(0, 0.004))
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(v2_connection, "monotonic", clock.monotonic))
        patches.enter_context(mock.patch.object(v2_shared, "time", clock))
        await world.run()
    return world


def service_schedule(seed: int) -> ServiceWorld:
    """Run one random schedule to its end, or raise `Violation`."""
    failures: list[dict[str, Any]] = []

    def note(context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SheddingError):
            failures.append(context)

    with asyncio.Runner(loop_factory=AutojumpLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: note(context))
        world = runner.run(_run(seed))
    if failures:
        error = failures[0].get("exception")
        if isinstance(error, Violation):
            raise error
        raise Violation(f"service, seed {seed}: {failures[0]}") from error
    return world


def run_schedules(seeds: Iterable[int]) -> str:
    """Run one schedule for each seed until the first `Violation`; return a line with counts."""
    schedules = answers = refused = malformed = swept = pauses = 0
    for seed in seeds:
        world = service_schedule(seed)
        schedules += 1
        answers += world.answers
        refused += world.refused
        malformed += world.refused_cuts
        swept += world.counters.connections_closed_by_us
        pauses += world.counters.pauses
    return (
        f"service: {schedules:,} schedules, {answers:,} answers, {refused:,} of them BUSY, "
        f"{malformed:,} malformed requests refused, {pauses:,} pauses, {swept:,} peers closed, "
        f"0 violations"
    )
