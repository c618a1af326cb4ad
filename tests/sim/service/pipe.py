"""A connection in memory: a peer, two kernels with small buffers, and the bookie's transport."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.wire.answers import decode_answer

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

KERNEL_BYTES = 20_000
"""Size of the buffer of each kernel, for bytes that its side has not taken."""
PIECE_BYTES = 16_384


class Pipe(asyncio.Transport):
    """The bookie's end of a connection. The peer uses `send`, `answers` and `leave`.

    Attributes:
        answers: Complete answers that reached the peer, oldest first.
        is_taking: Whether the peer takes the bytes that the bookie sends.
        is_lost: Whether the bookie was notified of the end of the connection.
        closed_by_bookie: Whether the bookie ended the connection.
        stuck_since: Time since which the kernels took no unsent bytes; None without unsent bytes.
    """

    def __init__(self, world: ServiceWorld, host: str) -> None:
        super().__init__()
        self.world = world
        self.host = host
        self.answers: list[Any] = []
        self.is_taking = True
        self.is_lost = False
        self.closed_by_bookie = False
        self.stuck_since: float | None = None
        self.delivered_bytes = 0
        self.sent_bytes = 0
        self._to_bookie = bytearray()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._on_its_way = bytearray()
        self._arrived = bytearray()
        self._is_reading = True
        self._is_closing = False
        self._is_delivering = False
        self._is_taking_soon = False
        world.pipes = [pipe for pipe in world.pipes if not pipe.is_lost]
        world.pipes.append(self)
        self.protocol: Any = world.connection()
        self.protocol.connection_made(self)

    # The bookie's side.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.host, 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.world.require(high == 0 and low is None, "what is unsent is not known")

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._deliver_soon()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        self.world.require(not self.is_lost, "an answer is written to a peer that is gone")
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._to_kernel()
        if self._unsent_bytes:
            self.protocol.pause_writing()
        self.world.check_bytes_held()

    def _to_kernel(self) -> None:
        while self._unsent and len(self._on_its_way) < KERNEL_BYTES:
            data = self._unsent.popleft()
            room = KERNEL_BYTES - len(self._on_its_way)
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self._unsent_bytes -= len(data)
            self._on_its_way += data
            self.stuck_since = None
        if self._unsent_bytes and self.stuck_since is None:
            self.stuck_since = self.world.loop.time()
        if self.is_taking:
            self._take_soon()

    def close(self) -> None:
        self._is_closing = self.closed_by_bookie = True
        if not self._unsent_bytes:
            self._lose()

    def abort(self) -> None:
        self.closed_by_bookie = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._lose()

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.world.loop.call_soon(self.protocol.connection_lost, None)

    # The peer's side.

    @property
    def unanswered_bytes(self) -> int:
        """Bytes that the bookie received and has not answered, as far as the peer can know."""
        return self._unsent_bytes

    def send(self, data: bytes) -> None:
        """Pass bytes for the bookie to the kernels."""
        if not self.is_lost:
            self.sent_bytes += len(data)
            self._to_bookie += data
            self._deliver_soon()

    @property
    def is_sent(self) -> bool:
        """Whether the bookie has taken all bytes."""
        return not self._to_bookie

    def leave(self) -> None:
        """End the process of the peer."""
        self._to_bookie.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._lose()

    def _deliver_soon(self) -> None:
        if not self._is_delivering and self._to_bookie:
            self._is_delivering = True
            self.world.later(self.world.random.uniform(0, 2), self._deliver)

    def _deliver(self) -> None:
        self._is_delivering = False
        size = self.world.random.choice((1, 40, 1_000, PIECE_BYTES, PIECE_BYTES))
        while size and self._to_bookie and self._is_reading and not self.is_closing():
            room = self.protocol.get_buffer(-1)
            taken = min(len(room), size, len(self._to_bookie))
            room[:taken] = self._to_bookie[:taken]
            del self._to_bookie[:taken]
            size -= taken
            self.delivered_bytes += taken
            self.protocol.buffer_updated(taken)
            self.world.check_bytes_held()
        if self._is_reading and not self.is_closing():
            self._deliver_soon()

    def take(self) -> None:
        """Let the peer take all bytes from now on."""
        self.is_taking = True
        self._take_soon()

    def _take_soon(self) -> None:
        if not self._is_taking_soon and self._on_its_way:
            self._is_taking_soon = True
            self.world.later(self.world.random.uniform(0, 2), self._take)

    def _take(self) -> None:
        self._is_taking_soon = False
        if not self.is_taking:
            return
        self._arrived += self._on_its_way[:PIECE_BYTES]
        del self._on_its_way[:PIECE_BYTES]
        while len(self._arrived) >= 4:
            size = int.from_bytes(self._arrived[:4], "big")
            if len(self._arrived) < 4 + size:
                break
            self.answers.append(decode_answer(bytes(self._arrived[4 : 4 + size])))
            del self._arrived[: 4 + size]
        was_full = self._unsent_bytes > 0
        self._to_kernel()
        if was_full and not self._unsent_bytes and not self.is_lost:
            self.protocol.resume_writing()
        if self._is_closing and not self._unsent_bytes:
            self._lose()
        self._take_soon()
