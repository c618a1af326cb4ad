"""Deletes a mark or note under the lock of its ledger, and the empty directories above it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ledgerlog_spark.errors import MetadataError, MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.replication.locks import ReplicationLocks
from ledgerlog_spark.metadata.replication.ports import HeldLock
from ledgerlog_spark.metadata.settled_writes import ATTEMPTS_MAX, delete_node
from ledgerlog_spark.model import Version


async def delete_under_lock(
    tree: znodes.ZnodeTree,
    locks: ReplicationLocks,
    path: str,
    version: Version,
    lock: HeldLock,
    checks: Sequence[znodes.NodeOperation] = (),
) -> bool:
    """Delete a node if it has `version`, the session of `lock` lives, and `checks` succeed.

    Return whether the node is deleted. After a lost answer, the deletion is repeated. The
    repetition checks the same session, so a new session deletes nothing. If the repetition finds no
    node, the node counts as deleted by this call.
    """
    attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
    for attempt in attempts:
        with attempt:
            stat = await znodes.synced_stat(tree, path)
            if stat is None:
                return attempts.lost is not None
            if stat.version != version:
                return False
            try:
                deletion = znodes.DeleteNode(path, version)
                await tree.transact([*locks.checks(lock), *checks, deletion])
            except znodes.TransactionFailedError as failure:
                if not isinstance(failure.cause, znodes.NodeMissingError | MetadataVersionError):
                    raise failure.cause from failure
                return False
            return True
    raise attempts.error()


async def delete_unlocked(tree: znodes.ZnodeTree, path: str, version: Version) -> bool:
    """Delete a node if it has `version`. Return whether the node was deleted."""
    await tree.sync(path)
    return await delete_node(tree, path, version)


async def remove_empty(tree: znodes.ZnodeTree, directory: str, top: str) -> None:
    """Delete a directory and its ancestors below `top`, until a directory is not empty.

    The store refuses to delete a directory with children, so a node that another process has just
    created stays. If a process finds that its directory does not exist any more, it creates the
    directory again.
    """
    with contextlib.suppress(MetadataError):  # a directory that stays does no harm
        while directory != top:
            await tree.delete(directory, None)
            directory = znodes.parent_of(directory)
