"""Ephemeral nodes, each of which at most one live session holds.

A session holds such a node if it has created the node and the node still exists. A held node only
saves work, because two processes do not do the same work at the same time. It does not protect
data. The versions of nodes protect data.
"""

from __future__ import annotations

from ledgerlog_spark.errors import MetadataUnknownError, MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes

ATTEMPTS_MAX = 4


class HeldNodes:
    """Creates and deletes held nodes below one directory."""

    def __init__(self, tree: znodes.ZnodeTree, directory: str) -> None:
        self._tree = tree
        self._directory = directory

    async def acquire(self, path: str, data: bytes) -> bool:
        """Create the node if it does not exist. Return whether this session now holds the node.

        After a lost reply, the owner of the node shows whether the node was created.
        """
        attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
        for attempt in attempts:
            with attempt:
                try:
                    await self._tree.create(path, data, kind=znodes.NodeKind.EPHEMERAL)
                except znodes.NodeMissingError:
                    await znodes.make_persistent(self._tree, self._directory)
                except znodes.NodeExistsError:
                    stat = await znodes.synced_stat(self._tree, path)
                    if stat is not None:
                        return stat.owner == self._tree.session_id
                else:
                    return True
        if attempts.lost is not None:
            raise attempts.lost
        return False

    async def release(self, path: str) -> None:
        """Delete the node. Do nothing if this session does not hold it."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            stat = await znodes.synced_stat(self._tree, path)
            if stat is None or stat.owner != self._tree.session_id:
                return
            try:
                await self._tree.delete(path, stat.version)
            except (znodes.NodeMissingError, MetadataVersionError):
                return
            except MetadataUnknownError:
                if attempt == ATTEMPTS_MAX:
                    raise
            else:
                return
