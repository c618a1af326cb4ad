"""A `ZnodeTree` in memory. Several sessions can share one store.

The tree is used for clusters inside one process and for tests. The methods below `close` cause
stale reads, lost requests, lost replies, delayed requests and expired sessions. If a test does not
call these methods, the store never fails.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from enum import Enum

from ledgerlog_spark.errors import (
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.store_clock import EstimatedClock
from ledgerlog_spark.metadata.tree import (
    CancelWatch,
    Created,
    CreateNode,
    DeleteNode,
    NodeKind,
    NodeOperation,
    NodeStat,
    OnChange,
    SetNode,
    TransactionFailedError,
    checked_path,
    checked_size,
    make_persistent,
    operations_size_bytes,
    parent_of,
)
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.testing.memory.nodes import MemoryNodes, NodeChange, NodeMap, Outcome
from ledgerlog_spark.waits import forever

SESSION_TIMEOUT_MS = 10_000


class Fault(Enum):
    """A failure of a write, which a test can cause."""

    NOT_SENT = "not_sent"
    REQUEST_LOST = "request_lost"
    REPLY_LOST = "reply_lost"
    DELAYED = "delayed"


class MemoryTree:
    """One session on a `MemoryNodes` store."""

    address = "memory"

    def __init__(
        self, nodes: MemoryNodes | None = None, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        """Create a session on the store `nodes`, or on a new store if `nodes` is None."""
        self.nodes = nodes or MemoryNodes()
        self.session_timeout_ms = session_timeout_ms
        """Time after which a caller need not wait longer until another session's node is
        deleted."""
        self.session_id = self.nodes.new_session_id(self.expire_session)
        self._held: NodeMap | None = None
        self._held_changes: list[NodeChange] = []
        self._faults: deque[Fault] = deque()
        self._delayed: list[tuple[list[NodeOperation], int]] = []
        self._is_connected = True
        self._is_closed = False
        self._keys = itertools.count()
        self._watches: dict[NodeChange, dict[int, OnChange]] = {}
        self._session_watches: dict[int, OnChange] = {}
        self._stop_listening = self.nodes.listen(self._committed)

    @property
    def session_secret(self) -> bytes:
        """The secret with which `end_session` ends the current session."""
        return self.session_id.to_bytes(8, "big")

    @property
    def clock(self) -> EstimatedClock:
        """The clock of the store. Every successful write of this session updates it."""
        return self.nodes

    @property
    def is_connected(self) -> bool:
        """Whether requests are sent immediately. Any thread may read this property."""
        return self._is_connected and not self._is_closed

    async def is_orphaned(self) -> bool:
        """Return False, because no other store can have the address of this store."""
        return False

    async def get(self, path: str) -> Versioned[bytes]:
        """Return the data and the version of a node."""
        node = (await self._view()).node(checked_path(path))
        return Versioned(node.data, node.version)

    async def stat(self, path: str) -> NodeStat | None:
        """Return the version, owner and sizes of a node; None if the node does not exist."""
        return (await self._view()).stat(checked_path(path))

    async def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the children of a node, sorted."""
        return (await self._view()).children(checked_path(path))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        kind: NodeKind = NodeKind.PERSISTENT,
        make_parents: bool = False,
    ) -> Created:
        """Create a node. If `make_parents` is true, also create missing ancestors."""
        if make_parents:
            await make_persistent(self, parent_of(path))
        outcome = await self._write_one(CreateNode(path, data, kind))
        assert isinstance(outcome, Created)
        return outcome

    async def set(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace the data if the node still has `version`, or if `version` is None."""
        outcome = await self._write_one(SetNode(path, data, version), version)
        assert isinstance(outcome, Version)
        return outcome

    async def delete(self, path: str, version: Version | None = None) -> None:
        """Delete the node if it still has `version`, or if `version` is None."""
        await self._write_one(DeleteNode(path, version), version)

    async def transact(self, operations: Sequence[NodeOperation]) -> list[Created | Version | None]:
        """Perform all operations or none. Only the numbers of versions are compared."""
        return await self._write(list(operations))

    async def sync(self, path: str = "/") -> None:
        """Make later reads return the present or a newer state, even after a new session."""
        checked_path(path)
        await self._view()
        self._catch_up()

    def watch(self, path: str, on_change: OnChange) -> CancelWatch:
        """Watch a node: `on_change` is called after the node or the session has changed.

        The deletion of the node counts as a change.
        """
        return self._watch(NodeChange(checked_path(path), is_of_children=False), on_change)

    def watch_children(self, path: str, on_change: OnChange) -> CancelWatch:
        """Watch children of a node. `on_change` is called after a creation or deletion."""
        return self._watch(NodeChange(checked_path(path), is_of_children=True), on_change)

    async def until_gone(self, path: str) -> bool:
        """Wait until the node may have changed, and return whether the node does not exist.

        The call sends one request, and leaves no watch.
        """
        changed = asyncio.Event()
        cancel = self.watch(path, changed.set)
        try:
            if path not in (await self._view()).nodes:
                return True
            await forever(changed.wait(), "callers have a deadline")
            return path not in (self._held or self.nodes.current).nodes
        finally:
            cancel()

    def watch_session(self, on_replaced: OnChange) -> CancelWatch:
        """Watch the session. `on_replaced` is called after a new session has replaced it.

        The ephemeral nodes of the lost session are deleted before `on_replaced` is called.
        """
        return _add(self._session_watches, next(self._keys), on_replaced)

    async def end_session(self, secret: bytes) -> None:
        """End another session and delete its ephemeral nodes. Do nothing if it has ended."""
        await self._view()
        self.nodes.expire(int.from_bytes(secret, "big"))

    async def close(self) -> None:
        """End the session, delete its ephemeral nodes, and make later requests fail.

        A second call does nothing.
        """
        if not self._is_closed:
            self._is_closed = True
            self._stop_listening()
            self._watches.clear()
            self._session_watches.clear()
            self.nodes.end_session(self.session_id)

    def inject(self, *faults: Fault) -> None:
        """Make the next writes fail with these faults, one fault for each write, in this order."""
        self._faults.extend(faults)

    def deliver_delayed(self) -> None:
        """Perform the delayed requests of the current session, and ignore their errors."""
        delayed, self._delayed = self._delayed, []
        for operations, session_id in delayed:
            if session_id == self.session_id:
                try:
                    self.nodes.commit(operations, session_id)
                except TransactionFailedError:
                    continue

    def hold_reads(self) -> None:
        """Make reads return the present state until `release_reads`.

        After `sync` or a write of this session, reads return the state at the time of the `sync` or
        the write.
        """
        self._held = self.nodes.current.copy()

    def release_reads(self) -> None:
        """Make reads return the current state again, after `hold_reads`."""
        self._catch_up()
        self._held = None

    def disconnect(self) -> None:
        """Make all requests fail until `connect`."""
        self._is_connected = False

    def connect(self) -> None:
        """End the effect of `disconnect`. All watches are called, as after any reconnection."""
        self._is_connected = True
        self._call_all_watches()

    def expire_session(self) -> None:
        """Begin a new session. Ephemeral nodes are deleted, and watches are called."""
        old = self.session_id
        self.session_id = self.nodes.new_session_id(self.expire_session)
        self._delayed.clear()
        self.nodes.end_session(old)
        for key in list(self._session_watches):
            _soon(self._session_watches, key)
        self._call_all_watches()

    async def _view(self) -> NodeMap:
        await asyncio.sleep(0)
        self._require_connection()
        return self.nodes.current if self._held is None else self._held

    def _require_connection(self) -> None:
        if self._is_closed:
            raise MetadataUnavailableError("the session is closed", retriable=False)
        if not self._is_connected:
            raise MetadataUnavailableError("the metadata store in memory is disconnected")

    async def _write_one(self, operation: NodeOperation, version: Version | None = None) -> Outcome:
        try:
            return (await self._write([operation], version))[0]
        except TransactionFailedError as failure:
            raise failure.cause from None

    async def _write(
        self, operations: list[NodeOperation], version: Version | None = None
    ) -> list[Outcome]:
        for operation in operations:
            checked_path(operation.path)
        if operations:
            checked_size(operations[0].path, operations_size_bytes(operations))
        await asyncio.sleep(0)
        self._require_connection()
        fault = self._faults.popleft() if self._faults else None
        if fault is Fault.NOT_SENT:
            raise MetadataUnavailableError("connection lost before the request was sent")
        if fault is Fault.DELAYED:
            self._delayed.append((operations, self.session_id))
        if fault in (Fault.DELAYED, Fault.REQUEST_LOST):
            raise MetadataUnknownError("connection lost after the request was sent")
        try:
            self._check_incarnation(operations, version)
            outcomes = self.nodes.commit(operations, self.session_id)
        except (TransactionFailedError, MetadataVersionError):
            if fault is Fault.REPLY_LOST:
                raise MetadataUnknownError("connection lost before the reply") from None
            raise
        if fault is Fault.REPLY_LOST:
            raise MetadataUnknownError("connection lost before the reply")
        self._catch_up()
        return outcomes

    def _check_incarnation(self, operations: list[NodeOperation], version: Version | None) -> None:
        if version is None:
            return
        path = operations[0].path
        node = self.nodes.current.nodes.get(path)
        if node is not None and node.version.incarnation != version.incarnation:
            raise MetadataVersionError(
                f"{path} was deleted and created again",
                path=path,
                expected=version,
                found=node.version,
            )

    def _watch(self, change: NodeChange, on_change: OnChange) -> CancelWatch:
        return _add(self._watches.setdefault(change, {}), next(self._keys), on_change)

    def _committed(self, changes: list[NodeChange]) -> None:
        if self._held is None:
            self._deliver(changes)
        else:
            self._held_changes.extend(changes)

    def _catch_up(self) -> None:
        if self._held is not None:
            self._held = self.nodes.current.copy()
            changes, self._held_changes = self._held_changes, []
            self._deliver(changes)

    def _deliver(self, changes: list[NodeChange]) -> None:
        for change in changes:
            for key in list(self._watches.get(change, ())):
                _soon(self._watches[change], key)

    def _call_all_watches(self) -> None:
        self._deliver(list(self._watches))


def _add(callbacks: dict[int, OnChange], key: int, on_change: OnChange) -> CancelWatch:
    callbacks[key] = on_change
    return lambda: callbacks.pop(key, None) and None


def _soon(callbacks: dict[int, OnChange], key: int) -> None:
    """Call a watch in the next iteration of the event loop, unless it is cancelled by then."""

    def call() -> None:
        on_change = callbacks.get(key)
        if on_change is not None:
            on_change()

    asyncio.get_running_loop().call_soon(call)
