"""The connection of one lane to one bookie: looks up the bookie, connects, waits after failures.

A request is sent on the existing connection, or waits for the connection that is being opened. If
the connection cannot be opened, all waiting requests fail with `Code.UNAVAILABLE`. Further requests
also fail until the next attempt to connect is due.

If the late answer to an earlier request could be mistaken for the answer to a request, this request
is sent on a new connection. The previous connection is *retired*: no more requests are sent on it,
and it is closed after all its requests were answered or timed out. So a slow request never makes
other requests fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.transport.deadlines import Deadlines
from ledgerlog_spark.transport.pending import Pending, PendingRun
from ledgerlog_spark.transport.port import ResolveBookie, WriteLac
from ledgerlog_spark.transport.v2.connection import LATE_REQUESTS_MAX, V2Connection
from ledgerlog_spark.transport.v2.sockets import connected_within_host
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.frames import ChunkPool
from ledgerlog_spark.wire.requests import encode_tell_lac


class V2Link:
    """Requests of one lane (adds, reads, or control) to one bookie."""

    def __init__(
        self,
        bookie_id: str,
        resolve: ResolveBookie,
        pool: ChunkPool,
        *,
        connect_timeout_ms: int,
        reconnect: RetryPolicy,
    ) -> None:
        self.bookie_id = bookie_id
        self._resolve = resolve
        self._pool = pool
        self._connect_timeout_ms = connect_timeout_ms
        self._reconnect = reconnect
        self._failures = 0
        self._loop = asyncio.get_running_loop()
        self._next_attempt_at = self._loop.time()
        self._deadlines = Deadlines(self._loop, self._on_expired)
        self._connection: V2Connection | None = None
        self._retired: V2Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[Pending] = deque()
        self._cut_off: list[PendingRun] = []
        self._runs_are_refused = False
        self._is_closed = False
        self.connections_made = 0
        """Number of connections that were opened so far. All answers on one connection come from
        the same process of the bookie."""

    def submit(self, pending: Pending, timeout_ms: int) -> None:
        """Send a request now, or when a connection is open.

        If `REQUESTS_MAX` requests are already open, the request is answered with BUSY.
        """
        if self._is_closed:
            self._loop.call_soon(pending.fail, Code.UNAVAILABLE)
            return
        if self._deadlines.is_full:
            self._loop.call_soon(pending.fail, Code.BUSY)
            return
        self._deadlines.add(pending, timeout_ms)
        self._dispatch(pending)

    def announce_lac(self, request: WriteLac) -> bool:
        """Send a LAC if the bookie is connected and accepts LACs; return whether it was sent."""
        frame = encode_tell_lac(request.ledger_id, request.last_add_confirmed, request.master_key)
        return self._connection is not None and self._connection.announce(frame)

    @property
    def is_idle(self) -> bool:
        """Whether no caller waits for an answer."""
        return (
            self._connecting is None
            and not self._waiting
            and not self._cut_off
            and not any(connection.is_wanted for connection in self._connections)
        )

    @property
    def _connections(self) -> list[V2Connection]:
        return [one for one in (self._connection, self._retired) if one is not None]

    def drop(self) -> None:
        """Close the connections of an idle link. The link must not be used afterwards."""
        self._is_closed = True
        self._deadlines.close()
        connections = self._connections
        self._connection = self._retired = None
        for connection in connections:
            _drop(connection)

    async def aclose(self) -> None:
        """Answer all requests with `Code.UNAVAILABLE`, and close the connections."""
        self._is_closed = True
        task = self._connecting
        if task is not None:
            task.cancel()
            await forever(asyncio.wait([task]), "a task that is cancelled ends")
            self._connecting = None  # a task that never began has not reset this
        connections = self._connections
        self.drop()
        for connection in connections:
            await connection.lost()
        self._fail_waiting()

    # Called by the connection.

    def on_answers(self) -> None:
        """Reset the number of failures to 0, because the bookie has answered."""
        self._failures = 0
        self._deadlines.trim()
        self._close_retired()

    def on_run_not_understood(self, run: PendingRun) -> None:
        """Send this run and all later runs with one ADD for each entry."""
        self._runs_are_refused = True
        if self._connection is not None:
            self._connection.takes_runs = False
        self._dispatch(run)

    def on_lost(self, connection: V2Connection) -> None:
        """Fail the requests of a lost connection, except runs to send once more as single adds."""
        if connection is self._retired:
            self._retired = None
            _fail_all(connection.take_unanswered())
        if connection is not self._connection:
            return
        self._connection = None
        unanswered = connection.take_unanswered()
        if connection.takes_runs and not self._is_closed:
            # A bookie that was downgraded to a release without ADD_RUN may reset the connection.
            # The registration of the bookie shows whether the bookie still supports ADD_RUN. It is
            # safe to add the same entries twice.
            runs = [one for one in unanswered if isinstance(one, PendingRun) and one.is_open]
            if runs:
                self._cut_off += runs
                unanswered = [one for one in unanswered if not isinstance(one, PendingRun)]
                self._start_connecting()
        if not connection.has_answered:
            self._lengthen_delay()
        _fail_all(unanswered)

    # Sending.

    def _dispatch(self, pending: Pending) -> None:
        connection = self._connection
        if connection is not None:
            if connection.is_full:
                self._loop.call_soon(pending.fail, Code.BUSY)
                return
            if not connection.is_blocked(pending):
                connection.send(pending)
                return
            self._retire(connection)
        self._waiting.append(pending)
        self._start_connecting()

    def _retire(self, connection: V2Connection) -> None:
        """Send no more requests on this connection, and close the previously retired connection."""
        self._connection = None
        before, self._retired = self._retired, connection
        if before is not None:
            _drop(before)
        self._close_retired()

    def _close_retired(self) -> None:
        retired = self._retired
        if retired is not None and not retired.is_wanted:
            self._retired = None
            _drop(retired)

    def _on_expired(self, expired: list[Pending]) -> None:
        connections = self._connections
        _fail_all(expired, Code.TIMEOUT)
        for connection in connections:
            if connection in (self._connection, self._retired):
                self._move_blocked(connection)
        self._close_retired()

    def _move_blocked(self, connection: V2Connection) -> None:
        blocked = connection.take_blocked()
        if connection is self._connection and (
            blocked or connection.late_count > LATE_REQUESTS_MAX
        ):
            self._retire(connection)
        for pending in blocked:
            self._dispatch(pending)

    # Connecting.

    def _start_connecting(self) -> None:
        if self._connecting is not None:
            return
        if self._loop.time() < self._next_attempt_at:
            self._loop.call_soon(self._fail_waiting)
            return
        self._connecting = self._loop.create_task(self._connect(), name=f"to {self.bookie_id}")

    async def _connect(self) -> None:
        is_wanted = True
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1e3):
                info = await self._resolve(self.bookie_id)
                is_wanted = self._settle_cut_off(info)
                if is_wanted:
                    await self._open(info)
        except (LedgerLogError, OSError, TimeoutError, ValueError, OverflowError):
            pass  # the waiting requests fail with UNAVAILABLE, without this reason
        finally:
            self._connecting = None
            if is_wanted and self._connection is None:
                self._lengthen_delay()
                self._fail_waiting()
        self._send_waiting()

    def _settle_cut_off(self, info: BookieInfo) -> bool:
        """Fail or queue the runs of a lost connection. Return whether requests wait now."""
        runs, self._cut_off = self._cut_off, []
        self._runs_are_refused = self._runs_are_refused and info.takes_runs
        if info.takes_runs:
            _fail_all(runs)
        else:
            self._waiting.extendleft(reversed(runs))
        return bool(self._waiting)

    async def _open(self, info: BookieInfo) -> None:
        takes_runs = info.takes_runs and not self._runs_are_refused

        def made() -> V2Connection:
            return V2Connection(
                self,
                self._pool,
                takes_runs=takes_runs,
                takes_lacs=info.takes_lacs,
                takes_slices=info.takes_slices,
            )

        connected = await connected_within_host(info.host, info.port)
        if connected is None:
            _, connection = await self._loop.create_connection(made, info.host, info.port)
        else:
            _, connection = await self._loop.create_connection(made, sock=connected)
        self.connections_made += 1
        if not connection.is_lost:
            self._connection = connection

    def _lengthen_delay(self) -> None:
        self._failures += 1
        pause_ms = self._reconnect.pause_ms(self._failures)
        self._next_attempt_at = self._loop.time() + pause_ms / 1e3

    def _fail_waiting(self) -> None:
        if self._connecting is not None or self._connection is not None:
            return
        waiting, self._waiting = self._waiting, deque()
        runs, self._cut_off = self._cut_off, []
        _fail_all([*runs, *waiting])

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            if pending.is_wanted:
                self._dispatch(pending)


def _drop(connection: V2Connection) -> None:
    """Close a connection, and fail its unanswered requests. The outcome of these is unknown."""
    unanswered = connection.take_unanswered()
    connection.abort()
    _fail_all(unanswered)


def _fail_all(requests: Sequence[Pending], code: Code = Code.UNAVAILABLE) -> None:
    for pending in requests:
        pending.fail(code)
