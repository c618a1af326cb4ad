"""One connection of the v2 data plane: receives frames, sends answers, limits its memory.

All code runs on the loop's thread and awaits nothing. A frame is handled in receive memory, without
a copy. The answers of one turn of the loop are written in one call. `service/v2/operations.py`
carries out the requests.

Back-pressure: a connection takes memory for frames, requests and answers from the lanes
(`service/limits/lanes.py`) before it uses the memory. If a lane does not grant the memory, the
connection waits in line, and reads nothing more until the memory is granted.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Final, cast

from bookie_server.config import ANSWERS_RESERVE_BYTES
from bookie_server.core.requests import Buffer
from bookie_server.service.limits.budget import Share
from bookie_server.service.limits.lanes import (
    QUANTUM_BYTES,
    REQUEST_COST_BYTES,
    PeerShares,
    ReadReserve,
)
from bookie_server.service.logging import fields_of, get_logger
from bookie_server.service.v2.peer_watch import PeerWatch
from bookie_server.service.v2.receive_memory import ReceiveMemory, buffer_of
from bookie_server.service.v2.segments import FRAMES_PER_TURN, Together
from bookie_server.service.v2.shared import JOINED_BYTES_MAX, TURNS_SECONDS, V2Shared
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.v2.sockets import write_all
from ledgerlog_spark.wire.frames import ReceiveBuffer

UNSENT_BYTES_MAX: Final = 1 << 18
"""If a connection has more than this number of unsent bytes of answers in one lane, its next
request of this lane waits."""

_logger = get_logger("v2")


class PeerConnection(asyncio.BufferedProtocol, ABC):
    """The connection of one peer. In a subclass, `_demand` and `_handle` carry out its requests."""

    def __init__(
        self,
        shared: V2Shared,
        admit: Callable[[PeerConnection], bool],
        left: Callable[[PeerConnection], None],
    ) -> None:
        """`left` is called at the end of the connection, even if `admit` refused it."""
        self._shared = shared
        self._admit = admit
        self._left = left
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[memoryview] = deque()
        self._alone = 0  # number of frames at the start of the backlog that are handled alone
        self._answers: list[Buffer] = []
        self._granted: tuple[Share, int] | None = None
        self._is_closing = False
        self._is_flush_scheduled = False
        self._is_paused = False
        self._is_resume_scheduled = False
        self._is_writing_paused = False
        self._largest_frame_bytes = 0
        self._read_reserve = ReadReserve()
        self._batch_least_bytes = 0  # bytes that the answer to the last refused batch needed
        self._waits_since = 0.0
        self._written_bytes = 0
        self._set_host("")
        self.open_requests = 0  # number of requests that are accepted and not yet answered
        self.frames_received = 0
        self.received_bytes = 0
        self.is_proven = False  # whether a request of the peer was answered or carried out
        self.peer: object = None  # address of the peer, for logs
        self.watch = PeerWatch(shared.loop.time())

    def _set_host(self, host: str) -> None:
        shared = self._shared
        self.host = host
        self.shares = PeerShares(shared.lanes, host)
        self.memory = ReceiveMemory(shared.frame_size_bytes_max, shared.receive_pool, self.shares)
        self._frames = self.memory.frames

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add this connection to the server's connections. Close it if the server has no room."""
        # uvloop's transports have the methods of asyncio.Transport, but are not subclasses of it.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")
        if isinstance(self.peer, tuple):
            self._set_host(str(self.peer[0]))
        # With `high=0`, writing is paused whenever the kernel has not taken all answers. So the
        # number of unsent bytes is known.
        transport.set_write_buffer_limits(high=0)
        if not self._admit(self):
            self._transport = None
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Forget the peer. Accepted requests are carried out, but their answers are dropped."""
        self._transport = None
        self._give_back_all()
        self._left(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Return the memory into which the next bytes are received."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the frames that are now complete."""
        self.received_bytes += nbytes
        try:
            bodies = self._frames.received(nbytes)
        except WireFormatError as error:
            self._close_on_bad_bytes(error)
            return
        self.frames_received += len(bodies)
        if bodies and len(bodies[-1]) > self._largest_frame_bytes:
            self._largest_frame_bytes = len(bodies[-1])
            self.shares.trust(self._largest_frame_bytes)
        if self._is_closing:
            if not self._frames.make_room():
                self._pause()
            return
        if self._backlog or self._is_paused:
            self._keep(bodies)
        else:
            self._keep(self._work(bodies))
        bodies.clear()  # views of the memory, which cannot be reused before the views are gone
        if not self._is_paused and not self._frames.make_room():
            self._wait_for_memory()

    def eof_received(self) -> bool:
        """Return False: the loop then closes the connection, and the peer gets no more answers."""
        return False

    def pause_writing(self) -> None:
        """Record that the kernel has not taken all answers."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Record that the kernel has taken all answers."""
        self._is_writing_paused = False
        self._count_sent()

    # Called by the server.

    @property
    def is_idle(self) -> bool:
        """Whether all received requests are answered and all answers are sent."""
        is_unanswered = self.open_requests or self._backlog
        return not is_unanswered and not self._answers and not self._is_writing_paused

    @property
    def waits_since(self) -> float | None:
        """The time at which the connection began to wait for a lane, or None if it does not."""
        return self._waits_since if self.shares.is_waiting else None

    @property
    def is_incomplete(self) -> bool:
        """Whether the peer has sent only a part of a frame so far."""
        return bool(self._frames.held_bytes) and not self._is_paused

    @property
    def taken_bytes(self) -> int | None:
        """Total bytes of answers that the kernel has taken, or None if all answers are sent."""
        if not self._is_writing_paused or self._transport is None:
            return None
        return self._written_bytes - self._transport.get_write_buffer_size()

    def shed(self) -> None:
        """Give back unused receive memory."""
        if not self._is_paused:
            self.memory.shed()

    def stop_receiving(self) -> None:
        """Accept no further request; accepted requests are still answered.

        Further bytes are received and dropped, because the close of a socket with unread bytes
        would lose answers in flight.
        """
        self._is_closing = True
        self._drop_backlog()
        if self._is_paused and self._transport is not None and self._frames.make_room():
            self._is_paused = False
            self._transport.resume_reading()

    def close(self, *, is_abrupt: bool = False) -> None:
        """Close the connection. If `is_abrupt`, drop unsent answers and give back all bytes now."""
        self._is_closing = True
        if self._transport is None:
            return
        if is_abrupt:
            transport, self._transport = self._transport, None
            transport.abort()
            self._give_back_all()
        else:
            self._flush()
            self._transport.close()

    # Admission.

    def _keep(self, bodies: list[memoryview]) -> None:
        self.memory.keep(bodies)
        self._backlog.extend(bodies)

    def _drop_backlog(self) -> None:
        while self._backlog:
            self._free_first()

    def _free_first(self) -> None:
        self.memory.free(buffer_of(self._backlog.popleft()))

    def _free_buffer(self, buffer: ReceiveBuffer) -> None:
        if self.memory.free(buffer) and self._is_paused:
            self._schedule_resume()

    def _wait_for_memory(self) -> None:
        self._pause()
        if self.memory.wanted is not None:
            self._wait(self.memory.wanted[0], self.memory.missing_bytes)

    def _work(self, bodies: list[memoryview]) -> list[memoryview]:
        """Handle frames until a turn ends or a lane has no room. Return the frames that are left.

        If frames are left, the connection is closing, or it is paused and handles them later.
        """
        left_bytes, left_count, number = QUANTUM_BYTES, FRAMES_PER_TURN, 0
        until = monotonic() + TURNS_SECONDS
        while number < len(bodies):
            if self._is_closing:
                return []
            if left_bytes <= 0 or left_count <= 0:
                self._pause()
                self._resume_in_turn()
                return bodies[number:]
            done = None if self._alone else self._handle_together(bodies, number, left_count)
            if done is not None:
                bodies, number = [*done.left, *bodies[done.end :]], 0
                self._alone = len(done.left)
                left_count -= done.frames
                left_bytes -= done.cost_bytes
            elif cost_bytes := self._try_to_handle(bodies[number]):
                left_bytes -= cost_bytes
                left_count -= 1
                number += 1
                self._alone = max(0, self._alone - 1)
            else:
                return bodies[number:]
            if monotonic() >= until:
                left_bytes = 0
        return []

    def _try_to_handle(self, body: memoryview) -> int:
        """Handle a frame and return its cost. If the lane has no room, pause and return 0."""
        share, size_bytes = self._demand(body)
        answers = self.shares.adds if share is self.shares.writes else share
        if answers.unsent_bytes > UNSENT_BYTES_MAX:
            self._pause()
            return 0
        taken_bytes = self._acquire(share, size_bytes)
        if not taken_bytes:
            self._pause()
            return 0
        self.open_requests += 1
        self._handle(body, share, taken_bytes)
        return REQUEST_COST_BYTES + taken_bytes

    def _acquire(self, share: Share, size_bytes: int) -> int:
        """Take bytes of a lane. Return the number of bytes, or 0 if the connection has to wait.

        Bytes that were granted during a wait are used first.
        """
        if self._granted is not None:
            granted, granted_bytes = self._granted
            self._granted = None
            if granted is share:
                return granted_bytes
            granted.give_back(granted_bytes)
        if share.is_waiting:
            if size_bytes > share.allowance_bytes and not self._waits_for_itself(share):
                return 0
            share.stop_waiting()
        if share.take(size_bytes):
            return size_bytes
        if self._waits_for_itself(share):
            taken_bytes = min(size_bytes, ANSWERS_RESERVE_BYTES)
            share.force(taken_bytes)
            return taken_bytes
        self._wait(share, size_bytes)
        return 0

    def _waits_for_itself(self, share: Share) -> bool:
        """Return whether a share holds only the memory of the next request.

        The share gives these bytes back after that request, so a wait for them would never end.
        """
        has_more = self.open_requests or share.unsent_bytes or share is self.shares.writes
        return not has_more and share.held_bytes > share.reserve_bytes

    def _wait(self, share: Share, size_bytes: int) -> None:
        if share.is_waiting:
            return

        def granted() -> None:
            self._granted = (share, size_bytes)
            self._schedule_resume()

        self._waits_since = self._shared.loop.time()
        share.wait(size_bytes, granted)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._shared.counters.pauses += 1
            if self._transport is not None:
                self._transport.pause_reading()

    def _schedule_resume(self) -> None:
        if self._is_paused and not self._is_resume_scheduled and self._transport is not None:
            self._is_resume_scheduled = True
            self._shared.loop.call_soon(self._resume)

    def _resume_in_turn(self) -> None:
        if not self._is_resume_scheduled:
            self._is_resume_scheduled = True
            self._shared.take_turn(self._resume)

    def _resume(self) -> None:
        self._is_resume_scheduled = False
        if not self._is_paused or self._transport is None or self._is_closing:
            return
        backlog = self._backlog
        while backlog:
            bodies = list(islice(backlog, FRAMES_PER_TURN))
            if not self._forget_handled(bodies, self._work(bodies)):
                return
        if self._granted is not None:
            granted, self._granted = self._granted, None
            self.memory.use(*granted)
        if not self._frames.make_room():
            self._wait_for_memory()
            return
        self.shares.stop_waiting()
        if not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _forget_handled(self, bodies: list[memoryview], left: list[memoryview]) -> bool:
        """Remove handled frames of `bodies` from the backlog. Return whether no frame is left."""
        if self._is_closing:
            return False  # the backlog is empty
        handled_count = len(bodies) - len(left)
        kept: list[memoryview] = []
        if left and left[0] is not bodies[handled_count]:
            # The frames that are left are not the last frames of `bodies`.
            handled_count, kept = len(bodies), left
            self.memory.keep(kept)
        for _ in range(handled_count):
            self._free_first()
        self._backlog.extendleft(reversed(kept))
        return not left

    @abstractmethod
    def _demand(self, body: memoryview) -> tuple[Share, int]:
        """Return the share for a frame's request, and the number of bytes that it needs."""

    @abstractmethod
    def _handle_together(
        self, bodies: Sequence[memoryview], start: int, count_max: int
    ) -> Together | None:
        """Handle frames from `start` on together. Return None if the first is handled alone."""

    @abstractmethod
    def _handle(self, body: memoryview, share: Share, taken_bytes: int) -> None:
        """Carry out a frame's request, and give back its bytes with `_answer` or `_done`."""

    def _close_on_bad_bytes(self, error: WireFormatError) -> None:
        counters = self._shared.counters
        counters.bad_frames += 1
        counters.connections_closed_by_us += 1
        _logger.warning("connection_closed", **{**fields_of(error), "peer": self.peer})
        self._drop_backlog()
        self.close()

    # Answers.

    def _make_fit(self, share: Share, taken_bytes: int, size_bytes: int) -> int:
        """Take the bytes that an answer needs. Return their number, or 0 if they are not free."""
        more_bytes = size_bytes - taken_bytes
        if more_bytes <= 0:
            return taken_bytes
        if not share.extend(more_bytes):
            self._shared.relieve(share.budget)
            if not share.extend(more_bytes):
                share.refuse()
                return 0
        return size_bytes

    def _prove(self) -> None:
        """Record that a request of the peer got an answer or was carried out."""
        self.is_proven = True
        self._shared.known_hosts.note(self.host)

    def _done(self, share: Share, taken_bytes: int) -> None:
        """Finish a request that gets no answer."""
        self.open_requests -= 1
        share.give_back(taken_bytes)

    def _answer(
        self,
        code: Code,
        answer: Buffer,
        share: Share,
        taken_bytes: int,
        *rest: Buffer,
        count: int = 1,
    ) -> None:
        """Send an answer in one or more buffers, and give back the bytes that it does not need.

        `taken_bytes` were taken from `share` for the request. The answer never has more than
        `taken_bytes`. It may consist of the answers to `count` requests.
        """
        self._shared.counters.answers[code] += count
        self.open_requests -= count
        if self._transport is None:
            share.give_back(taken_bytes)
            return
        answers = self._answers
        size_bytes = len(answer)
        answers.append(answer)
        if rest:
            answers += rest
            size_bytes += sum(map(len, rest))
        assert size_bytes <= taken_bytes, "an answer is larger than its reserved bytes"
        if share is self.shares.writes:
            # Storage has finished the add, and the answer is already in memory.
            share.give_back(taken_bytes)
            share = self.shares.adds
            share.force(size_bytes)
        elif taken_bytes > size_bytes:
            share.give_back(taken_bytes - size_bytes)
        share.unsent_bytes += size_bytes
        share.unwritten_bytes += size_bytes
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._shared.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        answers, self._answers = self._answers, []
        if self._transport is None or not answers:
            return
        if not self.is_proven:
            self._prove()
        for share in self.shares.held:
            share.unwritten_bytes = 0
        size_bytes = sum(map(len, answers))
        self._written_bytes += size_bytes
        if size_bytes <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(answers))
        else:
            write_all(self._transport, answers)
        # If writing is paused, the bytes stay counted until `resume_writing`.
        if not self._is_writing_paused:
            self._count_sent()

    def _count_sent(self) -> None:
        for share in self.shares.held:
            sent_bytes = share.unsent_bytes - share.unwritten_bytes
            if sent_bytes:
                share.unsent_bytes = share.unwritten_bytes
                share.trust(sent_bytes)
                share.give_back(sent_bytes)
        if self._is_paused:
            self._schedule_resume()

    def _give_back_all(self) -> None:
        """Give back all bytes, except the bytes of open requests, which their answers give back."""
        self._answers.clear()
        self.shares.stop_waiting()
        for share in self.shares.held:
            unsent_bytes, share.unsent_bytes = share.unsent_bytes, 0
            share.unwritten_bytes = 0
            share.give_back(unsent_bytes)
        if self._granted is not None:
            share, granted_bytes = self._granted
            self._granted = None
            share.give_back(granted_bytes)
        self.memory.close()
        self._drop_backlog()
