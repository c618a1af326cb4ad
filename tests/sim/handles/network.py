"""A network in virtual time: connections in memory that are slow, stuck, cut, or never made."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.fixtures.autojump import AutojumpLoop
from tests.fixtures.kinds import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.handles.world import HandleWorld

STUCK_LOOK_MS = 20
VANISHED_MS = 10_000
"""The kernel ends a connection after this time without an acknowledgement."""

HANGS_SECONDS = 120.0
"""Time after which a connection attempt to a missing machine fails."""


class SimLoop(AutojumpLoop):
    """An event loop that makes all connections within `network`, for any address."""

    network: Network

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        assert port is not None
        return await self.network.connect(protocol_factory, host)


class _Socket:
    def setsockopt(self, *_: Any) -> None:
        return


class End(asyncio.Transport):
    """One end of a connection. Its bytes arrive at the other end in order, in parts.

    Attributes:
        is_lost: Whether its protocol was notified of the loss, or will be in a moment.
    """

    def __init__(self, network: Network, line: Line, protocol: Any) -> None:
        super().__init__()
        self.is_lost = False
        self.protocol = protocol
        self._network = network
        self._line = line
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._high = 1 << 16
        self._is_full = False
        self._is_moving = False
        self._stuck_since: float | None = None

    @property
    def _other(self) -> End:
        return self._line.server if self is self._line.client else self._line.client

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        assert high is not None
        self._high = high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Socket() if name == "socket" else default

    def is_closing(self) -> bool:
        return self.is_lost

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        if self.is_lost or not data:
            return
        self._kept.append(bytes(data))
        self._kept_bytes += len(data)
        if self._kept_bytes > self._high and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()
        self._move_soon()

    def abort(self) -> None:
        """Break the connection. The other end is notified a moment later."""
        if self is self._line.server:
            self._network.note_loss(self._line)
        self.lose(None)
        self._network.later(self._network.delay_ms(), lambda: self._other.lose(None))

    def close(self) -> None:
        self.abort()

    def lose(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._kept.clear()
        self._network.world.loop.call_soon(self.protocol.connection_lost, error)

    def _move_soon(self) -> None:
        if not self._is_moving:
            self._is_moving = True
            self._network.later(self._network.delay_ms(), self._move)

    def _move(self) -> None:
        self._is_moving = False
        if now(self.is_lost) or not self._kept:
            return
        if self._line.is_stuck:
            self._wait_for_room()
            return
        self._stuck_since = None
        data = self._kept.popleft()
        random = self._network.world.random
        if len(data) > 1 and random.random() < 0.2:
            place = random.randrange(1, len(data))
            self._kept.appendleft(data[place:])
            data = data[:place]
        self._kept_bytes -= len(data)
        self._other._receive(data)
        if self.is_lost:
            return
        if self._is_full and self._kept_bytes <= self._high // 4:
            self._is_full = False
            self.protocol.resume_writing()
        if self._kept:
            self._move_soon()

    def _wait_for_room(self) -> None:
        now = self._network.world.loop.time()
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        if (now - self._stuck_since) * 1e3 >= VANISHED_MS:
            self._network.note_loss(self._line)
            self.lose(TimeoutError("nothing was acknowledged"))
            return
        self._is_moving = True
        self._network.later(STUCK_LOOK_MS, self._move)

    def _receive(self, data: bytes) -> None:
        while data and not self.is_lost:
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)


class Line:
    """One connection from a process to a bookie.

    Attributes:
        kinds: The kinds of the requests on this connection.
    """

    def __init__(self, process: str, bookie: str, stuck: Callable[[], bool]) -> None:
        self.process = process
        self.bookie = bookie
        self.kinds: set[str] = set()
        self.client: End
        self.server: End
        self._stuck = stuck

    @property
    def is_stuck(self) -> bool:
        """Whether no data passes, in either direction."""
        return self._stuck()

    @property
    def is_open(self) -> bool:
        return not self.client.is_lost


class Network:
    """Connections by process and bookie.

    Attributes:
        losses: For each process and bookie, the time in seconds at which a connection was last lost
            or refused.
    """

    def __init__(self, world: HandleWorld) -> None:
        self.world = world
        self.lines: list[Line] = []
        self.losses: dict[tuple[str, str], float] = {}
        self._attempts: dict[tuple[str, str], deque[float]] = {}

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.world.loop.call_later(delay_ms / 1e3, call)

    def delay_ms(self) -> float:
        random = self.world.random
        return random.uniform(0.05, 3)

    def note_loss(self, line: Line) -> None:
        self.losses[line.process, line.bookie] = self.world.loop.time()

    def open_lines(self, process: str, bookie: str | None = None) -> list[Line]:
        return [
            line
            for line in self.lines
            if line.process == process and bookie in (None, line.bookie) and line.is_open
        ]

    async def connect(self, make: Any, host: str) -> Any:
        """Connect to `host`, which is `<place>%<process>`. `place` is the machine of a bookie."""
        world = self.world
        place, _, process = host.partition("%")
        self.lines = [line for line in self.lines if line.is_open]
        bookie = world.bookie_at(place)
        await asyncio.sleep(self.delay_ms() / 1e3)
        if place in world.gone_places or world.is_cut(process):
            self.losses[process, world.name_at(place)] = world.loop.time()
            await asyncio.sleep(HANGS_SECONDS)
            raise TimeoutError
        if bookie is None or not bookie.is_up:
            name = world.name_at(place)
            self.losses[process, name] = world.loop.time()
            self._note_refusal(process, name)
            raise ConnectionRefusedError
        protocol = make()
        line = Line(
            process,
            bookie.name,
            lambda: bookie.is_stuck or place in world.gone_places or world.is_cut(process),
        )
        served = bookie.connection(line)
        line.client = End(self, line, protocol)
        line.server = End(self, line, served)
        self.lines.append(line)
        world.counts["connections"] += 1
        protocol.connection_made(line.client)
        served.connection_made(line.server)
        there = len(self.open_lines(process, bookie.name))
        world.require(there <= 6, f"{process} has {there} connections to {bookie.name}")
        return line.client, protocol

    def _note_refusal(self, process: str, name: str) -> None:
        """Check the number of attempts: each of three links pauses after a refused connection."""
        now = self.world.loop.time()
        recent = self._attempts.setdefault((process, name), deque())
        while recent and now - recent[0] > 0.018:
            recent.popleft()
        recent.append(now)
        self.world.require(
            len(recent) <= 3, f"{process} tries {name} {len(recent)} times within 18 ms"
        )

    def cut_bookie(self, bookie: str) -> None:
        """Reset all connections of a bookie."""
        for line in [line for line in self.lines if line.bookie == bookie and line.is_open]:
            self.note_loss(line)
            line.server.lose(None)
            line.client.lose(ConnectionResetError())

    def reset_one(self, line: Line) -> None:
        """Break a connection. The data on it is lost."""
        self.note_loss(line)
        line.server.lose(None)
        line.client.lose(ConnectionResetError())
