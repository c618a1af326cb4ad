"""The locks of ledgers that re-replication takes, Apache's and that of ledgerlog."""

from __future__ import annotations

from ledgerlog_spark.metadata.held_nodes import HeldNodes
from ledgerlog_spark.metadata.tree import ZnodeTree
from ledgerlog_spark.wire.replication_lock import LOCKS, encode_lock, lock_path


class ReplicationLocks:
    """One lock for each ledger. At most one live session holds it.

    While a session holds the lock, no worker of Apache's auto-recovery begins with the ledger. A
    worker that has lost its session may still write: only versions protect the metadata.
    """

    def __init__(self, tree: ZnodeTree, root: str) -> None:
        self._root = root
        self._held = HeldNodes(tree, root + LOCKS)

    async def acquire(self, ledger_id: int, holder: str) -> bool:
        """Take the lock if it is free. Return True if this session now holds the lock."""
        return await self._held.acquire(self._root + lock_path(ledger_id), encode_lock(holder))

    async def release(self, ledger_id: int) -> None:
        """Give the lock back. Do nothing if this session does not hold the lock."""
        await self._held.release(self._root + lock_path(ledger_id))
