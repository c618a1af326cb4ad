"""A tree of small versioned nodes, like the tree of ZooKeeper. All metadata stores use this tree.

`zookeeper.session.ZookeeperSession` and `testing.memory.MemoryTree` implement `ZnodeTree`.
`tests/contract/test_metadata_tree.py` checks that both classes do what these docstrings state.

Every write ends in one of four ways, on every tree:

- It returns. In this case, the change is durable on a majority of the ensemble.
- It raises a `MetadataError` about the node (`NodeMissingError`, `NodeExistsError`,
  `NodeNotEmptyError`, `MetadataVersionError`, `TransactionFailedError`). The error is definite,
  because nothing was changed.
- It raises `MetadataUnavailableError`. The error is definite, because nothing was sent.
- It raises `MetadataUnknownError`. The write was sent, and may have happened or may still happen.

The stores run on the client's event loop, and raise the same errors.

Reads may be stale until `sync`. But a later read of one tree never returns an older state than an
earlier read, even if the session was replaced between the two reads. When the tree connects, it
sends the newest transaction id that it has received. A server that does not have this transaction
refuses the session.

If the reply to a read is lost, the read is repeated until the tree's own deadline. Therefore each
read ends with the store's answer, or with `MetadataUnavailableError`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ledgerlog_spark.errors import (
    LocalProtocolError,
    MetadataError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.metadata.store_clock import EstimatedClock
from ledgerlog_spark.model import Version, Versioned

OnChange = Callable[[], None]
"""A function without arguments that is called on the event loop after a watched node has
changed."""

CancelWatch = Callable[[], None]


class Session(Protocol):
    """The session with the metadata store. All stores of one client share this session."""

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected, so that requests are sent immediately.

        Any thread may read this property.
        """

    async def is_orphaned(self) -> bool:
        """Return whether the address of this session's store now belongs to another store."""
        ...


MAKE_ATTEMPTS_MAX = 4
NODE_SIZE_BYTES_MAX = 1_000_000
"""Maximum bytes of one node's data, and of the data and paths of one transaction.

ZooKeeper itself limits each packet to 1 MiB."""


class NodeMissingError(MetadataError):
    """The node does not exist, or the parent of a new node does not exist.

    The field `path` is the path of the node.
    """


class NodeExistsError(MetadataError):
    """A node with this path already exists. The field `path` is the path of the node."""


class NodeNotEmptyError(MetadataError):
    """The node has children and cannot be deleted. The field `path` is the path of the node."""


class TransactionFailedError(MetadataError):
    """An operation of a transaction failed, so the transaction changed nothing.

    `index` is the index of the first failed operation. `cause` is the error that this operation
    raises outside a transaction.
    """


class NodeKind(Enum):
    """The lifetime of a node, and whether the tree adds digits to the name.

    The path of a sequential node ends with ten decimal digits, from a counter of the parent node.
    """

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"
    EPHEMERAL_SEQUENTIAL = "ephemeral_sequential"

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node is deleted at the end of the session that created it."""
        return self is not NodeKind.PERSISTENT

    @property
    def is_sequential(self) -> bool:
        """Whether the tree adds digits to the name of the node."""
        return self is NodeKind.EPHEMERAL_SEQUENTIAL


@dataclass(frozen=True, slots=True)
class NodeStat:
    """The metadata of a node."""

    version: Version
    owner: int  # session id of an ephemeral node, 0 for a persistent node
    size_bytes: int
    children_count: int
    created_ms: int  # ms since 1970, by the store's own clock
    changed_ms: int  # time of the last write of the data, by the same clock
    changed_by: int  # id of the transaction of the last write of the data


@dataclass(frozen=True, slots=True)
class Created:
    """The path of a new node, with its digits if it is sequential, and its first version."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class CheckNode:
    """An operation of a transaction that fails unless the node has `version.number`."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class CreateNode:
    """An operation of a transaction that creates a node.

    The parent node must exist, or an earlier operation must create it.
    """

    path: str
    data: bytes = b""
    kind: NodeKind = NodeKind.PERSISTENT


@dataclass(frozen=True, slots=True)
class SetNode:
    """An operation of a transaction that replaces the data of a node.

    If `version` is None, the node may have any version.
    """

    path: str
    data: bytes
    version: Version | None


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """An operation of a transaction that deletes a node.

    If `version` is None, the node may have any version.
    """

    path: str
    version: Version | None = None


NodeOperation = CheckNode | CreateNode | SetNode | DeleteNode


class ZnodeTree(Session, Protocol):
    """One session with a tree of nodes. All methods must run on the event loop of the tree.

    During one connection, requests are executed in the order in which their coroutines started.
    Paths are absolute, without a slash at the end.
    """

    @property
    def address(self) -> str:
        """The address of the store, for messages."""

    @property
    def session_id(self) -> int:
        """The id of the current session, never 0. A new session has another id."""

    @property
    def session_timeout_ms(self) -> int:
        """The time for which an ephemeral node stays after its session was last active."""

    @property
    def session_secret(self) -> bytes:
        """The secret of the current session. With this secret, `end_session` ends the session."""

    @property
    def clock(self) -> EstimatedClock:
        """The estimated clock of the store. Every successful write of this session updates it."""

    async def get(self, path: str) -> Versioned[bytes]:
        """Return the data and the version of a node.

        Raises:
            NodeMissingError: The node does not exist in this replica of the store.
        """

    async def stat(self, path: str) -> NodeStat | None:
        """Return the metadata of a node; None if the node does not exist."""

    async def children(self, path: str) -> list[str]:
        """Return the names (not the paths) of the direct children of a node, sorted.

        Raises:
            NodeMissingError: The node does not exist.
        """

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        kind: NodeKind = NodeKind.PERSISTENT,
        make_parents: bool = False,
    ) -> Created:
        """Create a node.

        If `make_parents` is true, first create missing ancestors, empty and persistent.

        Raises:
            NodeExistsError: A node with this path already exists.
            NodeMissingError: The parent is missing.
            MetadataUnknownError: It is unknown whether the node was created. If a sequential node
                was created, its number is also unknown.
        """

    async def set(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace the data of a node if the node still has `version`, or if `version` is None.

        A version consists of a number and an incarnation, which identifies one creation of the
        path. Both are compared. ZooKeeper itself compares only the number, so the tree in ZooKeeper
        first reads the incarnation. Because this read may be stale, a write is safe only if no path
        is created again while a client has a version of the path.

        Raises:
            MetadataVersionError: The node has another version.
            NodeMissingError: The node was deleted.
        """

    async def delete(self, path: str, version: Version | None = None) -> None:
        """Delete a node if it has `version`, or if `version` is None.

        Versions are compared as in `set`.

        Raises:
            MetadataVersionError: The node has another version.
            NodeMissingError: The node is already deleted.
            NodeNotEmptyError: The node has children.
        """

    async def transact(self, operations: Sequence[NodeOperation]) -> list[Created | Version | None]:
        """Run all operations, or change nothing if one fails.

        Only the numbers of versions are compared.

        Returns:
            For each operation, its result: `Created` after a creation, the new version after a
                change of the data, otherwise None.

        Raises:
            TransactionFailedError: An operation failed; nothing was changed.
        """

    async def sync(self, path: str = "/") -> None:
        """Make later reads return the present or a newer state, even if the session is replaced."""

    def watch(self, path: str, on_change: OnChange) -> CancelWatch:
        """Watch a node. `on_change` is called after the node or the session has changed.

        The node changes if it is created or deleted, or if its data is replaced. One call may
        report several changes, and a call may happen without a change.

        No change is lost. A read after this method has returned, or in `on_change`, may miss a
        change. In this case, `on_change` is called later because of this change.
        """

    def watch_children(self, path: str, on_change: OnChange) -> CancelWatch:
        """Watch the names of a node's children, with the same guarantees as `watch`."""

    async def until_gone(self, path: str) -> bool:
        """Wait until the node may have changed. The call sends one request, and leaves no watch.

        The wait has no limit, so callers must set a deadline.

        Returns:
            True if the node does not exist. False if the node was changed or the connection was
            lost.

        Raises:
            MetadataUnavailableError: The request could not be sent.
        """

    def watch_session(self, on_replaced: OnChange) -> CancelWatch:
        """Watch the session.

        `on_replaced` is called after a new session has replaced the lost session. The ephemeral
        nodes of the lost session are then deleted.
        """

    async def end_session(self, secret: bytes) -> None:
        """End another session, if it still exists. Its ephemeral nodes are deleted immediately.

        Call this method only for sessions of dead processes. A live process would get a new
        session.

        Raises:
            MetadataUnavailableError: The store did not answer. The session ends at its timeout.
        """

    async def close(self) -> None:
        """End the session, so that its ephemeral nodes are deleted and pending requests fail.

        The method may be called twice.
        """


async def get_or_none(tree: ZnodeTree, path: str) -> Versioned[bytes] | None:
    """Return the data and the version of a node; None if the node does not exist."""
    with contextlib.suppress(NodeMissingError):
        return await tree.get(path)
    return None


async def children_of(tree: ZnodeTree, path: str) -> list[str]:
    """Return the names of a node's children, sorted; an empty list if the node does not exist."""
    with contextlib.suppress(NodeMissingError):
        return await tree.children(path)
    return []


async def synced_stat(tree: ZnodeTree, path: str) -> NodeStat | None:
    """Sync, and return the metadata of a node; None if the node does not exist."""
    await tree.sync(path)
    return await tree.stat(path)


def parent_of(path: str) -> str:
    """Return the path of the parent node; "/" for a node at the top."""
    return path.rpartition("/")[0] or "/"


async def make_persistent(tree: ZnodeTree, path: str) -> None:
    """Create a persistent, empty node and its ancestors, unless they exist.

    After a lost answer, the creation of the node is repeated, because a repetition is harmless.
    """
    node = ""
    for segment in path.split("/")[1:]:
        node += f"/{segment}"
        await make_node(tree, node)


async def make_node(tree: ZnodeTree, path: str, data: bytes = b"") -> None:
    """Create a persistent node below an existing node, unless it exists with any data.

    After a lost answer, the creation is repeated, because a repetition is harmless.
    """
    attempts = WriteAttempts(MAKE_ATTEMPTS_MAX)
    for attempt in attempts:
        with attempt:
            if await tree.stat(path) is None:
                with contextlib.suppress(NodeExistsError):
                    await tree.create(path, data)
            return
    raise attempts.error()


class WriteAttempts:
    """The attempts of one write, which is repeated after a lost answer.

    Each attempt is one run of a `with` block in a loop. If an answer is lost, the block ends, and
    the loop continues with the next attempt.
    """

    def __init__(self, attempts_max: int, *, settles: bool = True) -> None:
        """Create the attempts, at most `attempts_max`.

        If `settles` is false, the error of the first lost answer is raised to the caller.
        """
        # the error of the newest lost answer; a later attempt raises it if the store is unavailable
        self.lost: MetadataUnknownError | None = None
        self._attempts_max = attempts_max
        self._settles = settles

    def __iter__(self) -> Iterator[contextlib.AbstractContextManager[None]]:
        for _ in range(self._attempts_max):
            yield self._attempt()

    def error(self) -> MetadataUnknownError:
        """Return the error of the write after all attempts have lost their answers."""
        assert self.lost is not None, "every attempt that returns nothing has lost its answer"
        return self.lost

    @contextlib.contextmanager
    def _attempt(self) -> Iterator[None]:
        try:
            yield
        except MetadataUnavailableError as error:
            raise self.lost or error from None
        except MetadataUnknownError as error:
            if not self._settles:
                raise
            self.lost = error


def checked_path(path: str) -> str:
    """Return `path`, or raise LocalProtocolError if it is not an absolute path of a node."""
    first, *segments = path.split("/")
    if path != "/" and (first or not segments or not all(segments) or {".", ".."} & {*segments}):
        raise LocalProtocolError(f"{path!r} is not an absolute path of a node", path=path)
    return path


def checked_size(path: str, size_bytes: int) -> None:
    """Raise an error if data of this size cannot be stored."""
    if size_bytes > NODE_SIZE_BYTES_MAX:
        raise LocalProtocolError(
            f"{size_bytes:,} bytes for {path} are more than the {NODE_SIZE_BYTES_MAX:,} that one "
            "request to the metadata store may carry",
            path=path,
            size_bytes=size_bytes,
        )


def operations_size_bytes(operations: Sequence[NodeOperation]) -> int:
    """Return the number of bytes of the data and paths of a transaction."""
    return sum(len(o.path) + len(getattr(o, "data", b"")) for o in operations)
