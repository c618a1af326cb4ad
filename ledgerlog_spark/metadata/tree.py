"""A tree of small versioned nodes, as ZooKeeper has it: the base of all metadata stores.

Two trees implement `ZnodeTree`: `zookeeper.session.ZookeeperSession`, `testing.memory.MemoryTree`;
`tests/contract/test_metadata_tree.py` holds both to this page.

Every write ends in one of four ways, on every tree:

- it returns: the change is durable on a majority of the ensemble;
- a `MetadataError` about the node (`NodeMissingError`, `NodeExistsError`, `NodeNotEmptyError`,
  `MetadataVersionError`, `TransactionFailedError`): definite, nothing was changed;
- `MetadataUnavailableError`: definite, nothing was sent;
- `MetadataUnknownError`: it was sent, and it may have happened or may still happen.

Reads may be stale until `sync`. The reads of one tree never go back, also when its session is
replaced: each server gets the newest transaction id that was seen, and refuses the session if it
does not have that transaction. A read whose reply is lost is repeated until the tree's own
deadline, so it ends with a value or with `MetadataUnavailableError`. Nothing waits for ever.
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
    from ledgerlog_spark.metadata.store_clock import EstimatedClock
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
    """The lifetime of a node, and how it gets its name.

    A sequential node's path ends with ten decimal digits, from a counter of its parent.
    """

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"
    PERSISTENT_SEQUENTIAL = "persistent_sequential"
    EPHEMERAL_SEQUENTIAL = "ephemeral_sequential"

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node is deleted when the session that made it ends."""
        return self in (NodeKind.EPHEMERAL, NodeKind.EPHEMERAL_SEQUENTIAL)

    @property
    def is_sequential(self) -> bool:
        """Whether the tree completes the name."""
        return self in (NodeKind.PERSISTENT_SEQUENTIAL, NodeKind.EPHEMERAL_SEQUENTIAL)


@dataclass(frozen=True, slots=True)
class NodeStat:
    """The metadata of a node."""

    version: Version
    owner: int  # session id of an ephemeral node, 0 for a persistent one
    size_bytes: int
    children_count: int
    created_ms: int  # by the store's own clock, ms since the epoch
    changed_ms: int  # last write of the data, same clock


@dataclass(frozen=True, slots=True)
class Created:
    """The path of a new node (completed, when sequential) and its first version."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Within a transaction: fail unless the node has `version.number`."""

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
    """Within a transaction: replace the data; `version` None means any version."""

    path: str
    data: bytes
    version: Version | None


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Within a transaction: delete a node; `version` None means any version."""

    path: str
    version: Version | None = None


NodeOperation = CheckNode | CreateNode | SetNode | DeleteNode


class ZnodeTree(Session, Protocol):
    """One session with a tree of nodes. Call all methods on the event loop of the tree.

    As long as a connection lasts, requests are executed in the order in which their coroutines
    first ran. Paths are absolute, without a slash at the end.
    """

    @property
    def address(self) -> str:
        """The address of the store, for messages."""

    @property
    def session_id(self) -> int:
        """The present session; another number after a session was replaced. Never 0."""

    @property
    def session_timeout_ms(self) -> int:
        """How long an ephemeral node outlives the last sign of life of its session."""

    @property
    def session_secret(self) -> bytes:
        """The secret that `end_session` takes; its owner can end the present session."""

    @property
    def clock(self) -> EstimatedClock:
        """The store's clock; every successful write of this session updates it."""

    async def get(self, path: str) -> Versioned[bytes]:
        """Data and version.

        Raises:
            NodeMissingError: The node does not exist in this replica of the store.
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
            MetadataUnknownError: It may have happened; a sequential node may have any name.
        """

    async def set(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace the data if the node still has `version` (None: any version).

        The incarnation is compared too. ZooKeeper itself compares only the number, so there the
        incarnation is read first. That is enough only for paths that are never made twice while a
        client holds a version of them.

        Raises:
            MetadataVersionError: It has another version.
            NodeMissingError: It was deleted.
        """

    async def delete(self, path: str, version: Version | None = None) -> None:
        """Delete the node, with the same condition as `set`.

        Raises:
            MetadataVersionError: It has another version.
            NodeMissingError: It is deleted already.
            NodeNotEmptyError: It has children.
        """

    async def transact(self, operations: Sequence[NodeOperation]) -> list[Created | Version | None]:
        """Run all operations or none. Versions are compared by number only.

        Returns:
            For each operation: `Created` of a create, the new version of a set, else None.

        Raises:
            TransactionFailedError: One failed; nothing was changed.
        """

    async def sync(self, path: str = "/") -> None:
        """Make later reads at least as new as this moment, also in a session that replaces it."""

    def watch(self, path: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after the node is made, changed or deleted, or a session was replaced.

        Changes close together may be reported once, and a call may happen without a change. A read
        begun after this method returned, or from within `on_change`, misses nothing that a later
        call would not report.
        """

    def watch_children(self, path: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after children were made or deleted; promises as of `watch`."""

    async def until_gone(self, path: str) -> bool:
        """Wait, with one request, until the node may have changed; leaves no watch.

        It waits for as long as nothing happens, so callers give it a deadline.

        Returns:
            True when the node does not exist (any more). False when it was changed or the

        Raises:
            MetadataUnavailableError: The request could not be sent.
        """

    def watch_session(self, on_replaced: OnChange) -> CancelWatch:
        """Call `on_replaced` after the session was lost, with its ephemeral nodes, and replaced."""

    async def end_session(self, secret: bytes) -> None:
        """End another session and its ephemeral nodes immediately; does nothing when it has ended.

        If its owner lives, the owner gets a new session: only end sessions of dead processes.

        Raises:
            MetadataUnavailableError: The store did not answer; the session ends by its timeout.
        """

    async def close(self) -> None:
        """End the session and its ephemeral nodes; pending requests fail. Idempotent."""


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
    """Maximum number of attempts of one write; after a lost answer the write is repeated.

    Each attempt is a `with` block. It ends when its answer is lost, and the next one begins.
    """

    def __init__(self, attempts_max: int, *, settles: bool = True) -> None:
        """Attempts up to the limit; without `settles` a lost answer is raised immediately."""
        # the newest one; then an unavailable store leaves the outcome unknown
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
    """`path`, when it is valid."""
    first, *segments = path.split("/")
    if path != "/" and (first or not segments or not all(segments) or {".", ".."} & {*segments}):
        raise LocalProtocolError(f"{path!r} is not an absolute path of a node", path=path)
    return path


def checked_size(path: str, size_bytes: int) -> None:
    """Raise unless data of this size can be stored."""
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
