"""Answers the calls of `control.proto` with the storage of the bookie.

The service runs on the event loop of the v2 server, and uses the same storage and the same lanes.
An invalid request gets the answer BAD_REQUEST and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from bookie_server.core.background.compaction import ALL_PERCENT
from bookie_server.core.disk_use import DiskSpace
from bookie_server.core.requests import (
    ID_MAX,
    StoredAdd,
    StoredBatchRead,
    StoredRead,
    evenly_spaced,
)
from bookie_server.errors import StorageError, TooManyRangesError
from bookie_server.service.collector import Collector
from bookie_server.service.grpc.calls import FairSlots
from bookie_server.service.grpc.limbo import LimboCalls
from bookie_server.service.grpc.replies import Batches, HeldReplies, Listings
from bookie_server.service.grpc.stream import (
    BadStreamError,
    ReplyStream,
    Taken,
    Turns,
    complete,
    size_bytes_of,
)
from bookie_server.service.grpc.stuck_calls import Stuck, StuckCalls, close_connections
from bookie_server.service.limits.budget import Budget, Share
from bookie_server.service.limits.lanes import REQUEST_OVERHEAD_BYTES, Lanes
from bookie_server.service.logging import fields_of, get_logger
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import (
    FRAME_SIZE_BYTES_MAX,
    NO_ENTRY,
    RUN_ENTRIES_MAX,
    Code,
)
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.wire.opcodes import number_of

_logger = get_logger("grpc")

BATCH_COUNT_MAX: Final = 65_536  # maximum number of entries in one batch, as in v2
WATCHED_SIZE_BYTES_MAX: Final = 1 << 20
"""Maximum size of the entries in one message of a watch, even if the client requests more."""

T = TypeVar("T", bound="Message")
Context = Any
"""The type grpc.aio.ServicerContext, which accepts no type parameters at run time."""
AppendStream = ReplyStream[pb.AppendRequest, pb.AppendReply]
ReadStream = ReplyStream[pb.ReadRequest, pb.ReadReply]
WriteLacStream = ReplyStream[pb.WriteLacRequest, pb.WriteLacReply]


class BookieServicer(control_pb2_grpc.BookieServicer):
    """The calls of one bookie; lanes and counters are shared with the v2 server."""

    def __init__(
        self,
        bookie_id: str,
        storage: BookieStorage,
        collector: Collector,
        limbo: LimboCalls,
        lanes: Lanes,
        counters: ServiceCounters,
        connections_count: Callable[[], int],
        watches_max: int,
        frame_size_bytes_max: int = FRAME_SIZE_BYTES_MAX,
        disk_space: Callable[[], DiskSpace] = DiskSpace,
    ) -> None:
        self._bookie_id = bookie_id
        self._frame_size_bytes_max = frame_size_bytes_max
        self._storage = storage
        self._collector = collector
        self._limbo = limbo
        self._lanes = lanes
        self.watch_slots = FairSlots(watches_max)
        self._counters = counters
        self._connections_count = connections_count
        self._disk_space = disk_space
        self._turns = Turns()
        self._batches = Batches(storage, counters, self._turns)
        self._held = HeldReplies()
        self._listings = Listings(storage, frame_size_bytes_max)
        self.stuck_calls = StuckCalls()
        self._streams: dict[ReplyStream[Any, Any], str] = {}
        self._watches: set[asyncio.Event] = set()
        self._stopping = asyncio.Event()

    def serve_on(self, port: int) -> None:
        """Set the port that clients connect to."""
        self.stuck_calls.close_connections = partial(close_connections, port)

    def end_streams(self) -> None:
        """Accept no further request. A stream ends when its accepted requests are answered."""
        self._stopping.set()
        for watch in self._watches:
            watch.set()
        for stream in self._streams:
            stream.end()

    async def Append(  # noqa: N802 -- the names are those of control.proto
        self, request_iterator: AsyncIterator[pb.AppendRequest], context: Context
    ) -> AsyncIterator[pb.AppendReply]:
        """Store runs of entries. Send the reply for each run when the run is durable or refused."""
        host = _host_of(context)
        adds, control = self._lanes.adds.share(host), self._lanes.control.share(host)

        def demand(request: pb.AppendRequest) -> tuple[Share, int]:
            share = control if request.is_recovery else adds
            size_bytes = size_bytes_of(request) + REQUEST_OVERHEAD_BYTES
            return share, min(size_bytes, share.size_bytes_max)

        stream: AppendStream = ReplyStream(demand, self._append, complete)
        try:
            async for reply in self._serve(stream, request_iterator, context):
                yield reply
        except BadStreamError as error:
            statuses = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED
            await context.abort(statuses[error.is_late], str(error))

    async def Read(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ReadRequest], context: Context
    ) -> AsyncIterator[pb.ReadReply]:
        """Read single entries. If a request has a key, fence the ledger first."""
        host = _host_of(context)
        reads, control = self._lanes.reads.share(host), self._lanes.control.share(host)

        def demand(request: pb.ReadRequest) -> tuple[Share, int]:
            share = control if request.is_recovery or request.fence_key else reads
            return share, min(stream.read_reserve.size_bytes, share.size_bytes_max)

        stream: ReadStream = ReplyStream(demand, self._read)
        async for reply in self._serve(stream, request_iterator, context):
            yield reply

    async def BatchRead(  # noqa: N802
        self, request: pb.BatchReadRequest, context: Context
    ) -> pb.BatchReadReply:
        """Read consecutive entries."""
        if not _are_ids(request.ledger_id, request.first_entry_id) or request.count_max < 1:
            return pb.BatchReadReply(code=self._counted(Code.BAD_REQUEST))
        share = self._lanes.reads.share(_host_of(context))
        code, entries, taken = await self._batches.in_line(
            StoredBatchRead(
                request.ledger_id,
                request.first_entry_id,
                min(request.count_max, BATCH_COUNT_MAX),
                min(request.size_bytes_max or ID_MAX, self._frame_size_bytes_max),
                peer=context.peer(),
            ),
            share,
        )
        release = self._held.hold(taken, context.peer())
        context.add_done_callback(lambda _: release())
        return pb.BatchReadReply(code=self._counted(code), entries=entries)

    async def ReadLac(  # noqa: N802
        self, request: pb.ReadLacRequest, context: object
    ) -> pb.LacReply:
        """Return the largest last add confirmed that this bookie has received for a ledger."""
        del context
        code, lac = Code.BAD_REQUEST, NO_ENTRY
        if _are_ids(request.ledger_id):
            loop = asyncio.get_running_loop()
            answered: asyncio.Future[tuple[Code, int]] = loop.create_future()
            self._storage.read_lac(request.ledger_id, lambda *read: resolve(answered, read))
            code, lac = await answered
        return pb.LacReply(code=self._counted(code), last_add_confirmed=lac)

    async def WriteLac(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.WriteLacRequest], context: Context
    ) -> AsyncIterator[pb.WriteLacReply]:
        """Store last adds confirmed. Send the reply for each LAC when it is durable or refused."""
        share = self._lanes.adds.share(_host_of(context))
        stream: WriteLacStream = ReplyStream(
            lambda _request: (share, REQUEST_OVERHEAD_BYTES), self._write_lac
        )
        async for reply in self._serve(stream, request_iterator, context):
            yield reply

    async def WatchLac(  # noqa: N802
        self, request: pb.WatchLacRequest, context: Context
    ) -> AsyncIterator[pb.LacReply]:
        """Send the last add confirmed (LAC) if it is above `previous`, and each time it has grown.

        One message may cover several changes. The head of the answer is sent immediately, which
        shows the client that the watch is accepted.
        """
        peer, is_ended = context.peer(), asyncio.Event()
        changed = asyncio.Event()

        def end() -> None:
            is_ended.set()
            changed.set()

        place = self.watch_slots.enter(peer, end)
        if place is None:
            yield pb.LacReply(code=self._counted(Code.BUSY), last_add_confirmed=NO_ENTRY)
            return
        try:
            await context.send_initial_metadata(())
            async for reply in self._watch(request, changed, is_ended, context):
                yield reply
        finally:
            self.watch_slots.leave(peer, place)

    async def _watch(
        self,
        request: pb.WatchLacRequest,
        changed: asyncio.Event,
        is_ended: asyncio.Event,
        context: Context,
    ) -> AsyncIterator[pb.LacReply]:
        if not _are_ids(request.ledger_id):
            yield pb.LacReply(code=self._counted(Code.BAD_REQUEST), last_add_confirmed=NO_ENTRY)
            return
        share = self._lanes.reads.share(_host_of(context))
        newest = sent = request.previous

        def raise_lac(lac: int) -> None:
            nonlocal newest
            if lac > newest:
                newest = lac
                changed.set()

        cancel = self._storage.watch_lac(request.ledger_id, raise_lac)
        self._storage.read_lac(request.ledger_id, lambda _, lac: raise_lac(lac))
        self._watches.add(changed)
        try:
            while not self._stopping.is_set():
                await changed.wait()
                changed.clear()
                if self._stopping.is_set() or is_ended.is_set():
                    return
                lac = newest
                asked = StoredBatchRead(
                    request.ledger_id,
                    sent + 1,
                    lac - sent,
                    min(request.entries_size_bytes_max, WATCHED_SIZE_BYTES_MAX),
                    peer=context.peer(),
                )
                entries, taken = await self._confirmed(asked, share)
                sent = lac
                await self._turns.wait_with(taken)
                release = self._held.hold(taken, context.peer())
                try:
                    yield pb.LacReply(
                        code=self._counted(Code.OK), last_add_confirmed=lac, entries=entries
                    )
                finally:
                    release()
        finally:
            self._watches.discard(changed)
            cancel()

    async def _confirmed(
        self, request: StoredBatchRead, share: Share
    ) -> tuple[Sequence[bytes], Taken]:
        """Return the confirmed entries.

        The result is empty if the entries are too many or too large, or if the lane is not ample.
        """
        is_small = request.size_bytes_max and request.count_max <= RUN_ENTRIES_MAX
        if not is_small or not share.budget.is_ample:
            return (), (share, 0)
        return await self._batches.at_once(request, share)

    async def ListEntries(  # noqa: N802
        self, request: pb.ListEntriesRequest, context: Context
    ) -> pb.ListEntriesReply:
        """Return the ranges of a ledger's entries on this bookie."""
        if not _are_ids(request.ledger_id):
            return pb.ListEntriesReply(code=self._counted(Code.BAD_REQUEST))
        share = self._lanes.reads.share(_host_of(context))
        try:
            reply, taken = await self._listings.in_line(request.ledger_id, share)
        except TooManyRangesError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
            raise
        except StorageError as error:
            about = {"ledger_id": request.ledger_id, "peer": context.peer()}
            _logger.warning("list_failed", **{**fields_of(error), **about})
            return pb.ListEntriesReply(code=self._counted(Code.IO_ERROR))
        await self._turns.wait_with(taken)
        release = self._held.hold(taken, context.peer())
        context.add_done_callback(lambda _: release())
        reply.code = self._counted(Code.OK)
        return reply

    async def GetInfo(  # noqa: N802
        self, request: pb.GetInfoRequest, context: object
    ) -> pb.GetInfoReply:
        """Return the id, the state and the figures of this bookie."""
        del request, context
        failure, space = self._storage.failure, self._disk_space()
        return pb.GetInfoReply(
            bookie_id=self._bookie_id,
            is_writable=self._storage.is_writable,
            failure="" if failure is None else str(failure),
            in_flight_bytes=self._lanes.held_bytes,
            connections=self._connections_count(),
            free_bytes=space.free,
            total_bytes=space.total,
            ledgers_count=self._storage.ledgers_count,
            ledgers_in_limbo=self._storage.ledgers_in_limbo,
        )

    async def CollectGarbage(  # noqa: N802
        self, request: pb.CollectGarbageRequest, context: object
    ) -> pb.CollectGarbageReply:
        """Run a pass of the collector, and start to compact each file with a deleted entry.

        If another pass is running, wait for its end first. The reply does not wait for compaction.
        """
        del request, context
        collected = await self._collector.collect(ALL_PERCENT)
        code = Code.OK if collected.is_whole else Code.IO_ERROR
        return pb.CollectGarbageReply(
            code=self._counted(code),
            ledgers_held=collected.ledgers_held,
            ledgers_dropped=collected.ledgers_dropped,
        )

    async def ListLimbo(  # noqa: N802
        self, request: pb.ListLimboRequest, context: object
    ) -> pb.ListLimboReply:
        """Return a page of the ledgers in limbo."""
        del context
        return self._limbo.listed(request)

    async def AcceptLoss(  # noqa: N802
        self, request: pb.AcceptLossRequest, context: object
    ) -> pb.AcceptLossReply:
        """End the limbo of a ledger whose entries are lost."""
        del context
        return await self._limbo.accept(request)

    async def RaiseDoubt(  # noqa: N802
        self, request: pb.RaiseDoubtRequest, context: object
    ) -> pb.RaiseDoubtReply:
        """Put all ledgers in limbo."""
        del context
        return await self._limbo.raise_doubt(request)

    async def _serve(
        self, stream: ReplyStream[Any, T], requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[T]:
        self._streams[stream] = context.peer()
        if self._stopping.is_set():
            stream.end()
        replies = stream.serve(requests)
        try:
            async for reply in replies:
                await self._turns.wait(reply.ByteSize())
                stream.offer()
                yield reply
        finally:
            del self._streams[stream]
            await replies.aclose()  # type: ignore[attr-defined]

    def relieve(self, lane: Budget, stuck_seconds: float) -> None:
        """End the calls that hold bytes of a lane and made no progress for `stuck_seconds`.

        If a call is sending a reply, its connection is closed before its bytes are given back.
        """
        stuck = self._held.stuck(lane, stuck_seconds)
        for stream in [stream for stream in self._streams if stream.holds(lane)]:
            is_unfinished = stream.is_unfinished(stuck_seconds)
            if stream.is_stuck(0 if is_unfinished else stuck_seconds):
                stuck.append(Stuck(self._streams[stream], stream.cancel))
            elif is_unfinished:
                self._counters.connections_swept += 1
                stream.cancel()
        stuck = [each for each in stuck if not self.stuck_calls.is_closing(each.peer)]
        self._counters.connections_swept += len({each.peer for each in stuck})
        self.stuck_calls.end(stuck)

    def _append(self, stream: AppendStream, request: pb.AppendRequest, taken: Taken) -> None:
        request_id = request.request_id

        def answer(code: Code) -> None:
            reply = pb.AppendReply(request_id=request_id, code=self._counted(code))
            stream.answer(reply, taken)

        counters = self._counters
        counters.add_requests += 1
        counters.add_entries += len(request.entry_ids)
        counters.add_bytes += len(request.body)
        counters.recovery_requests += request.is_recovery
        self._storage.add(
            StoredAdd(
                request.ledger_id,
                evenly_spaced(tuple(request.entry_ids)),
                tuple(request.lengths),
                request.body,
                request.master_key,
                request.is_recovery,
                self._streams.get(stream),
            ),
            answer,
        )

    def _read(self, stream: ReadStream, request: pb.ReadRequest, taken: Taken) -> None:
        request_id = request.request_id

        def answer(code: Code, entry: bytes | None) -> None:
            entry = b"" if entry is None else bytes(entry)
            stream.read_reserve.learn(len(entry))
            share, held_bytes = taken
            more_bytes = len(entry) + REQUEST_OVERHEAD_BYTES - held_bytes
            if more_bytes > 0:
                if share.extend(more_bytes):
                    held_bytes += more_bytes
                else:
                    share.refuse()
                    code, entry = Code.BUSY, b""
            self._counters.read_entries += code is Code.OK
            self._counters.read_bytes += len(entry)
            reply = pb.ReadReply(request_id=request_id, code=self._counted(code), entry=entry)
            stream.answer(reply, (share, held_bytes))

        self._counters.read_requests += 1
        self._counters.fence_requests += bool(request.fence_key)
        self._storage.read(
            StoredRead(
                request.ledger_id,
                request.entry_id,
                request.fence_key or None,
                request.is_recovery,
                self._streams.get(stream),
            ),
            answer,
        )

    def _write_lac(self, stream: WriteLacStream, request: pb.WriteLacRequest, taken: Taken) -> None:
        request_id = request.request_id

        def answer(code: Code) -> None:
            reply = pb.WriteLacReply(request_id=request_id, code=self._counted(code))
            stream.answer(reply, taken)

        self._storage.write_lac(
            request.ledger_id, request.last_add_confirmed, request.master_key, answer
        )

    def _counted(self, code: Code) -> Any:
        """Count `code` as an answer, and return the number of the code."""
        self._counters.answers[code] += 1
        return number_of(code)


def _host_of(context: Context) -> str:
    """Return the address of a call's client, without its port: `ipv4:127.0.0.1:4711`."""
    return str(context.peer()).rpartition(":")[0]


def _are_ids(*ids: int) -> bool:
    return all(0 <= number <= ID_MAX for number in ids)
