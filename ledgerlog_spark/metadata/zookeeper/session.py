"""A `ZnodeTree` in ZooKeeper. The threads of its kazoo client pass all results to the event loop.

Every wait has a limit. If ZooKeeper is unavailable, a request waits for the connection up to the
request time-out. After this time, the request fails with `MetadataUnavailableError`, and was not
sent. If no answer to a write arrives, the error is `MetadataUnknownError`, because kazoo does not
report whether it sent the write. If no answer to a read arrives, the read is retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import (
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Sync,
)
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from ledgerlog_spark.errors import (
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
    RemoteProtocolError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.store_clock import StoreClock
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.metadata.zookeeper.loop_calls import LoopCalls
from ledgerlog_spark.metadata.zookeeper.probe import newest_transaction_id, stop
from ledgerlog_spark.metadata.zookeeper.request_result import RequestResult
from ledgerlog_spark.metadata.zookeeper.requests import (
    LOST,
    error_of,
    flags_of,
    multi_of,
    number_of,
    outcomes_of,
    stat_of,
    version_of,
    written_ms_of,
)
from ledgerlog_spark.metadata.zookeeper.watches import ZookeeperWatches
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.waits import Deadline, forever, within

SESSION_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 15_000
RECONNECT_DELAY_SECONDS = 0.05
RECONNECT_DELAY_SECONDS_MAX = 1.0
SESSION_ID_SIZE_BYTES = 8
PROBE_SECONDS = 2.0
MANY_PENDING = 32
"""Minimum number of pending requests at which all answers of one millisecond wake the loop once."""

# kazoo logs each failed attempt to connect. Without a handler, Python would print these lines, so
# this handler drops them. Callers get the failures of their requests as errors.
_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


class _Client(KazooClient):  # type: ignore[misc]
    """A kazoo client that keeps the newest transaction id when it begins a new session.

    The client sends this id to the server. A server that does not have this transaction refuses the
    session. Otherwise a read could return an older state than a read of an earlier session. When
    the connection breaks, the client reports the change of its state before it fails the pending
    requests. Therefore a caller that tries again waits for the next connection.
    """

    def _reset(self) -> None:
        seen = getattr(self, "last_zxid", 0)
        super()._reset()
        self.last_zxid = seen

    def _notify_pending(self, state: str) -> None:
        if state == KeeperState.CONNECTING:
            self._make_state_change(KazooState.SUSPENDED)
        super()._notify_pending(state)


class ZookeeperSession:
    """One session with a ZooKeeper ensemble. `connect` begins the session, `close` ends it.

    A lost session is replaced automatically. In this case, `session_id` changes, ephemeral nodes
    are deleted, and the callbacks of all watches and of `watch_session` are called.
    """

    def __init__(self, hosts: str, *, session_timeout_ms: int, request_timeout_ms: int) -> None:
        """Prepare a session, which `connect` starts. Call this on the event loop."""
        self._hosts = hosts
        self._request_timeout = request_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._session_timeout_ms = session_timeout_ms
        self._stop_seconds_max = 2 * session_timeout_ms / 1000 + 1
        self._session_id = 0
        self._requests_sent = 0
        self._is_closed = False
        self._connected = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()
        self._session_watches: dict[int, OnChange] = {}
        self._keys = itertools.count()
        self._on_loop = LoopCalls(self._loop, lambda: len(self._pending) >= MANY_PENDING).add
        self.clock = StoreClock()
        handler = SequentialThreadingHandler()
        self._client = _Client(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_DELAY_SECONDS,
                max_delay=RECONNECT_DELAY_SECONDS_MAX,
                sleep_func=handler.sleep_func,
            ),
            logger=_logger,
        )
        self._client.add_listener(self._state_changed)
        self._watches = ZookeeperWatches(self._client, self._loop, self._on_loop)

    @classmethod
    async def connect(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,  # requested; the server may change it
        connect_timeout_ms: int = REQUEST_TIMEOUT_MS,  # for the first connection
        # for one request, including the wait for the connection
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Self:
        """Connect to ZooKeeper, and return the session."""
        session = cls(
            hosts, session_timeout_ms=session_timeout_ms, request_timeout_ms=request_timeout_ms
        )
        try:
            session._client.start_async()
            seconds = connect_timeout_ms / 1000
            async with Deadline(seconds, lambda: session._unavailable(seconds)):
                await session._connected.wait()
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def address(self) -> str:
        """The `host:port` of all servers, separated by commas."""
        return self._hosts

    @property
    def session_id(self) -> int:
        """The id of the current session, or of the last session while no session exists."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """The requested time-out.

        Servers replace a time-out of less than 2 or more than 20 ticks.
        """
        return self._session_timeout_ms

    @property
    def session_secret(self) -> bytes:
        """The session id (8 bytes, signed) and ZooKeeper's password of the session.

        The secret is empty while no session exists.
        """
        client_id: tuple[int, bytes] | None = self._client.client_id
        if client_id is None:
            return b""
        return client_id[0].to_bytes(SESSION_ID_SIZE_BYTES, "big", signed=True) + client_id[1]

    @property
    def requests_sent(self) -> int:
        """Number of requests so far: reads, writes, transactions, syncs and requests for watches.

        Each request is a round trip. Pings and the requests that begin a session are not counted.
        """
        return self._requests_sent + self._watches.requests_sent

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected, so that requests are sent immediately."""
        return self._connected.is_set() and not self._is_closed

    async def is_orphaned(self) -> bool:
        """Whether the address of this session's ensemble now belongs to another ensemble.

        A server refuses a session that has already received later transactions than the server has.
        Therefore, if a new cluster has this address, the session would wait for hours to connect.
        If the session is connected, the call returns immediately. Otherwise it takes up to
        `PROBE_SECONDS`.
        """
        if self.is_connected or self._is_closed:
            return False
        newest = await asyncio.to_thread(newest_transaction_id, self._hosts, PROBE_SECONDS)
        if newest is None or newest >= self._client.last_zxid:
            return False
        return not self._connected.is_set()

    async def get(self, path: str) -> Versioned[bytes]:
        """Implements `ZnodeTree.get`."""
        znodes.checked_path(path)
        data, stat = await self._read(path, GetData(path, None))
        return Versioned(bytes(data), version_of(stat))

    async def stat(self, path: str) -> znodes.NodeStat | None:
        """Implements `ZnodeTree.stat`."""
        znodes.checked_path(path)
        stat = await self._read(path, Exists(path, None))
        return None if stat is None else stat_of(stat)

    async def children(self, path: str) -> list[str]:
        """Implements `ZnodeTree.children`."""
        znodes.checked_path(path)
        return sorted(await self._read(path, GetChildren(path, None)))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        kind: znodes.NodeKind = znodes.NodeKind.PERSISTENT,
        make_parents: bool = False,
    ) -> znodes.Created:
        """Implements `ZnodeTree.create`."""
        znodes.checked_path(path)
        znodes.checked_size(path, len(data))
        if make_parents:
            await znodes.make_persistent(self, znodes.parent_of(path))
        created, stat = await self._write(
            path, Create2(path, data, OPEN_ACL_UNSAFE, flags_of(kind))
        )
        self.clock.note(stat.mtime)
        return znodes.Created(created, version_of(stat))

    async def set(self, path: str, data: bytes, version: Version | None) -> Version:
        """Implements `ZnodeTree.set`."""
        znodes.checked_path(path)
        znodes.checked_size(path, len(data))
        await self._refuse_later_incarnation(path, version)
        stat = await self._write(path, SetData(path, data, number_of(version)))
        if version is not None and stat.czxid != version.incarnation:
            raise RemoteProtocolError(
                f"{path} was deleted and created again while it was written, so the write changed "
                "the new node: no path with versions may be created twice",
                definite=False,
                path=path,
            )
        self.clock.note(stat.mtime)
        return version_of(stat)

    async def delete(self, path: str, version: Version | None = None) -> None:
        """Implements `ZnodeTree.delete`."""
        znodes.checked_path(path)
        await self._refuse_later_incarnation(path, version)
        await self._write(path, Delete(path, number_of(version)))

    async def transact(
        self, operations: Sequence[znodes.NodeOperation]
    ) -> list[znodes.Created | Version | None]:
        """Implements `ZnodeTree.transact`."""
        if not operations:
            return []
        path = operations[0].path
        for operation in operations:
            znodes.checked_path(operation.path)
        znodes.checked_size(path, znodes.operations_size_bytes(operations))
        results = await self._write(path, multi_of(operations))
        outcomes = outcomes_of(operations, results)
        written_ms = written_ms_of(results)
        if written_ms is not None:
            self.clock.note(written_ms)
        return outcomes

    async def sync(self, path: str = "/") -> None:
        """Implements `ZnodeTree.sync`."""
        znodes.checked_path(path)
        await self._read(path, Sync(path))

    def watch(self, path: str, on_change: OnChange) -> CancelWatch:
        """Implements `ZnodeTree.watch`."""
        return self._watches.add(znodes.checked_path(path), on_change, is_of_children=False)

    def watch_children(self, path: str, on_change: OnChange) -> CancelWatch:
        """Implements `ZnodeTree.watch_children`."""
        return self._watches.add(znodes.checked_path(path), on_change, is_of_children=True)

    async def until_gone(self, path: str) -> bool:
        """Implements `ZnodeTree.until_gone`.

        No watch remains, because a read of a missing node sets no watch, and a change of the node
        ends the watch.
        """
        znodes.checked_path(path)
        happened: asyncio.Future[bool] = self._loop.create_future()

        def fired(event: Any) -> None:  # runs on a thread of kazoo
            self._on_loop(_first_result, happened, event.type == EventType.DELETED)

        self._pending.add(happened)
        try:
            await self._read(path, GetData(path, fired))
            return await forever(happened, "callers have a deadline")
        except znodes.NodeMissingError:
            return True
        finally:
            self._pending.discard(happened)

    def watch_session(self, on_replaced: OnChange) -> CancelWatch:
        """Implements `ZnodeTree.watch_session`."""
        key = next(self._keys)
        self._session_watches[key] = on_replaced
        return lambda: self._session_watches.pop(key, None) and None

    async def end_session(self, secret: bytes) -> None:
        """Implements `ZnodeTree.end_session`.

        A new connection takes over the session, and then closes the session.
        """
        session_id = int.from_bytes(secret[:SESSION_ID_SIZE_BYTES], "big", signed=True)
        # If the session has ended, the server begins a new session, which is closed instead.
        client = KazooClient(
            hosts=self._hosts,
            timeout=self._session_timeout_ms / 1000,
            client_id=(session_id, secret[SESSION_ID_SIZE_BYTES:]),
            logger=_logger,
        )
        try:
            await asyncio.to_thread(client.start, self._request_timeout)
        except KazooTimeoutError:
            raise self._unavailable(self._request_timeout) from None
        finally:
            await asyncio.to_thread(stop, client)

    async def close(self) -> None:
        """Implements `ZnodeTree.close`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connected.set()  # wakes the waiters, which then find that the session is closed
        self._watches.disconnected()
        self._watches.clear()
        self._session_watches.clear()
        for future in self._pending:
            if not future.done():
                future.set_exception(self._closed())
        # Stopping kazoo has no deadline, so the thread may continue after this wait.
        with contextlib.suppress(TimeoutError):
            await within(asyncio.to_thread(self._stop_client), self._stop_seconds_max)

    def _stop_client(self) -> None:
        """Stop kazoo.

        If the server does not answer, the call blocks for up to a session time-out.
        """
        self._client.remove_listener(self._state_changed)
        stop(self._client)

    async def _refuse_later_incarnation(self, path: str, version: Version | None) -> None:
        """Raise an error if the node was deleted and created again after `version` was read.

        If the read shows an earlier incarnation or no node, the read may be stale. In this case,
        ZooKeeper itself compares the version number of the write.
        """
        if version is None:
            return
        stat = await self.stat(path)
        if stat is not None and stat.version.incarnation > version.incarnation:
            raise MetadataVersionError(
                f"{path} was deleted and created again",
                path=path,
                expected=version,
                found=stat.version,
            )

    async def _read(self, path: str, request: Any) -> Any:
        """Send a request that changes nothing, and return the answer.

        Retry if the reply is lost.
        """
        deadline = self._loop.time() + self._request_timeout
        while True:
            await self._wait_until_connected(deadline)
            try:
                return await self._answer(path, request, deadline)
            except LOST:
                # The request may fail shortly before kazoo changes the connection's state, so wait
                # for this change.
                await asyncio.sleep(RECONNECT_DELAY_SECONDS)
            except (TimeoutError, KazooTimeoutError):
                raise self._unavailable(self._request_timeout) from None

    async def _write(self, path: str, request: Any) -> Any:
        deadline = self._loop.time() + self._request_timeout
        await self._wait_until_connected(deadline)
        try:
            return await self._answer(path, request, deadline)
        except (*LOST, TimeoutError, KazooTimeoutError) as loss:
            raise MetadataUnknownError(
                f"a write of {path} was sent to ZooKeeper at {self._hosts}, but no answer came "
                f"({type(loss).__name__}): the write may have happened. Read the node again after "
                "a sync.",
                path=path,
                address=self._hosts,
            ) from None

    async def _answer(self, path: str, request: Any, deadline: float) -> Any:
        self._requests_sent += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        # kazoo's methods would pass each answer through two of its threads.
        self._client._call(request, RequestResult(self._on_loop, future))  # noqa: SLF001 (no public way)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except (*LOST, TimeoutError, KazooTimeoutError, MetadataUnavailableError):
            raise
        except Exception as failure:  # noqa: BLE001 (kazoo may raise any exception)
            raise error_of(failure, path) from None

    async def _wait_until_connected(self, deadline: float) -> None:
        if not self._connected.is_set():
            left = deadline - self._loop.time()
            async with Deadline(left, lambda: self._unavailable(self._request_timeout)):
                await self._connected.wait()
        if self._is_closed:
            raise self._closed()

    def _unavailable(self, waited_seconds: float) -> MetadataUnavailableError:
        return MetadataUnavailableError(
            f"no answer from ZooKeeper at {self._hosts} within {waited_seconds:g} s: check that it "
            "runs and that the address is right (`ledgerlog doctor` checks both)",
            address=self._hosts,
        )

    def _closed(self) -> MetadataUnavailableError:
        return MetadataUnavailableError(
            f"the session with ZooKeeper at {self._hosts} is closed: open another session",
            retriable=False,
            address=self._hosts,
        )

    def _state_changed(self, state: str) -> None:
        """Pass a change of the connection's state to the loop. kazoo's own thread calls this."""
        client_id = self._client.client_id if state == KazooState.CONNECTED else None
        self._on_loop(self._take_state, None if client_id is None else client_id[0])

    def _take_state(self, session_id: int | None) -> None:
        if self._is_closed:
            return
        if session_id is None:
            self._connected.clear()
            self._watches.disconnected()
            return
        before, self._session_id = self._session_id, session_id
        self._connected.set()
        self._watches.connected()
        if before not in (0, session_id):
            for on_replaced in list(self._session_watches.values()):
                self._loop.call_soon(on_replaced)


def _first_result(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)
