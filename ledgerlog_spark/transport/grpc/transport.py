"""The transport to bookies over gRPC, for LACs, and for entries in networks without v2.

Each bookie has one channel. Adds have one stream, and reads have another stream. Fencing reads,
recovery reads and recovery adds have separate streams, so that they never wait until megabytes of
adds are sent. Adds and reads are 16 to 45 times as fast over v2. For writing, reading and watching
the last add confirmed (LAC), the v2 transport uses this transport, because the v2 protocol has no
such operations.
"""

from __future__ import annotations

import asyncio

from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import port
from ledgerlog_spark.transport.deadlines import Deadlines
from ledgerlog_spark.transport.grpc.bookie import LIST_ENTRIES, GrpcBookie, GrpcRequest, time_out
from ledgerlog_spark.transport.prepared_run import PreparedRun
from ledgerlog_spark.wire.requests import (
    check_ids,
    checked_key,
    encode_batch_read,
    encode_read,
)

BOOKIES_MAX = 256
"""Number of bookies with a channel at which the transport closes idle channels before it opens
another channel."""


class GrpcTransport:
    """`BookieTransport` over gRPC. Call its methods only on the event loop that created it."""

    def __init__(self, resolve: port.ResolveBookie) -> None:
        self._resolve = resolve
        self._loop = asyncio.get_running_loop()
        self._bookies: dict[str, GrpcBookie] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._deadlines = Deadlines(self._loop, time_out)
        self._is_closed = False

    def add(
        self, bookie_id: str, request: port.AddRun, timeout_ms: int, on_reply: port.OnAdd
    ) -> None:
        """Store a run, over the stream of appends."""
        run = PreparedRun(request)
        pending = GrpcRequest(lambda code, _: on_reply(code))
        pending.message = pb.AppendRequest(
            ledger_id=request.ledger_id,
            entry_ids=request.entry_ids,
            lengths=run.lengths,
            body=b"".join(run.body),
            master_key=request.master_key,
            is_recovery=request.is_recovery,
        )
        self._send(bookie_id, ("Append", request.is_recovery), pending, timeout_ms)

    def read(
        self, bookie_id: str, request: port.ReadEntry, timeout_ms: int, on_reply: port.OnRead
    ) -> None:
        """Read one entry, over the stream of reads."""
        encode_read(request.ledger_id, request.entry_id, fence_key=request.fence_key)
        pending = GrpcRequest(on_reply)
        pending.message = pb.ReadRequest(
            ledger_id=request.ledger_id,
            entry_id=request.entry_id,
            fence_key=request.fence_key or b"",
            is_recovery=request.is_recovery,
        )
        is_control = request.is_recovery or request.fence_key is not None
        self._send(bookie_id, ("Read", is_control), pending, timeout_ms)

    def read_batch(
        self, bookie_id: str, request: port.ReadBatch, timeout_ms: int, on_reply: port.OnReadBatch
    ) -> None:
        """Read consecutive entries, with one call."""
        encode_batch_read(
            request.ledger_id,
            request.first_entry_id,
            request_id=0,
            count_max=request.count_max,
            size_bytes_max=request.size_bytes_max,
        )
        pending = GrpcRequest(lambda code, entries: on_reply(code, entries or ()))
        message = pb.BatchReadRequest(
            ledger_id=request.ledger_id,
            first_entry_id=request.first_entry_id,
            count_max=max(request.count_max, 1),
            size_bytes_max=max(request.size_bytes_max, 1),
        )
        if self._admit(pending, timeout_ms):
            bookie = self._bookie(bookie_id)
            bookie.call("BatchRead", message, pending, lambda reply: tuple(reply.entries))

    def read_slices(
        self,
        bookie_id: str,  # noqa: ARG002 - the port's
        request: port.ReadSlices,
        timeout_ms: int,  # noqa: ARG002 - the port's
        on_reply: port.OnReadBatch,
    ) -> None:
        """Refuse the request, because the control service has no such call."""
        check_ids(request.ledger_id)
        asyncio.get_running_loop().call_soon(on_reply, Code.BAD_REQUEST, ())

    def announce_lac(self, bookie_id: str, request: port.WriteLac) -> bool:  # noqa: ARG002 - the port's
        """Return False, because the control service only has a call that stores a LAC."""
        check_ids(request.ledger_id, request.last_add_confirmed)
        checked_key(request.master_key)
        return False

    def write_lac(
        self, bookie_id: str, request: port.WriteLac, timeout_ms: int, on_reply: port.OnAdd
    ) -> None:
        """Write a LAC, over the stream of LACs."""
        check_ids(request.ledger_id, request.last_add_confirmed)
        pending = GrpcRequest(lambda code, _: on_reply(code))
        pending.message = pb.WriteLacRequest(
            ledger_id=request.ledger_id,
            last_add_confirmed=request.last_add_confirmed,
            master_key=checked_key(request.master_key),
        )
        self._send(bookie_id, ("WriteLac", False), pending, timeout_ms)

    def read_lac(
        self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: port.OnLac
    ) -> None:
        """Read the largest LAC, with one call."""
        check_ids(ledger_id)
        pending = GrpcRequest(lambda code, lac: on_reply(code, NO_ENTRY if lac is None else lac))
        if self._admit(pending, timeout_ms):
            message = pb.ReadLacRequest(ledger_id=ledger_id)
            bookie = self._bookie(bookie_id)
            bookie.call("ReadLac", message, pending, lambda reply: reply.last_add_confirmed)

    def list_entries(
        self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: port.OnList
    ) -> None:
        """List the entries of a ledger, with one call."""
        check_ids(ledger_id)
        pending = GrpcRequest(lambda code, ranges: on_reply(code, ranges or ()))
        if self._admit(pending, timeout_ms):
            message = pb.ListEntriesRequest(ledger_id=ledger_id)
            self._bookie(bookie_id).call(LIST_ENTRIES, message, pending, _ranges_of)

    def watch_lac(
        self,
        bookie_id: str,
        request: port.WatchLac,
        on_rise: port.OnLacRise,
        on_end: port.OnWatchEnd,
    ) -> port.CancelWatch:
        """Watch the LAC, over a server stream."""
        check_ids(request.ledger_id)
        if self._is_closed:
            return self._loop.call_soon(on_end, Code.UNAVAILABLE).cancel
        message = pb.WatchLacRequest(
            ledger_id=request.ledger_id,
            previous=request.previous,
            entries_size_bytes_max=request.entries_size_bytes_max,
        )
        return self._bookie(bookie_id).watch_lac(message, on_rise, on_end)

    def stop(self) -> None:
        """Answer all later requests with `Code.UNAVAILABLE`."""
        self._is_closed = True

    async def aclose(self) -> None:
        """Close all channels. Pending requests are answered with `Code.UNAVAILABLE`."""
        self.stop()
        self._deadlines.close()
        bookies, self._bookies = self._bookies, {}
        for bookie in bookies.values():
            await bookie.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _send(
        self, bookie_id: str, stream: tuple[str, bool], pending: GrpcRequest, timeout_ms: int
    ) -> None:
        if self._admit(pending, timeout_ms):
            self._bookie(bookie_id).send(stream, pending)

    def _admit(self, pending: GrpcRequest, timeout_ms: int) -> bool:
        if self._is_closed or self._deadlines.is_full:
            code = Code.UNAVAILABLE if self._is_closed else Code.BUSY
            self._loop.call_soon(pending.fail, code)
            return False
        self._deadlines.add(pending, timeout_ms)
        return True

    def _bookie(self, bookie_id: str) -> GrpcBookie:
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            if len(self._bookies) >= BOOKIES_MAX:
                self._drop_idle()
            bookie = self._bookies[bookie_id] = GrpcBookie(bookie_id, self._resolve)
        self._deadlines.trim()
        return bookie

    def _drop_idle(self) -> None:
        """Close the oldest idle channels, because their bookies may no longer exist."""
        idle = [bookie_id for bookie_id, bookie in self._bookies.items() if bookie.is_idle]
        for bookie_id in idle[: max(1, BOOKIES_MAX // 4)]:
            task = self._loop.create_task(self._bookies.pop(bookie_id).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _ranges_of(reply: pb.ListEntriesReply) -> tuple[tuple[int, int], ...]:
    return tuple((one.first_entry_id, one.last_entry_id) for one in reply.ranges)
