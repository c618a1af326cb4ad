"""Nodes that at most one live session holds. A held node is ephemeral.

Holding a node only saves work: it keeps two processes from doing the same work at the same time. It
does not protect data; the versions of the nodes protect data.
"""

from __future__ import annotations

from ledgerlog_spark.errors import MetadataUnknownError, MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes

ATTEMPTS_MAX = 4


class HeldNodes:
    """Takes nodes below one directory, and gives them back."""

    def __init__(self, tree: znodes.ZnodeTree, directory: str) -> None:
        self._tree = tree
        self._directory = directory

    async def acquire(self, path: str, data: bytes) -> bool:
        """Create the node if it does not exist. Return True if this session now holds it.

        After a lost reply, the owner of the node shows the outcome.
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
