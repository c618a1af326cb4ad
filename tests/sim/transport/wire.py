"""Connections that split and join bytes anywhere, delay them, and cut them off."""

from __future__ import annotations

import asyncio
from collections import deque
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.wire.requests import Request, decode_request
from tests.fixtures.autojump import AutojumpLoop

if TYPE_CHECKING:
    from ledgerlog_spark.model import Code
    from tests.sim.transport.bookie import Bookie
    from tests.sim.transport.judge import Asked, Lane
    from tests.sim.transport.world import TransportWorld

HANGS_SECONDS = 120.0
LATE_SECONDS = 30.0
"""Maximum time that a closed socket takes to end."""

BYTEWISE_BYTES_MAX = 96
"""Longer data is not sent byte by byte, because that would take too long."""


class WireLoop(AutojumpLoop):
    """An event loop that makes all connections within `world`, for any address."""

    world: TransportWorld

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.world.connect(protocol_factory, host, port)


class Frame:
    """A request on a connection.

    Attributes:
        asked: The request of the user; None for reads, whose frames have no id, and for LACs.
        is_answered: Whether its answer reached the client.
    """

    __slots__ = ("asked", "at", "is_answered", "key", "line", "request")

    def __init__(self, line: Line, request: Request, key: Any, asked: Asked | None) -> None:
        self.line = line
        self.request = request
        self.key = key
        self.asked = asked
        self.at = line.world.loop.time()
        self.is_answered = False


class Answer:
    """The answer to a frame. Without a frame, it is no valid answer."""

    __slots__ = ("code", "frame", "is_used", "result")

    def __init__(self, frame: Frame | None, code: Code | None = None, result: Any = None) -> None:
        self.frame = frame
        self.code = code
        self.result = result
        self.is_used = False


class _Socket:
    def setsockopt(self, *_: Any) -> None:
        return


class Line(asyncio.Transport):
    """One connection: the client's end, and the bytes in flight in both directions.

    Attributes:
        is_over: Whether no more bytes pass.
        is_deaf: Whether the bookie reads nothing, so that sent bytes stay in flight.
        is_mute: Whether bytes of the bookie do not arrive.
        open_frames: Requests without an answer, by key.
        refused_runs: Whether the bookie answered that it does not support ADD_RUN.
        refused_at: Time of that answer. Earlier frames may still wait for the socket.
        refused_lacs: Whether the bookie answered that it does not support TELL_LAC.
        late: Requests whose answers the bookie sends after later answers, or never.
        told_after: The number of the last request before the last LAC.
        has_garbage: Whether bytes arrived that are no answer.
        has_nonsense: Whether such bytes were sent, so that the first of them may have arrived.
        is_silent: Whether the bookie sent a part of an answer, and nothing more.
    """

    def __init__(self, world: TransportWorld, bookie: Bookie, lane: Lane, protocol: Any) -> None:
        super().__init__()
        self.world = world
        self.bookie = bookie
        self.lane = lane
        self.protocol = protocol
        self.made_at = world.loop.time()
        self.life = bookie.life
        self.is_over = False
        self.was_told = False
        self.is_deaf = False
        self.is_mute = False
        self.is_bytewise = world.is_faulty and world.random.random() < 0.15
        self.open_frames: dict[Any, Frame] = {}
        self.late: list[Frame] = []
        self.last: Frame | None = None
        self.refused_runs = False
        self.refused_at = -9.0
        self.refused_lacs = False
        self.told_after = 0
        self.has_garbage = False
        self.has_nonsense = False
        self.is_silent = False
        self.cut_out: int | None = None
        self.cut_in: int | None = None
        self._unparsed = bytearray()
        self._out = bytearray()
        self._out_ends: deque[tuple[int, Frame]] = deque()
        self._written = self.sent_bytes = 0
        self._in = bytearray()
        self._in_ends: deque[tuple[int, Answer]] = deque()
        self._queued = self.received_bytes = 0
        self._high = 1 << 16
        self.is_full = False
        self._moving: set[str] = set()

    @property
    def is_held(self) -> bool:
        """Whether sent bytes may have to wait at the client's end."""
        return self.is_full or self.is_deaf

    # Our end, as the protocol uses it.

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        assert high is not None
        self._high = high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Socket() if name == "socket" else default

    def is_closing(self) -> bool:
        return self.is_over

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        if self.is_over or not data:
            return
        self._unparsed += data
        self._out += data
        while len(self._unparsed) >= 4:
            (size,) = unpack_from(">i", self._unparsed)
            if len(self._unparsed) < 4 + size:
                break
            body = memoryview(bytes(self._unparsed[4 : 4 + size]))
            del self._unparsed[: 4 + size]
            self._written += 4 + size
            self.last = self.world.judge.written(self, decode_request(body))
            self._out_ends.append((self._written, self.last))
        self.world.require(not self._unparsed, "half a frame was written")
        if len(self._out) > self._high and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()
        self._move("out")

    def abort(self) -> None:
        if self.is_over:
            return
        self.world.judge.aborted(self)
        self.end(None)

    def close(self) -> None:
        self.abort()

    # What happens to it.

    def reset(self) -> None:
        """Reset the connection. All bytes in flight are lost."""
        if not self.is_over:
            self.world.judge.lost(self)
            self.end(ConnectionResetError())

    def end_of_stream(self) -> None:
        """End the bytes of the bookie. The client then closes the connection."""
        if not self.is_over:
            self.world.judge.lost(self)
            self.world.require(not self.protocol.eof_received(), "half a connection stays")
            self.end(None)

    def end(self, error: Exception | None) -> None:
        if self.is_held:
            self.lane.held_at = self.world.loop.time()
        self.is_over = True
        self._out.clear()
        self._in.clear()
        loop = self.world.loop
        if self.world.is_closed and self.world.random.random() < 0.1:
            loop.call_later(LATE_SECONDS, self._tell, error)
        else:
            loop.call_soon(self._tell, error)

    def _tell(self, error: Exception | None) -> None:
        self.was_told = True
        self.world.judge.closing(self)
        self.protocol.connection_lost(error)

    def hold(self, *, is_deaf: bool, is_mute: bool) -> None:
        self.is_deaf, self.is_mute = is_deaf, is_mute
        if not is_deaf:
            self._move("out")
        if not is_mute:
            self._move("in")

    def send_back(self, data: bytes, answer: Answer | None) -> None:
        """Write bytes at the bookie's end. Without `answer`, they are a part, without the rest."""
        if self.is_over or self.is_silent:
            return
        self.is_silent = answer is None
        if answer is not None and answer.frame is None:
            self.has_nonsense = True
            self.world.judge.nonsense_sent += 1
        self._in += data
        self._queued += len(data)
        if answer is not None:
            self._in_ends.append((self._queued, answer))
        self._move("in")

    # Bytes on their way.

    def _move(self, way: str) -> None:
        if way not in self._moving:
            self._moving.add(way)
            is_quick = self.is_bytewise or self.world.random.random() < 0.3
            delay = self.world.random.uniform(0.02, 0.2 if is_quick else 3)
            self.world.later(delay, lambda: self._moved(way))

    def _moved(self, way: str) -> None:
        self._moving.discard(way)
        if self.is_over:
            return
        if way == "out":
            self._move_out()
        else:
            self._move_in()

    def _size(self, there: int) -> int:
        random = self.world.random
        if self.is_bytewise and there <= BYTEWISE_BYTES_MAX:
            return random.randint(1, min(3, there))
        return there if random.random() < 0.6 else random.randint(1, there)

    def _move_out(self) -> None:
        if self.is_deaf or not self._out:
            return
        size = self._size(len(self._out))
        if self.cut_out is not None:
            size = min(size, max(0, self.cut_out - self.sent_bytes))
        del self._out[:size]
        self.sent_bytes += size
        while self._out_ends and self._out_ends[0][0] <= self.sent_bytes:
            self.bookie.arrived(self._out_ends.popleft()[1])
            if self.is_over:
                return
        if self.cut_out is not None and self.sent_bytes >= self.cut_out:
            self.reset()
            return
        if self.is_full and len(self._out) <= self._high // 4:
            self.is_full = False
            self.protocol.resume_writing()
        if self._out:
            self._move("out")

    def _move_in(self) -> None:
        if self.is_mute or not self._in:
            return
        size = self._size(len(self._in))
        if self.cut_in is not None:
            size = min(size, max(0, self.cut_in - self.received_bytes))
        data = bytes(self._in[:size])
        del self._in[:size]
        self._deliver(data)
        if self.is_over:
            return
        if self.cut_in is not None and self.received_bytes >= self.cut_in:
            if self.world.random.random() < 0.5:
                self.reset()
            else:
                self.end_of_stream()
        elif self._in:
            self._move("in")

    def _deliver(self, data: bytes) -> None:
        while data and not self.is_over:
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.received_bytes += size
            completed = []
            while self._in_ends and self._in_ends[0][0] <= self.received_bytes:
                completed.append(self._in_ends.popleft()[1])
            judge = self.world.judge
            judge.coming(self, completed)
            try:
                self.protocol.buffer_updated(size)
            finally:
                judge.came(self, completed)
