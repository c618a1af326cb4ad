"""One TCP connection to a bookie: sends frames in batches, and matches answers to requests.

ADD_RUN, BATCH_READ and READ_SLICES answers have a request id. ADD and READ answers have no request
id. So for each key (operation, ledger, entry), only one ADD or READ request is sent at a time, and
later requests with the same key wait for its answer. After a request has timed out, its key stays
in use until its late answer arrives or the connection is closed
(WIRE.md#matching-answers-to-requests).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.pending import (
    Pending,
    PendingAdd,
    PendingBatch,
    PendingKeyed,
    PendingRead,
    PendingRun,
    PendingSlices,
)
from ledgerlog_spark.transport.port import Buffer
from ledgerlog_spark.transport.prepared_run import GATHERED_BYTES_MIN
from ledgerlog_spark.transport.v2.sockets import write_all
from ledgerlog_spark.waits import within
from ledgerlog_spark.wire.answers import (
    AddAnswer,
    AddRunAnswer,
    Answer,
    BatchReadAnswer,
    ReadAnswer,
    SliceReadAnswer,
    TellLacAnswer,
    decode_answer,
)
from ledgerlog_spark.wire.frames import ChunkPool, FrameSplitter
from ledgerlog_spark.wire.opcodes import Opcode

VANISHED_AFTER_MS: Final = 10_000
LOST_SECONDS_MAX: Final = 3.0
WRITE_BUFFER_BYTES_MAX: Final = 1 << 20
JOINED_BYTES_MAX: Final = 1 << 16
UNSENT_BYTES_MAX: Final = 64 << 20
"""Total size of the unsent requests at which the buffer is full. Requests stay unsent while the
bookie accepts no bytes.

The buffer may exceed this size by a part of its last request."""

LATE_REQUESTS_MAX: Final = 10_000
"""Maximum number of timed-out requests without an answer on one connection. If there are more, the
connection is retired."""


class ConnectionOwner(Protocol):
    """Callbacks of the link that created a connection."""

    def on_answers(self) -> None:
        """Called after answers have arrived and were passed to their requests."""

    def on_run_not_understood(self, run: PendingRun) -> None:
        """Called after the bookie has refused a run because it does not support ADD_RUN."""

    def on_lost(self, connection: V2Connection) -> None:
        """Called after the socket was closed. `take_unanswered` returns the open requests."""


class V2Connection(asyncio.BufferedProtocol):
    """Sends requests and completes them. All methods must be called on the event loop's thread."""

    def __init__(
        self,
        owner: ConnectionOwner,
        pool: ChunkPool,
        *,
        takes_runs: bool,
        takes_lacs: bool,
        takes_slices: bool,
    ) -> None:
        self.takes_runs = takes_runs  # whether runs are sent as ADD_RUN
        self.takes_lacs = takes_lacs  # whether the bookie supports TELL_LAC
        self._takes_slices = takes_slices  # whether the bookie supports READ_SLICES
        self.has_answered = False  # whether the bookie has sent bytes
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameSplitter(pool=pool)
        self._by_id: dict[int, PendingRun | PendingBatch | PendingSlices] = {}
        self._by_key: dict[tuple[int, int, int], PendingKeyed] = {}
        self._unsent: list[Buffer] = []
        self._unsent_bytes = 0
        self._is_flush_scheduled = False
        self._is_writing_paused = False
        self._is_given_up = False
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._handlers: dict[type, Callable[..., None]] = {
            AddAnswer: self._on_add,
            AddRunAnswer: self._on_add_run,
            ReadAnswer: self._on_read,
            BatchReadAnswer: self._on_batch,
            SliceReadAnswer: self._on_slices,
            TellLacAnswer: self._on_lac_refused,
        }

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the new connection for sending."""
        # uvloop's transports have the methods of asyncio.Transport, but are not of this class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        # A host that has disappeared acknowledges nothing. After `VANISHED_AFTER_MS` without an
        # acknowledgement, the kernel ends the connection. The connection to a slow host stays open.
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            peer_socket = transport.get_extra_info("socket")
            peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED_AFTER_MS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Notify the owner, which fails the open requests or sends them on another connection."""
        self._transport = None
        if not self._lost.done():
            self._lost.set_result(None)
        self._owner.on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the memory into which the next bytes are received."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Complete the requests whose answers have arrived."""
        self.has_answered = True
        try:
            for body in self._frames.received(nbytes):
                # The callback of an answer may have made the link close this connection.
                if self._is_given_up:
                    return
                self._match(decode_answer(body))
        except WireFormatError as error:
            self._refuse_peer(error)
            return
        self._owner.on_answers()

    def eof_received(self) -> bool:
        """Close the connection, because no more answers can arrive on it."""
        return False

    def pause_writing(self) -> None:
        """Buffer further requests, because the bookie does not accept bytes fast enough."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Send the buffered requests."""
        self._is_writing_paused = False
        self._flush()

    # Called by the link.

    def send(self, pending: Pending) -> None:
        """Send a request, or queue it after a request with the same key.

        The caller checked that `is_blocked` is false.
        """
        if isinstance(pending, PendingRun):
            if not self.takes_runs:
                for add in pending.as_adds():
                    self._send_keyed(add)
                return
            self._by_id[pending.request_id] = pending
            self._write(pending.frame())
        elif isinstance(pending, PendingSlices) and not self._takes_slices:
            self._loop.call_soon(pending.fail, Code.BAD_REQUEST)
        elif isinstance(pending, PendingBatch | PendingSlices):
            self._by_id[pending.request_id] = pending
            self._write(pending.frame())
        else:
            assert isinstance(pending, PendingKeyed)
            self._send_keyed(pending)

    def announce(self, frame: bytes) -> bool:
        """Send a TELL_LAC after all earlier requests, or return False if it cannot be sent now.

        The caller notifies the waiters for the confirmed entry only after this method has passed
        the frame to the socket.
        """
        if not self.takes_lacs or self._is_writing_paused:
            return False
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        self._flush()
        return True

    def is_blocked(self, pending: Pending) -> bool:
        """Return whether a late answer could be mistaken for the answer to this request.

        Such a late answer is the answer to a timed-out request with the same key.
        """
        if isinstance(pending, PendingKeyed):
            return self._is_late(pending.key)
        if isinstance(pending, PendingRun) and not self.takes_runs:
            assert pending.prepared is not None
            request = pending.prepared.request
            ledger_id = request.ledger_id
            return any(
                self._is_late((Opcode.ADD, ledger_id, entry_id)) for entry_id in request.entry_ids
            )
        return False

    def take_blocked(self) -> list[Pending]:
        """Remove and return the requests that wait for a timed-out request with the same key.

        The caller must send these requests on another connection.
        """
        blocked: list[Pending] = []
        for held in self._by_key.values():
            if held.followers and not held.is_wanted:
                blocked += [follower for follower in held.followers if follower.is_wanted]
                held.followers = []
        return blocked

    @property
    def is_lost(self) -> bool:
        """Whether the socket is closed."""
        return self._lost.done()

    @property
    def is_full(self) -> bool:
        """Whether the buffer of unsent requests is full."""
        return self._is_writing_paused and self._unsent_bytes >= UNSENT_BYTES_MAX

    @property
    def is_wanted(self) -> bool:
        """Whether a caller waits for the answer to a sent or queued request."""
        return any(pending.is_wanted for pending in self._by_id.values()) or any(
            pending.is_wanted
            for held in self._by_key.values()
            for pending in (held, *held.followers)
        )

    @property
    def late_count(self) -> int:
        """Number of timed-out requests that may still be answered."""
        late_by_id = sum(not pending.is_wanted for pending in self._by_id.values())
        return late_by_id + sum(not pending.is_wanted for pending in self._by_key.values())

    def take_unanswered(self) -> list[Pending]:
        """Remove and return all sent and queued requests, beginning with the runs."""
        unanswered: list[Pending] = list(self._by_id.values())
        for held in self._by_key.values():
            unanswered.append(held)
            unanswered += held.followers
        self._by_id = {}
        self._by_key = {}
        self._unsent.clear()
        self._unsent_bytes = 0
        return unanswered

    def abort(self) -> None:
        """Close the socket immediately. Unsent bytes are dropped, and no more bytes are read."""
        self._is_given_up = True
        if self._transport is not None:
            self._transport.abort()

    async def lost(self) -> None:
        """Wait until the socket is closed, which takes one turn of the event loop after `abort`."""
        with contextlib.suppress(TimeoutError):
            await within(asyncio.shield(self._lost), LOST_SECONDS_MAX)

    # Sending.

    def _send_keyed(self, pending: PendingKeyed) -> None:
        held = self._by_key.get(pending.key)
        if held is not None:
            held.followers.append(pending)
            return
        self._by_key[pending.key] = pending
        self._write(pending.frame())

    def _is_late(self, key: tuple[int, int, int]) -> bool:
        held = self._by_key.get(key)
        return held is not None and not held.is_wanted

    def _write(self, buffers: Sequence[Buffer]) -> None:
        self._unsent += buffers
        self._unsent_bytes += sum(map(len, buffers))
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        unsent, size_bytes = self._unsent, self._unsent_bytes
        if self._transport is None or self._is_writing_paused or not unsent:
            return
        self._unsent, self._unsent_bytes = [], 0
        if size_bytes <= JOINED_BYTES_MAX or size_bytes < GATHERED_BYTES_MIN * len(unsent):
            self._transport.write(b"".join(unsent))
        else:
            write_all(self._transport, unsent)

    # Receiving.

    def _match(self, answer: Answer) -> None:
        handler = self._handlers.get(type(answer))
        if handler is None:
            raise WireFormatError("an AUTH answer without an AUTH request")
        handler(answer)

    def _on_add(self, answer: AddAnswer) -> None:
        held = self._answered((Opcode.ADD, answer.ledger_id, answer.entry_id))
        assert isinstance(held, PendingAdd)
        held.fail(answer.code)

    def _on_read(self, answer: ReadAnswer) -> None:
        held = self._answered((Opcode.READ, answer.ledger_id, answer.entry_id))
        assert isinstance(held, PendingRead)
        held.finish(answer.code, answer.entry)

    def _answered(self, key: tuple[int, int, int]) -> PendingKeyed:
        held = self._by_key.pop(key, None)
        if held is None:
            raise WireFormatError(f"an answer without a pending request: {key}")
        wanted = [follower for follower in held.followers if follower.is_wanted]
        held.followers = []
        if wanted:
            first, *rest = wanted
            first.followers = rest
            self._send_keyed(first)
        return held

    def _on_add_run(self, answer: AddRunAnswer) -> None:
        request_id = answer.request_id
        if request_id is None:
            request_id = self._id_of_run(answer)
        run = self._by_id.get(request_id)
        if not isinstance(run, PendingRun):
            raise WireFormatError(f"an answer to a run that was not sent: {answer}")
        del self._by_id[request_id]
        if run.is_open and answer.code is Code.BAD_REQUEST:
            self._owner.on_run_not_understood(run)
        else:
            run.fail(answer.code)

    def _id_of_run(self, answer: AddRunAnswer) -> int:
        # A bookie that does not support ADD_RUN may answer with the ledger id and the entry id, but
        # without the request id.
        late = None
        for request_id, pending in self._by_id.items():
            if not isinstance(pending, PendingRun):
                continue
            if not pending.is_open:
                late = request_id if late is None else late
                continue
            assert pending.prepared is not None
            request = pending.prepared.request
            if (request.ledger_id, request.entry_ids[0]) == answer[1:3]:
                return request_id
        if late is not None:
            return late  # any timed-out request may be chosen, because no caller waits for one
        raise WireFormatError(f"an answer to a run that was not sent: {answer}")

    def _on_batch(self, answer: BatchReadAnswer) -> None:
        batch = self._by_id.get(answer.request_id)
        if not isinstance(batch, PendingBatch):
            raise WireFormatError(f"an answer to a batch that was not sent: {answer.request_id}")
        del self._by_id[answer.request_id]
        batch.finish(answer.code, answer.entries)

    def _on_slices(self, answer: SliceReadAnswer) -> None:
        read = self._by_id.get(answer.request_id)
        if not isinstance(read, PendingSlices):
            raise WireFormatError(f"slices that were not requested: {answer.request_id}")
        del self._by_id[answer.request_id]
        read.finish(answer.code, answer.slices)

    def _on_lac_refused(self, _answer: TellLacAnswer) -> None:
        self.takes_lacs = False

    def _refuse_peer(self, error: WireFormatError) -> None:
        self._loop.call_exception_handler(
            {
                "message": "a bookie sent an invalid answer; the connection was closed",
                "exception": error,
            }
        )
        self.abort()
