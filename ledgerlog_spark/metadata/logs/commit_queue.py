"""The queue of writers with conflicts, with a sequential ephemeral node for each waiting writer.

Names are `<token>-<ten digits>`. The digits are a counter of the tree, and the lowest number is
first. The node of a member is deleted when its session ends. So a dead process keeps its place for
at most a session timeout.
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
    """The queue of waiting writers of one log. The queue saves requests and protects no data."""

    def __init__(self, tree: ZnodeTree, directory: str) -> None:
        """The queue in `directory`; each child of this node is a member."""
        self._tree = tree
        self._directory = directory

    async def join(self, token: str) -> str:
        """Join the queue after all present members, and return the name of the new member.

        After a lost reply, the token in the name shows the outcome. The member leaves the queue
        when the session ends, or by `leave`.
        """
        path = f"{self._directory}/{token}-"
        try:
            try:
                created = await self._tree.create(path, kind=NodeKind.EPHEMERAL_SEQUENTIAL)
            except NodeMissingError:
                # The log is of an earlier release. Ancestors are not created, because a removed log
                # must not be re-created.
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
        """Names of all members of the queue, the first member first."""
        with contextlib.suppress(NodeMissingError):
            names = await self._tree.children(self._directory)
            return sorted(names, key=lambda name: name.rpartition("-")[2])
        return ()

    async def until_gone(self, name: str) -> bool:
        """Wait until a member has left (True) or may have left (False). Callers set a deadline."""
        return await self._tree.until_gone(f"{self._directory}/{name}")

    async def leave(self, name: str) -> None:
        """Remove any member from the queue; does nothing when the member has left."""
        with contextlib.suppress(NodeMissingError):
            await self._tree.delete(f"{self._directory}/{name}")
