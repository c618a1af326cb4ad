"""The candidates of leader logs: clients that open or lead a log (LOGS.md#J14)."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.logs.nodes import CommitQueue


@dataclass(frozen=True, slots=True)
class CandidateLook:
    """The result of `CandidateNodes.look`, with the id of the session that read the nodes.

    Attributes:
        session_timeout_ms: The time for which the nodes of a dead client's session stay.
    """

    is_there: bool
    session_id: int
    session_timeout_ms: int


class CandidateNodes:
    """The candidates of one log.

    Each candidate is a node of a live session, whose name contains a claim. The nodes only save
    work, and protect no data. A leader with a fenced ledger continues only if its change of the
    head succeeds.
    """

    def __init__(self, tree: znodes.ZnodeTree, directory: str) -> None:
        """Create the object for the candidates in `directory`.

        Each child of this node is a candidate.
        """
        self._tree = tree
        self._nodes = CommitQueue(tree, directory)

    async def join(self, claim: str) -> None:
        """Create a node with this claim. The node stays until `leave`, or until the session ends.

        After a lost reply, the names of the nodes show whether the node was created. Raises
        NodeMissingError if the log was deleted.
        """
        await self._nodes.join(claim)

    async def look(self, claim: str) -> CandidateLook:
        """Return whether a node with this claim exists.

        If there was no sync before, the read may miss a new node. If the session was replaced
        during the read, the result contains the id of the replaced session.
        """
        session_id = self._tree.session_id
        is_there = bool(await self._named(claim))
        return CandidateLook(is_there, session_id, self._tree.session_timeout_ms)

    async def leave(self, claim: str) -> None:
        """Delete all nodes with this claim, of any session."""
        for name in await self._named(claim):
            await self._nodes.leave(name)

    async def _named(self, claim: str) -> list[str]:
        return [name for name in await self._nodes.members() if name.rpartition("-")[0] == claim]
