"""A tree of small versioned nodes, as ZooKeeper offers it: what all metadata stores are written on.

Two trees implement `ZnodeTree`: `zookeeper.session.ZookeeperSession`, `testing.memory.MemoryTree`;
`tests/contract/test_metadata_tree.py` holds both to this page.

Every write ends in one of four ways, on every tree:

- it returns: the change is durable on a majority of the ensemble;
- a `MetadataError` about the node (`NodeMissingError`, `NodeExistsError`, `NodeNotEmptyError`,
  `MetadataVersionError`, `TransactionFailedError`): definite, nothing was changed;
- `MetadataUnavailableError`: definite, nothing was sent;
- `MetadataUnknownError`: it was sent, and it may have happened or may still happen.

Reads may be stale until `sync`. Those of one tree never go back, also when its session is replaced:
each server is told the newest transaction that was seen, and one that is behind refuses. A
read whose reply is lost is repeated until the tree's own deadline, so it ends with a value or with
`MetadataUnavailableError`. Nothing waits for ever.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ledgerlog_spark.errors import (
    LocalProtocolError,
    MetadataError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.metadata.ports import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledgerlog_spark.metadata.ports import CancelWatch, OnChange
    from ledgerlog_spark.metadata.store_clock import Clock
    from ledgerlog_spark.model import Version, Versioned

NODE_SIZE_BYTES_MAX = 1_000_000
"""Data of one node, and of one transaction in all: ZooKeeper's own limit is 1 MiB a packet."""


class NodeMissingError(MetadataError):
    """No node at the path, or no parent for a new one; has `path`."""


class NodeExistsError(MetadataError):
    """The path is taken; has `path`."""


class NodeNotEmptyError(MetadataError):
    """The node has children and cannot be deleted; has `path`."""


class TransactionFailedError(MetadataError):
    """One operation failed, so none was carried out; has `index` and `cause` of the first failed.

    `cause` is the error that the operation would have raised alone.
    """


class NodeKind(Enum):
    """How long a node lives and who names it.

    A sequential node's path is continued with ten decimal digits, from a counter of its parent.
    """

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"
    PERSISTENT_SEQUENTIAL = "persistent_sequential"
    EPHEMERAL_SEQUENTIAL = "ephemeral_sequential"

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node goes when the session that made it ends."""
        return self in (NodeKind.EPHEMERAL, NodeKind.EPHEMERAL_SEQUENTIAL)

    @property
    def is_sequential(self) -> bool:
        """Whether the tree completes the name."""
        return self in (NodeKind.PERSISTENT_SEQUENTIAL, NodeKind.EPHEMERAL_SEQUENTIAL)


@dataclass(frozen=True, slots=True)
class NodeStat:
    """What is known of a node beside its data.

    Attributes:
        owner: Session id that an ephemeral node goes with, 0 for a persistent one.
        size_bytes: Of the data.
        children_count: Direct children.
        created_ms: By the store's own clock, ms since the epoch.
        changed_ms: The last write of the data, same clock.
    """

    version: Version
    owner: int
    size_bytes: int
    children_count: int
    created_ms: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Created:
    """The path of a new node (completed, when sequential) and its first version."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Within a transaction: fail unless the node is at `version.number`."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Within a transaction: make a node; its parent exists or is made earlier in the same one."""

    path: str
    data: bytes = b""
    kind: NodeKind = NodeKind.PERSISTENT


@dataclass(frozen=True, slots=True)
class SetNode:
    """Within a transaction: replace the data; `version` None means whatever it is at."""

    path: str
    data: bytes
    version: Version | None


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Within a transaction: delete a node; `version` None means whatever it is at."""

    path: str
    version: Version | None = None


NodeOperation = CheckNode | CreateNode | SetNode | DeleteNode


class ZnodeTree(Session, Protocol):
    """One session with a tree of nodes. All methods are called on the event loop it belongs to.

    While the connection stands, requests are carried out in the order in which their coroutines
    first ran. Paths are absolute, without a slash at the end.
    """

    @property
    def address(self) -> str:
        """Where the store is, for messages."""

    @property
    def session_id(self) -> int:
        """The present session; another number after a session was replaced. Never 0."""

    @property
    def session_timeout_ms(self) -> int:
        """How long an ephemeral node outlives the last sign of life of its session."""

    @property
    def session_secret(self) -> bytes:
        """What `end_session` takes: whoever has it can end the present session."""

    @property
    def clock(self) -> Clock:
        """The store's clock; every write of this session that succeeded tells it."""

    async def get(self, path: str) -> Versioned[bytes]:
        """Data and version.

        Raises:
            NodeMissingError: No such node, as far as this replica of the store knows.
        """

    async def stat(self, path: str) -> NodeStat | None:
        """Version and owner, None when there is no such node."""

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the direct children, sorted.

        Raises:
            NodeMissingError: No such node.
        """

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        kind: NodeKind = NodeKind.PERSISTENT,
        make_parents: bool = False,
    ) -> Created:
        """Make a node; with `make_parents` also its missing ancestors, empty and persistent.

        Raises:
            NodeExistsError: The path is taken.
            NodeMissingError: The parent is missing.
            MetadataUnknownError: It may have happened; for a sequential node under any name.
        """

    async def set(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace the data if the node is still at `version` (None: whatever it is at).

        The incarnation is compared too. ZooKeeper itself compares only the number, so there the
        incarnation is read first: that is proof enough only for paths that are never made twice
        while somebody holds a version of theirs.

        Raises:
            MetadataVersionError: It is not.
            NodeMissingError: It is gone.
        """

    async def delete(self, path: str, version: Version | None = None) -> None:
        """Delete the node, with the same condition as `set`.

        Raises:
            MetadataVersionError: It is at another version.
            NodeMissingError: It is gone already.
            NodeNotEmptyError: It has children.
        """

    async def transact(self, operations: Sequence[NodeOperation]) -> list[Created | Version | None]:
        """Carry out all or none. Versions are compared by number only.

        Returns:
            For each operation: `Created` of a create, the new version of a set, else None.

        Raises:
            TransactionFailedError: One failed; nothing was changed.
        """

    async def sync(self, path: str = "/") -> None:
        """Make later reads at least as new as this moment, also in a session that replaces it."""

    def watch(self, path: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after the node is made, changed or deleted, or a session was replaced.

        Changes close together may be reported once, and a call may come without a change. A read
        begun after this method returned, or from within `on_change`, misses nothing that a later
        call would not report.
        """

    def watch_children(self, path: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after children came or went, with the same promises as `watch`."""

    async def until_gone(self, path: str) -> bool:
        """Wait, with one request, until the node is gone or may have changed; leaves no watch.

        It waits for as long as nothing happens, so callers give it a deadline.

        Returns:
            True when the node does not exist (any more). False when it was changed or the
            connection was lost: read again.

        Raises:
            MetadataUnavailableError: The request could not be sent.
        """

    def watch_session(self, on_replaced: OnChange) -> CancelWatch:
        """Call `on_replaced` after the session was lost (ephemeral nodes with it) and replaced."""

    async def end_session(self, secret: bytes) -> None:
        """End another session, whose ephemeral nodes go at once; fine when it has ended before.

        If its owner lives, that one's session is replaced: only end what is known to be dead.

        Raises:
            MetadataUnavailableError: The store did not answer; the session ends by its timeout.
        """

    async def close(self) -> None:
        """End the session: its ephemeral nodes go, what was pending fails. Idempotent."""


def parent_of(path: str) -> str:
    """The path one level up; "/" for a node at the top."""
    return path.rpartition("/")[0] or "/"


def ancestors_of(path: str) -> Iterator[str]:
    """The paths above `path`, topmost first, without "/"."""
    end = path.find("/", 1)
    while end > 0:
        yield path[:end]
        end = path.find("/", end + 1)


async def make_persistent(tree: ZnodeTree, path: str) -> None:
    """Make a persistent, empty node and its ancestors where they are missing."""
    for node in (*ancestors_of(path), path):
        if await tree.stat(node) is None:
            with contextlib.suppress(NodeExistsError):
                await tree.create(node)


class WriteAttempts:
    """WriteAttempts at one write, whose lost answers are settled by writing again.

    Each is a `with` block. One whose answer is lost ends there, and the next begins.

    Attributes:
        lost: The newest lost answer. While there is one, a store that is out of reach leaves the
            outcome unknown.
    """

    def __init__(self, attempts_max: int, *, settles: bool = True) -> None:
        """Attempts up to the limit; without `settles` a lost answer is raised at once."""
        self.lost: MetadataUnknownError | None = None
        self._attempts_max = attempts_max
        self._settles = settles

    def __iter__(self) -> Iterator[contextlib.AbstractContextManager[None]]:
        for _ in range(self._attempts_max):
            yield self._attempt()

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
    """`path`, when it is one.

    Raises:
        LocalProtocolError: It is relative, has empty or dot segments, or a slash at the end.
    """
    first, *segments = path.split("/")
    if path != "/" and (first or not segments or not all(segments) or {".", ".."} & {*segments}):
        raise LocalProtocolError(f"{path!r} is not an absolute path of a node", path=path)
    return path


def checked_size(path: str, size_bytes: int) -> None:
    """Returns when data of this size can be stored.

    Raises:
        LocalProtocolError: It is above NODE_SIZE_BYTES_MAX, which ZooKeeper answers by hanging up.
    """
    if size_bytes > NODE_SIZE_BYTES_MAX:
        raise LocalProtocolError(
            f"{size_bytes:,} bytes for {path} are more than the {NODE_SIZE_BYTES_MAX:,} that one "
            "request to the metadata store may carry",
            path=path,
            size_bytes=size_bytes,
        )


def operations_size_bytes(operations: Sequence[NodeOperation]) -> int:
    """Data and paths of a transaction."""
    return sum(len(o.path) + len(getattr(o, "data", b"")) for o in operations)
