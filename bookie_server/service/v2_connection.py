"""One connection of the v2 data plane: frames in, answers out, and how far to read.

The loop's thread does everything and nothing here awaits: a frame is cut out of receive memory
by reference, handled, and its answer is collected with the others of the same turn of the loop and
written in one call. `v2_operations.py` says what a frame does.

Back-pressure: a connection reads no further while its own bytes in flight, those of the whole
bookie, or the peer's refusal to take answers say so. Recovery and fencing pass the bookie-wide
soft bound and meet BUSY at the hard one (DESIGN 2 and 4.5).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from bookie_server.service.logging import get_logger
from bookie_server.service.v2_requests import is_add, is_control
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.frames import FrameSplitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie_server.core.requests import Buffer
    from bookie_server.service.v2_shared import V2Shared
    from ledgerlog_spark.model import Code

WRITE_BUFFER_BYTES_MAX: Final = 262_144
JOINED_BYTES_MAX: Final = 65_536

_log = get_logger("v2")


class V2Connection(asyncio.BufferedProtocol):
    """The bytes of one peer: frames in, answers out, and how far to read. Made by `V2Server`.

    What overrides `_handle` carries out a frame's request and gives its answer to `_answer`.
    """

    __slots__ = (
        "_admit",
        "_answers",
        "_backlog",
        "_frames",
        "_is_closing",
        "_is_flush_scheduled",
        "_is_paused",
        "_is_resume_scheduled",
        "_is_writing_paused",
        "_left",
        "_shared",
        "_transport",
        "_unsent_bytes",
        "frames_received",
        "in_flight_bytes",
        "peer",
    )

    def __init__(
        self,
        shared: V2Shared,
        admit: Callable[[V2Connection], bool],
        left: Callable[[V2Connection], None],
    ) -> None:
        """A connection that the event loop opens.

        Args:
            shared: With the other connections of the bookie.
            admit: Whether it may stay, asked when it opens.
            left: Told when it is gone; also of one that was not admitted.
        """
        self._shared = shared
        self._admit = admit
        self._left = left
        self._transport: asyncio.Transport | None = None
        self._frames = FrameSplitter(shared.frame_size_bytes_max, shared.receive_pool)
        self._backlog: deque[memoryview] = deque()
        self._answers: list[Buffer] = []
        self._is_closing = False
        self._is_flush_scheduled = False
        self._is_paused = False
        self._is_resume_scheduled = False
        self._is_writing_paused = False
        self._unsent_bytes = 0
        self.in_flight_bytes = 0
        self.frames_received = 0
        self.peer: object = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the server's connections, or be closed when there are too many."""
        # uvloop's transports have the methods of asyncio.Transport without being of its class.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        if not self._admit(self):
            self._transport = None
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Forget the peer; requests already accepted are carried out, their answers dropped."""
        self._transport = None
        self._backlog.clear()
        self._answers.clear()
        self._shared.forget(self)
        self._shared.in_flight.forget(self._schedule_resume)
        self._shared.in_flight.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
        self._left(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Memory to receive into."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the frames that have become complete."""
        try:
            bodies = self._frames.received(nbytes)
        except WireFormatError as error:
            self._close_on_bad_bytes(error)
            return
        if self._is_closing:
            return
        self.frames_received += len(bodies)
        is_alone = self._shared.is_alone(self)
        if self._backlog or self._is_paused:
            self._backlog.extend(bodies)
        elif is_alone and len(bodies) == 1:
            self._handle_lone(bodies)
        else:
            self._shared.cpu.busy()
            self._handle_all(bodies)

    def eof_received(self) -> bool:
        """Close: a peer that sends no more gets no more."""
        return False

    def pause_writing(self) -> None:
        """The peer does not take its answers: accept nothing until it does."""
        self._is_writing_paused = True
        if not self._is_paused:
            self._pause()

    def resume_writing(self) -> None:
        """The peer took its answers."""
        self._is_writing_paused = False
        self._count_sent()

    # Called by the server.

    @property
    def is_idle(self) -> bool:
        """Whether nothing accepted is unanswered and nothing answered is unsent."""
        return (
            self.in_flight_bytes == 0
            and not self._answers
            and (self._transport is None or self._transport.get_write_buffer_size() == 0)
        )

    @property
    def stall_mark(self) -> tuple[int, int, int] | None:
        """Changes while the peer makes progress; None while nothing is expected of it."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        held = 0 if self._is_paused else self._frames.held_bytes
        if not unsent and not held:
            return None
        return (unsent, held, self.frames_received)

    def stop_receiving(self) -> None:
        """Accept no further request; what was accepted is still answered.

        What arrives is read and dropped: closing a socket with unread bytes resets it, and a
        reset takes answers with it that the peer has not read yet.
        """
        self._is_closing = True
        self._backlog.clear()
        self._shared.in_flight.forget(self._schedule_resume)
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def close(self, *, is_abrupt: bool = False) -> None:
        """Close the connection; `is_abrupt` drops answers not yet sent."""
        self._is_closing = True
        if self._transport is None:
            return
        if is_abrupt:
            transport, self._transport = self._transport, None
            transport.abort()
        else:
            self._flush()
            self._transport.close()

    # Admission.

    def _may_handle(self, body: memoryview) -> bool:
        shared = self._shared
        held_bytes = self.in_flight_bytes + self._unsent_bytes
        if self._is_writing_paused or held_bytes >= shared.connection_bytes_max:
            return False
        return shared.in_flight.size_bytes < shared.in_flight.size_bytes_max or is_control(body)

    def _pause(self) -> None:
        self._is_paused = True
        self._shared.counters.pauses += 1
        if self._transport is not None:
            self._transport.pause_reading()
        in_flight = self._shared.in_flight
        if in_flight.size_bytes >= in_flight.size_bytes_max:
            in_flight.wait(self._schedule_resume)

    def _schedule_resume(self) -> None:
        if self._is_paused and not self._is_resume_scheduled and self._transport is not None:
            self._is_resume_scheduled = True
            self._shared.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._is_resume_scheduled = False
        if not self._is_paused or self._transport is None or self._is_closing:
            return
        self._shared.in_flight.forget(self._schedule_resume)
        self._is_paused = False
        backlog = self._backlog
        while backlog:
            if not self._may_handle(backlog[0]):
                self._pause()
                return
            self._handle(backlog.popleft())
        if self._is_writing_paused:
            self._pause()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _handle_all(self, bodies: list[memoryview]) -> None:
        for number, body in enumerate(bodies):
            if self._is_closing:
                return
            if not self._may_handle(body):
                self._backlog.extend(bodies[number:])
                self._pause()
                return
            self._handle(body)

    def _handle_lone(self, bodies: list[memoryview]) -> None:
        """Handle a frame that came alone; an answer that is ready goes out in the same turn."""
        self._is_flush_scheduled = True  # in this call, below
        cpu = self._shared.cpu
        try:
            (cpu.lone if is_add(bodies[0]) else cpu.busy)()
            self._handle_all(bodies)
        finally:
            self._flush()

    def _handle(self, body: memoryview) -> None:
        """Carry out a frame's request. Its bytes are taken in with `_take` until it is answered."""
        raise AssertionError(body)

    def _close_on_bad_bytes(self, error: WireFormatError) -> None:
        counters = self._shared.counters
        counters.bad_frames += 1
        counters.connections_closed_by_us += 1
        _log.warning("connection_closed", peer=self.peer, reason=error.message)
        self._backlog.clear()
        self.close()

    # Bytes in flight and answers.

    def _take(self, size_bytes: int) -> None:
        self.in_flight_bytes += size_bytes
        self._shared.in_flight.take(size_bytes)

    def _answer(self, code: Code, answer: Buffer, given_back_bytes: int) -> None:
        """Send an answer and count its request out."""
        self._shared.counters.answers[code] += 1
        self._append(answer)
        if given_back_bytes:
            self.in_flight_bytes -= given_back_bytes
            assert self.in_flight_bytes >= 0, "a request was answered twice"
            self._shared.in_flight.give_back(given_back_bytes)
        if self._is_paused and self.in_flight_bytes <= self._shared.connection_bytes_resume:
            self._schedule_resume()

    def _append(self, piece: Buffer) -> None:
        if self._transport is None:
            return
        size_bytes = len(piece)
        self._answers.append(piece)
        self._unsent_bytes += size_bytes
        self._shared.in_flight.take(size_bytes)
        if self._unsent_bytes > self._shared.unsent_bytes_max:
            self._drop_greedy_peer()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._shared.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        answers, self._answers = self._answers, []
        if self._transport is None or not answers:
            return
        if self._unsent_bytes <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(answers))
        else:
            self._transport.writelines(answers)
        # What a full transport has not taken yet stays counted until it says that it has.
        if not self._is_writing_paused:
            self._count_sent()

    def _count_sent(self) -> None:
        waiting_bytes = sum(map(len, self._answers))
        self._shared.in_flight.give_back(self._unsent_bytes - waiting_bytes)
        self._unsent_bytes = waiting_bytes
        if self._is_paused:
            self._schedule_resume()

    def _drop_greedy_peer(self) -> None:
        """Reads that turned out larger than they were counted in with, and nobody takes them."""
        _log.warning("connection_closed", peer=self.peer, reason="answers pile up")
        self._shared.counters.connections_closed_by_us += 1
        self.close(is_abrupt=True)
