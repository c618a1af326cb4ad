"""One connection of the v2 data plane: frames in, storage, answers out.

The loop's thread does everything and nothing here awaits: a frame is cut out of receive memory
by reference, decoded, handed to storage, and its answer is collected with the others of the same
turn of the loop and written in one call.

Back-pressure: a connection reads no further while its own bytes in flight, those of the whole
bookie, or the peer's refusal to take answers say so. Recovery and fencing pass the bookie-wide
soft bound and meet BUSY at the hard one (DESIGN 2 and 4.5).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from bookie_server.core import requests as storage_requests
from bookie_server.service.auth import answer_to_auth
from bookie_server.service.in_flight import REQUEST_OVERHEAD_BYTES, ReadReserve
from bookie_server.service.logging import get_logger
from bookie_server.service.v2_requests import HIGH_PRIORITY, RECOVERY_ADD, is_control, refusal_of
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import (
    encode_add_answer,
    encode_add_run_answer,
    encode_batch_read_answer,
    encode_read_answer_head,
    encode_refusal,
)
from ledgerlog_spark.wire.frames import FrameSplitter
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    AuthMessage,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
    decode_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie_server.core.requests import Buffer
    from bookie_server.service.v2_server import V2Server
    from ledgerlog_spark.wire.requests import Request

WRITE_BUFFER_BYTES_MAX: Final = 262_144
JOINED_BYTES_MAX: Final = 65_536
GATHERED_BYTES_MIN: Final = 8_192
"""Buffers of this size on average are cheaper to gather in the kernel than to copy here."""

_log = get_logger("v2")


class V2Connection(asyncio.BufferedProtocol):
    """Serves one peer. Created by V2Server, which owns what connections share."""

    __slots__ = (
        "_answers",
        "_backlog",
        "_frames",
        "_is_closing",
        "_is_flush_scheduled",
        "_is_paused",
        "_is_resume_scheduled",
        "_is_writing_paused",
        "_read_reserve",
        "_server",
        "_transport",
        "_unsent_bytes",
        "frames_received",
        "in_flight_bytes",
        "peer",
    )

    def __init__(self, server: V2Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._frames = FrameSplitter(server.frame_size_bytes_max, server.receive_pool)
        self._backlog: deque[memoryview] = deque()
        self._answers: list[Buffer] = []
        self._is_closing = False
        self._is_flush_scheduled = False
        self._is_paused = False
        self._is_resume_scheduled = False
        self._is_writing_paused = False
        self._unsent_bytes = 0
        self._read_reserve = ReadReserve()
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
        if not self._server.admit(self):
            self._transport = None
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Forget the peer; requests already accepted are carried out, their answers dropped."""
        self._transport = None
        self._backlog.clear()
        self._answers.clear()
        self._server.in_flight.forget(self._schedule_resume)
        self._server.in_flight.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
        self._server.left(self)

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
        if self._backlog or self._is_paused:
            self._backlog.extend(bodies)
        else:
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
        self._server.in_flight.forget(self._schedule_resume)
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
        server = self._server
        held_bytes = self.in_flight_bytes + self._unsent_bytes
        if self._is_writing_paused or held_bytes >= server.connection_bytes_max:
            return False
        return server.in_flight.size_bytes < server.in_flight.size_bytes_max or is_control(body)

    def _pause(self) -> None:
        self._is_paused = True
        self._server.counters.pauses += 1
        if self._transport is not None:
            self._transport.pause_reading()
        in_flight = self._server.in_flight
        if in_flight.size_bytes >= in_flight.size_bytes_max:
            in_flight.wait(self._schedule_resume)

    def _schedule_resume(self) -> None:
        if self._is_paused and not self._is_resume_scheduled and self._transport is not None:
            self._is_resume_scheduled = True
            self._server.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._is_resume_scheduled = False
        if not self._is_paused or self._transport is None or self._is_closing:
            return
        self._server.in_flight.forget(self._schedule_resume)
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

    # Requests.

    def _handle_all(self, bodies: list[memoryview]) -> None:
        for number, body in enumerate(bodies):
            if self._is_closing:
                return
            if not self._may_handle(body):
                self._backlog.extend(bodies[number:])
                self._pause()
                return
            self._handle(body)

    def _handle(self, body: memoryview) -> None:
        try:
            request = decode_request(body)
        except WireFormatError as error:
            self._close_on_bad_bytes(error)
            return
        in_flight = self._server.in_flight
        if in_flight.size_bytes >= in_flight.hard_size_bytes_max:
            self._refuse(request, Code.BUSY)
        elif type(request) is AddRequest:
            self._add(request, len(body))
        elif type(request) is AddRunRequest:
            self._add_run(request, len(body))
        elif type(request) is ReadRequest:
            self._read(request)
        elif type(request) is BatchReadRequest:
            self._read_batch(request)
        elif type(request) is RefusedRequest:
            self._server.counters.bad_frames += 1
            self._answer(request.code, encode_refusal(request), 0)
        else:
            assert type(request) is AuthMessage
            self._auth(request)

    def _add(self, request: AddRequest, size_bytes: int) -> None:
        version, flags, ledger_id, entry_id, master_key, entry = request
        counters = self._server.counters
        counters.add_requests += 1
        counters.add_entries += 1
        counters.add_bytes += size_bytes
        size_bytes += REQUEST_OVERHEAD_BYTES
        self._take(size_bytes)
        is_recovery = bool(flags & RECOVERY_ADD)
        counters.recovery_requests += is_recovery
        self._server.storage.add(
            storage_requests.AddRequest(
                ledger_id, (entry_id,), (len(entry),), entry, master_key, is_recovery
            ),
            partial(self._added, version, ledger_id, entry_id, size_bytes),
        )

    def _added(
        self, version: int, ledger_id: int, entry_id: int, size_bytes: int, code: Code
    ) -> None:
        answer = encode_add_answer(code, ledger_id, entry_id, version=version)
        self._answer(code, answer, size_bytes)

    def _add_run(self, request: AddRunRequest, size_bytes: int) -> None:
        counters = self._server.counters
        counters.add_requests += 1
        counters.add_entries += len(request.lengths)
        counters.add_bytes += size_bytes
        size_bytes += REQUEST_OVERHEAD_BYTES
        self._take(size_bytes)
        is_recovery = bool(request.flags & RECOVERY_ADD)
        counters.recovery_requests += is_recovery
        self._server.storage.add(
            storage_requests.AddRequest(
                request.ledger_id,
                request.entry_ids,
                request.lengths,
                request.body,
                request.master_key,
                is_recovery,
            ),
            partial(
                self._run_added,
                request.version,
                request.ledger_id,
                request.entry_ids[0],
                request.request_id,
                size_bytes,
            ),
        )

    def _run_added(
        self,
        version: int,
        ledger_id: int,
        first_entry_id: int,
        request_id: int,
        size_bytes: int,
        code: Code,
    ) -> None:
        answer = encode_add_run_answer(code, ledger_id, first_entry_id, request_id, version=version)
        self._answer(code, answer, size_bytes)

    def _read(self, request: ReadRequest) -> None:
        version, flags, ledger_id, entry_id, master_key = request
        counters = self._server.counters
        counters.read_requests += 1
        counters.fence_requests += master_key is not None
        reserve = self._read_reserve.size_bytes
        self._take(reserve)
        self._server.storage.read(
            storage_requests.ReadRequest(
                ledger_id, entry_id, master_key, bool(flags & HIGH_PRIORITY)
            ),
            partial(self._entry_read, version, ledger_id, entry_id, reserve),
        )

    def _entry_read(
        self,
        version: int,
        ledger_id: int,
        entry_id: int,
        reserve: int,
        code: Code,
        entry: bytes | None,
    ) -> None:
        size_bytes = 0 if entry is None else len(entry)
        self._read_reserve.learn(size_bytes)
        head = encode_read_answer_head(code, ledger_id, entry_id, size_bytes, version=version)
        if entry is not None:
            counters = self._server.counters
            counters.read_entries += 1
            counters.read_bytes += size_bytes
        self._answer(code, head, reserve)
        if entry is not None:
            self._append(entry)

    def _read_batch(self, request: BatchReadRequest) -> None:
        counters = self._server.counters
        counters.read_requests += 1
        counters.fence_requests += request.master_key is not None
        count_max = request.count_max if request.count_max > 0 else self._server.batch_count_max
        size_bytes_max = self._server.batch_size_bytes_max
        if request.size_bytes_max > 0:
            size_bytes_max = min(size_bytes_max, request.size_bytes_max)
        reserve = size_bytes_max + REQUEST_OVERHEAD_BYTES
        self._take(reserve)
        self._server.storage.read_batch(
            storage_requests.BatchReadRequest(
                request.ledger_id,
                request.first_entry_id,
                min(count_max, self._server.batch_count_max),
                size_bytes_max,
                request.master_key,
            ),
            partial(self._batch_read, request, reserve),
        )

    def _batch_read(
        self, request: BatchReadRequest, reserve: int, code: Code, entries: Sequence[bytes]
    ) -> None:
        buffers = encode_batch_read_answer(
            code,
            request.ledger_id,
            request.first_entry_id,
            request.request_id,
            entries,
            version=request.version,
        )
        size_bytes = sum(map(len, entries))
        counters = self._server.counters
        counters.read_entries += len(entries)
        counters.read_bytes += size_bytes
        if size_bytes > len(buffers) * GATHERED_BYTES_MIN:
            self._answer(code, buffers[0], reserve)
            for buffer in buffers[1:]:
                self._append(buffer)
        else:
            self._answer(code, b"".join(buffers), reserve)

    def _auth(self, request: AuthMessage) -> None:
        self._server.counters.auth_requests += 1
        answer = answer_to_auth(request)
        if answer is None:
            self._close_on_bad_bytes(WireFormatError("an AUTH frame without a message"))
            return
        self._append(answer)

    def _refuse(self, request: Request, code: Code) -> None:
        if isinstance(request, AuthMessage):
            self._auth(request)
            return
        refusal = refusal_of(request, code)
        self._answer(refusal.code, encode_refusal(refusal), 0)

    def _close_on_bad_bytes(self, error: WireFormatError) -> None:
        counters = self._server.counters
        counters.bad_frames += 1
        counters.connections_closed_by_us += 1
        _log.warning("connection_closed", peer=self.peer, reason=error.message)
        self._backlog.clear()
        self.close()

    # Bytes in flight and answers.

    def _take(self, size_bytes: int) -> None:
        self.in_flight_bytes += size_bytes
        self._server.in_flight.take(size_bytes)

    def _answer(self, code: Code, answer: Buffer, given_back_bytes: int) -> None:
        """Send an answer and count its request out."""
        self._server.counters.answers[code] += 1
        self._append(answer)
        if given_back_bytes:
            self.in_flight_bytes -= given_back_bytes
            assert self.in_flight_bytes >= 0, "a request was answered twice"
            self._server.in_flight.give_back(given_back_bytes)
        if self._is_paused and self.in_flight_bytes <= self._server.connection_bytes_resume:
            self._schedule_resume()

    def _append(self, piece: Buffer) -> None:
        if self._transport is None:
            return
        size_bytes = len(piece)
        self._answers.append(piece)
        self._unsent_bytes += size_bytes
        self._server.in_flight.take(size_bytes)
        if self._unsent_bytes > self._server.unsent_bytes_max:
            self._drop_greedy_peer()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._server.loop.call_soon(self._flush)

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
        self._server.in_flight.give_back(self._unsent_bytes - waiting_bytes)
        self._unsent_bytes = waiting_bytes
        if self._is_paused:
            self._schedule_resume()

    def _drop_greedy_peer(self) -> None:
        """Reads that turned out larger than they were counted in with, and nobody takes them."""
        _log.warning("connection_closed", peer=self.peer, reason="answers pile up")
        self._server.counters.connections_closed_by_us += 1
        self.close(is_abrupt=True)
