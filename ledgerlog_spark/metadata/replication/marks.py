"""Apache's queue of ledgers with lost bookies, below `underreplication/ledgers`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ordered import in_order
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.replication.guarded import delete_under_lock, remove_empty
from ledgerlog_spark.metadata.replication.locks import ReplicationLocks
from ledgerlog_spark.metadata.replication.ports import HeldLock, Mark
from ledgerlog_spark.metadata.settled_writes import update_node
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import Version
from ledgerlog_spark.wire.underreplication import (
    LAYOUT,
    LAYOUT_DATA,
    LEVEL,
    LEVELS_COUNT,
    LOCKS,
    MARKS,
    REPLICAS_MAX,
    MarkData,
    check_layout,
    ledger_of_levels,
    mark_directory,
    mark_path,
)

WALK_DEPTH = 64
"""Maximum number of directories that a call of `walk` requests at the same time."""


class ReplicationMarks:
    """Implements `MarkQueue` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str, locks: ReplicationLocks) -> None:
        self._tree = tree
        self._root = root
        self._locks = locks
        self._is_ready = False

    async def mark(self, ledger_id: int, replicas: Collection[str]) -> Version:
        """Implements `MarkQueue.mark`. The time in the mark is only information for people."""
        if not 1 <= len(replicas) <= REPLICAS_MAX:
            raise LocalProtocolError(
                f"a mark names 1 to {REPLICAS_MAX} bookies, not {len(replicas)}",
                ledger_id=ledger_id,
            )
        await self._make_ready()
        path = self._root + mark_path(ledger_id)

        def changed(data: bytes | None) -> bytes:
            before = MarkData(()) if data is None else decoded(path, MarkData.decode, data)
            return before.merged(replicas, self._tree.clock.estimate_ms()).encode()

        return await update_node(self._tree, path, changed)

    async def load(self, ledger_id: int) -> Mark | None:
        """Implements `MarkQueue.load`."""
        path = self._root + mark_path(ledger_id)
        await self._tree.sync(path)
        found = await znodes.get_or_none(self._tree, path)
        if found is None:
            return None
        mark = decoded(path, MarkData.decode, found.value)
        return Mark(ledger_id, mark.replicas, mark.created_ms, found.version)

    async def delete(
        self,
        ledger_id: int,
        version: Version,
        lock: HeldLock,
        checks: Sequence[znodes.NodeOperation] = (),
    ) -> bool:
        """Implements `MarkQueue.delete`."""
        if lock.ledger_id != ledger_id:
            raise LocalProtocolError(
                f"the lock of ledger {lock.ledger_id} does not allow to delete the mark of ledger "
                f"{ledger_id}",
                ledger_id=ledger_id,
            )
        path = self._root + mark_path(ledger_id)
        if not await delete_under_lock(self._tree, self._locks, path, version, lock, checks):
            return False
        directory = self._root + mark_directory(ledger_id)
        await remove_empty(self._tree, directory, self._root + MARKS)
        return True

    def walk(self, after: int = -1) -> AsyncIterator[int]:
        """Implements `MarkQueue.walk`. Nodes that are not marks are omitted."""
        return in_order(self._directories((), after), self._marked, WALK_DEPTH)

    def watch(self, on_change: OnChange) -> CancelWatch:
        """Implements `MarkQueue.watch` with watches of the directories of small ledger ids.

        The watch of the highest directory shows the first mark of an empty queue. The watch of the
        lowest directory shows each new mark of a ledger id below 2**32.
        """
        directories = [self._root + MARKS + "/0000" * depth for depth in range(LEVELS_COUNT)]
        cancels = [self._tree.watch_children(each, on_change) for each in directories]

        def cancel() -> None:
            for each in cancels:
                each()

        return cancel

    async def _directories(self, names: tuple[str, ...], after: int) -> AsyncGenerator[int, None]:
        """Yield the ledger ids above `after` with a directory below `names`, ascending."""
        path = "/".join((self._root + MARKS, *names))
        children = [n for n in await znodes.children_of(self._tree, path) if LEVEL.fullmatch(n)]
        if len(names) + 1 == LEVELS_COUNT:
            for name in children:
                ledger_id = ledger_of_levels((*names, name))
                if after < ledger_id < 1 << 63:
                    yield ledger_id
            return
        depth = len(names)
        for name in children:
            first = ledger_of_levels((*names, name, *["0000"] * (LEVELS_COUNT - 1 - depth)))
            if after < 0 or first >> 16 * (3 - depth) >= after >> 16 * (3 - depth):
                async for ledger_id in self._directories((*names, name), after):
                    yield ledger_id

    async def _marked(self, ledger_id: int) -> int | None:
        """Return the ledger id if its directory has a mark; None if it has no mark.

        The directory may remain after its mark was deleted.
        """
        names = await znodes.children_of(self._tree, self._root + mark_directory(ledger_id))
        name = mark_path(ledger_id).rpartition("/")[2]
        return ledger_id if name in names else None

    async def _make_ready(self) -> None:
        """Create the nodes that Apache's daemons need. Only the first call sends requests."""
        if self._is_ready:
            return
        path = self._root + LAYOUT
        await znodes.make_persistent(self._tree, znodes.parent_of(path))
        await znodes.make_node(self._tree, path, LAYOUT_DATA)
        decoded(path, check_layout, (await self._tree.get(path)).value)
        for directory in (MARKS, LOCKS):
            await znodes.make_persistent(self._tree, self._root + directory)
        self._is_ready = True
