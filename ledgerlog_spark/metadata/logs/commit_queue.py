"""The turns of commits with conflicts: a sequential ephemeral node for each waiting writer.

Names are `<token>-<ten digits>`. The tree counts the digits; the lowest number is first. A member's
node is deleted with its session, so a dead process keeps its place for a session timeout at most.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import MetadataUnknownError
from ledgerlog_spark.metadata.tree import (
    NodeExistsError,
    NodeKind,
    NodeMissingError,
    ZnodeTree,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommitQueue:
    """Writers of one log that wait for their turn. It saves requests and protects nothing."""

    def __init__(self, tree: ZnodeTree, directory: str) -> None:
        """The queue whose members are the children of `directory`."""
        self._tree = tree
        self._directory = directory

    async def join(self, token: str) -> str:
        """Join after all present members; returns the member's name.

        After a lost reply, the token in the name shows the outcome.

        The place ends with the session, or with `leave`.
        """
        path = f"{self._directory}/{token}-"
        try:
            try:
                created = await self._tree.create(path, kind=NodeKind.EPHEMERAL_SEQUENTIAL)
            except NodeMissingError:
                # A log of an earlier release. Without ancestors: a removed log must not be
                # re-created.
                with contextlib.suppress(NodeExistsError):
                    await self._tree.create(self._directory)
                created = await self._tree.create(path, kind=NodeKind.EPHEMERAL_SEQUENTIAL)
        except MetadataUnknownError:
            await self._tree.sync(self._directory)
            for name in await self.members():
                if name.startswith(f"{token}-"):
                    return name
            raise
        return created.path.rpartition("/")[2]

    async def members(self) -> Sequence[str]:
        """Names of all members, in the order of their turns."""
        with contextlib.suppress(NodeMissingError):
            names = await self._tree.children(self._directory)
            return sorted(names, key=lambda name: name.rpartition("-")[2])
        return ()

    async def until_gone(self, name: str) -> bool:
        """Wait until that member has left (True) or may have left (False); give it a deadline."""
        return await self._tree.until_gone(f"{self._directory}/{name}")

    async def leave(self, name: str) -> None:
        """End the place of any member; does nothing when it has ended."""
        with contextlib.suppress(NodeMissingError):
            await self._tree.delete(f"{self._directory}/{name}")
