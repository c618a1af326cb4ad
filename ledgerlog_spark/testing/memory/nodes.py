"""The nodes of `MemoryTree`, in one dictionary.

They stand for the contents of a ZooKeeper ensemble. This module is synchronous and uses one thread.
In this module, a session is only the owner of ephemeral nodes. The module `tree` adds the delays
and failures of a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ledgerlog_spark.errors import LocalProtocolError, MetadataError, MetadataVersionError
from ledgerlog_spark.metadata.tree import (
    CheckNode,
    Created,
    CreateNode,
    DeleteNode,
    NodeExistsError,
    NodeMissingError,
    NodeNotEmptyError,
    NodeOperation,
    NodeStat,
    SetNode,
    TransactionFailedError,
    parent_of,
)
from ledgerlog_spark.model import Version

Outcome = Created | Version | None


@dataclass(frozen=True, slots=True)
class Node:
    """One node. A write replaces the object, and never changes it.

    `children_made` is the number of children that were created so far. The next sequential child
    gets this number.
    """

    data: bytes
    version: Version
    owner: int
    created_ms: int
    changed_ms: int
    changed_by: int
    children_made: int = 0


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change for which a watch may wait: a change of a node, or of the list of its children."""

    path: str
    is_of_children: bool


@dataclass(slots=True)
class NodeMap:
    """All nodes at one moment, with the names of the children of each node."""

    nodes: dict[str, Node] = field(default_factory=dict)
    names: dict[str, dict[str, None]] = field(default_factory=dict)

    def copy(self) -> NodeMap:
        """Return an independent map of the same nodes."""
        return NodeMap(dict(self.nodes), {path: dict(names) for path, names in self.names.items()})

    def node(self, path: str) -> Node:
        """Return the node at a path."""
        found = self.nodes.get(path)
        if found is None:
            raise NodeMissingError(f"no node at {path}", path=path)
        return found

    def children(self, path: str) -> list[str]:
        """Return the names of the children of a node, sorted."""
        self.node(path)
        return sorted(self.names.get(path, ()))

    def stat(self, path: str) -> NodeStat | None:
        """Return the result of `ZnodeTree.stat` for a path."""
        node = self.nodes.get(path)
        if node is None:
            return None
        return NodeStat(
            version=node.version,
            owner=node.owner,
            size_bytes=len(node.data),
            children_count=len(self.names.get(path, ())),
            created_ms=node.created_ms,
            changed_ms=node.changed_ms,
            changed_by=node.changed_by,
        )

    def put(self, path: str, node: Node | None) -> Node | None:
        """Set the node at a path, or remove it if `node` is None. Return the previous node."""
        before = self.nodes.get(path)
        names = self.names.setdefault(parent_of(path), {})
        name = path.rpartition("/")[2]
        if node is None:
            self.nodes.pop(path, None)
            names.pop(name, None)
        else:
            self.nodes[path] = node
            if name:
                names[name] = None
        return before


class MemoryNodes:
    """The nodes of a store, which all sessions of one test or process share."""

    def __init__(self, clock_ms: Callable[[], int] | None = None) -> None:
        """Create an empty tree. `clock_ms` is the clock of the store, in ms since 1970."""
        self.current = NodeMap()
        """The nodes in their state after the last committed transaction."""
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._transaction_id = 0
        self._listeners: list[Callable[[list[NodeChange]], None]] = []
        self._last_session_id = 0
        self._owners: dict[int, Callable[[], None]] = {}
        self.current.put("/", Node(b"", Version(0, 0), 0, 0, 0, 0))

    def estimate_ms(self, age_ms_max: int | None = None) -> int:
        """Return the time of the store's clock."""
        del age_ms_max
        return self._clock_ms()

    def new_session_id(self, on_expired: Callable[[], None] = lambda: None) -> int:
        """Return the id of a new session. `expire` with this id calls `on_expired`."""
        self._last_session_id += 1
        self._owners[self._last_session_id] = on_expired
        return self._last_session_id

    def listen(self, on_commit: Callable[[list[NodeChange]], None]) -> Callable[[], None]:
        """Register `on_commit`, which gets the changes of each transaction.

        Return a function that unregisters `on_commit`.
        """
        self._listeners.append(on_commit)
        return lambda: self._listeners.remove(on_commit)

    def commit(self, operations: list[NodeOperation], session_id: int) -> list[Outcome]:
        """Perform all operations, or change nothing if an operation fails."""
        self._transaction_id += 1
        undo: list[tuple[str, Node | None]] = []
        changes: list[NodeChange] = []
        outcomes: list[Outcome] = []
        for index, operation in enumerate(operations):
            try:
                outcomes.append(self._apply(operation, session_id, undo, changes))
            except MetadataError as error:
                for path, before in reversed(undo):
                    self.current.put(path, before)
                raise TransactionFailedError(
                    f"operation {index} of {len(operations)} failed: {error}",
                    index=index,
                    cause=error,
                ) from error
        self._announce(changes)
        return outcomes

    def expire(self, session_id: int) -> None:
        """Expire a session, and notify its owner. Do nothing if the session has ended."""
        self._owners.get(session_id, lambda: None)()

    def end_session(self, session_id: int) -> None:
        """End a session, and delete its ephemeral nodes."""
        self._owners.pop(session_id, None)
        owned = [p for p, node in self.current.nodes.items() if node.owner == session_id]
        if owned:
            self.commit([DeleteNode(path) for path in owned], session_id)

    def _announce(self, changes: list[NodeChange]) -> None:
        if changes:
            for listener in list(self._listeners):
                listener(changes)

    def _put(
        self, path: str, node: Node | None, undo: list[tuple[str, Node | None]]
    ) -> Node | None:
        before = self.current.put(path, node)
        undo.append((path, before))
        return before

    def _apply(
        self,
        operation: NodeOperation,
        session_id: int,
        undo: list[tuple[str, Node | None]],
        changes: list[NodeChange],
    ) -> Outcome:
        match operation:
            case CreateNode():
                created = self._create(operation, session_id, undo)
                changes.append(NodeChange(created.path, is_of_children=False))
                changes.append(NodeChange(parent_of(created.path), is_of_children=True))
                return created
            case CheckNode(path, version):
                _check(path, self.current.node(path), version)
                return None
            case SetNode(path, data, version):
                node = self.current.node(path)
                _check(path, node, version)
                after = Version(node.version.incarnation, node.version.number + 1)
                changed = replace(
                    node,
                    data=data,
                    version=after,
                    changed_ms=self._clock_ms(),
                    changed_by=self._transaction_id,
                )
                self._put(path, changed, undo)
                changes.append(NodeChange(path, is_of_children=False))
                return after
            case DeleteNode(path, version):
                _check(path, self.current.node(path), version)
                if self.current.names.get(path):
                    raise NodeNotEmptyError(f"{path} has children", path=path)
                self._put(path, None, undo)
                changes.append(NodeChange(path, is_of_children=False))
                changes.append(NodeChange(path, is_of_children=True))
                changes.append(NodeChange(parent_of(path), is_of_children=True))
                return None

    def _create(
        self, operation: CreateNode, session_id: int, undo: list[tuple[str, Node | None]]
    ) -> Created:
        path, kind = operation.path, operation.kind
        parent = self.current.node(parent_of(path))
        if parent.owner:
            raise LocalProtocolError(f"{path} is below an ephemeral node", path=path)
        if kind.is_sequential:
            path = f"{path}{parent.children_made:010d}"
        if path in self.current.nodes:
            raise NodeExistsError(f"{path} exists", path=path)
        version, now_ms = Version(self._transaction_id, 0), self._clock_ms()
        owner = session_id if kind.is_ephemeral else 0
        transaction = self._transaction_id
        self._put(path, Node(operation.data, version, owner, now_ms, now_ms, transaction), undo)
        counted = replace(parent, children_made=parent.children_made + 1)
        self._put(parent_of(path), counted, undo)
        return Created(path, version)


def _check(path: str, node: Node, version: Version | None) -> None:
    """Raise MetadataVersionError if the version numbers differ. ZooKeeper compares only numbers."""
    if version is not None and version.number != node.version.number:
        raise MetadataVersionError(
            f"{path} is at version {node.version.number}, not {version.number}",
            path=path,
            expected=version,
            found=node.version,
        )
