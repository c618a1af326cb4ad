"""The transport over BookKeeper's binary protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from ledgerlog_spark.transport import port
from ledgerlog_spark.transport.allocator import keep_freed_memory
from ledgerlog_spark.transport.pending import PendingBatch, PendingRead, PendingRun, PendingSlices
from ledgerlog_spark.transport.prepared_run import PreparedRun
from ledgerlog_spark.transport.v2.link import V2Link
from ledgerlog_spark.wire.frames import ChunkPool

if TYPE_CHECKING:
    from ledgerlog_spark.transport.grpc.transport import GrpcTransport


RECONNECT = RetryPolicy(first_delay_ms=20, delay_max_ms=2_000, attempts_max=NO_LIMIT)
"""Pauses between attempts to open the connection of a lane. During a pause, requests fail."""

LINKS_MAX = 1_024
"""Number of links to bookies at which the transport closes idle links before it adds a link."""


class V2Lane(Enum):
    """A kind of requests. The requests of one kind share a connection.

    `ADDS`: adds of writers, and announced LACs. `READS`: reads that do not fence. `CONTROL`:
    fencing reads, and all reads and adds of recovery.
    """

    ADDS = "adds"
    READS = "reads"
    CONTROL = "control"


class V2Transport:
    """Implements `BookieTransport` over TCP.

    The transport has up to three connections to each bookie, one for each `V2Lane`. A connection is
    opened when it is first needed. Because of the separate connections, a slow read never delays
    adds, recovery never waits for the adds of a writer, and the answer to a plain read of the last
    entry is never mistaken for the answer to a fencing read.

    A last add confirmed (LAC) is announced on the connection of adds. LACs are written, read and
    watched through the bookie's control service, on a gRPC channel that is opened when it is first
    needed.

    The buffers of requests are not copied, so the caller must not change them before the reply. The
    process keeps up to 64 MiB of freed memory for later requests (transport/allocator.py).
    """

    def __init__(
        self,
        resolve: port.ResolveBookie,
        *,
        connect_timeout_ms: int = 3_000,  # for reading the registration and connecting together
        # longest pause between two attempts to connect; requests fail during the pause
        reconnect_delay_ms_max: int = RECONNECT.delay_max_ms,
    ) -> None:
        """Create a transport without connections, on the running event loop."""
        keep_freed_memory()
        self._resolve = resolve
        self._pool = ChunkPool()
        self._new_link = partial(
            V2Link,
            resolve=resolve,
            pool=self._pool,
            connect_timeout_ms=connect_timeout_ms,
            reconnect=replace(RECONNECT, delay_max_ms=reconnect_delay_ms_max),
        )
        self._links: dict[tuple[str, V2Lane], V2Link] = {}
        self._request_ids = count(1)
        self._last_prepared: PreparedRun | None = None
        self._control: GrpcTransport | None = None
        self._is_closed = False

    def add(
        self, bookie_id: str, request: port.AddRun, timeout_ms: int, on_reply: port.OnAdd
    ) -> None:
        """Store a run with an ADD_RUN if the bookie supports it, or with an ADD for each entry."""
        pending = PendingRun(self._prepared(request), next(self._request_ids), on_reply)
        lane = V2Lane.CONTROL if request.is_recovery else V2Lane.ADDS
        self._link(bookie_id, lane).submit(pending, timeout_ms)

    def read(
        self, bookie_id: str, request: port.ReadEntry, timeout_ms: int, on_reply: port.OnRead
    ) -> None:
        """Read one stored entry. The caller verifies the digest."""
        is_control = request.is_recovery or request.fence_key is not None
        pending = PendingRead(request, on_reply)
        lane = V2Lane.CONTROL if is_control else V2Lane.READS
        self._link(bookie_id, lane).submit(pending, timeout_ms)

    def read_batch(
        self, bookie_id: str, request: port.ReadBatch, timeout_ms: int, on_reply: port.OnReadBatch
    ) -> None:
        """Read a run of stored entries from one bookie."""
        pending = PendingBatch(request, next(self._request_ids), on_reply)
        lane = V2Lane.CONTROL if request.is_recovery else V2Lane.READS
        self._link(bookie_id, lane).submit(pending, timeout_ms)

    def read_slices(
        self, bookie_id: str, request: port.ReadSlices, timeout_ms: int, on_reply: port.OnReadBatch
    ) -> None:
        """Read ranges of stored entries, if the registration of the bookie lists READ_SLICES."""
        pending = PendingSlices(request, next(self._request_ids), on_reply)
        self._link(bookie_id, V2Lane.READS).submit(pending, timeout_ms)

    def announce_lac(self, bookie_id: str, request: port.WriteLac) -> bool:
        """Announce a LAC as in `BookieTransport.announce_lac`, on the connection of adds."""
        return self._link(bookie_id, V2Lane.ADDS).announce_lac(request)

    def write_lac(
        self, bookie_id: str, request: port.WriteLac, timeout_ms: int, on_reply: port.OnAdd
    ) -> None:
        """Write a LAC as in `BookieTransport.write_lac`, with `GrpcTransport`."""
        self._control_transport().write_lac(bookie_id, request, timeout_ms, on_reply)

    def read_lac(
        self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: port.OnLac
    ) -> None:
        """Read a LAC as in `BookieTransport.read_lac`, with `GrpcTransport`."""
        self._control_transport().read_lac(bookie_id, ledger_id, timeout_ms, on_reply)

    def list_entries(
        self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: port.OnList
    ) -> None:
        """List entries as in `EntryLister.list_entries`, with `GrpcTransport`."""
        self._control_transport().list_entries(bookie_id, ledger_id, timeout_ms, on_reply)

    def watch_lac(
        self,
        bookie_id: str,
        request: port.WatchLac,
        on_rise: port.OnLacRise,
        on_end: port.OnWatchEnd,
    ) -> port.CancelWatch:
        """Watch a LAC as in `BookieTransport.watch_lac`, with `GrpcTransport`."""
        return self._control_transport().watch_lac(bookie_id, request, on_rise, on_end)

    async def aclose(self) -> None:
        """Close all connections. Open requests are answered with `Code.UNAVAILABLE`."""
        self._is_closed = True
        if self._control is not None:
            await self._control.aclose()
        await asyncio.gather(*(link.aclose() for link in self._links.values()))

    def _control_transport(self) -> GrpcTransport:
        if self._control is None:
            # This module is imported here, because most clients never need gRPC, and its import
            # takes 0.1 s.
            from ledgerlog_spark.transport.grpc.transport import GrpcTransport

            self._control = GrpcTransport(self._resolve)
            if self._is_closed:
                self._control.stop()
        return self._control

    def _prepared(self, request: port.AddRun) -> PreparedRun:
        # The last prepared run is stored, because the caller sends the same run to several bookies
        # of an ensemble, one after the other.
        prepared = self._last_prepared
        if prepared is None or prepared.request is not request:
            prepared = self._last_prepared = PreparedRun(request)
        return prepared

    def recovery_connections(self, bookie_id: str) -> int:
        """Return the number of connections for recovery adds that were opened to a bookie so far.

        While this number stays the same, all answers come from the same process of the bookie.
        """
        return self._link(bookie_id, V2Lane.CONTROL).connections_made

    def _link(self, bookie_id: str, lane: V2Lane) -> V2Link:
        link = self._links.get((bookie_id, lane))
        if link is None:
            if len(self._links) >= LINKS_MAX:
                self._drop_idle()
            link = self._links[bookie_id, lane] = self._new_link(bookie_id)
            if self._is_closed:
                link.drop()
        return link

    def _drop_idle(self) -> None:
        """Close the oldest idle links, because their bookies may no longer exist."""
        idle = [key for key, link in self._links.items() if link.is_idle]
        for key in idle[: max(1, LINKS_MAX // 4)]:
            self._links.pop(key).drop()
