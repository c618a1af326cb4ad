"""The store of the losses that operators accepted.

The nodes are at `<root>-losses/<bookie id>/<ledger id>`, outside the ledgers root, so Apache's
tools never see them.
"""

from __future__ import annotations

from ledgerlog_spark.errors import MetadataFormatError, WireFormatError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.settled_writes import put_node
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss


class AcceptedLosses:
    """The accepted losses of the cluster at one root: for each bookie and ledger, the newest."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-losses"

    async def write(self, loss: AcceptedLoss) -> None:
        """Create or replace the record of a loss. After a lost answer, the write is repeated."""
        path = self._path(loss.bookie_id, loss.ledger_id)
        await put_node(self._tree, path, loss.encode())

    async def of_bookie(self, bookie_id: str) -> list[AcceptedLoss]:
        """The losses of one bookie, by ledger id.

        Raises:
            MetadataFormatError: A later release wrote a record, or it is damaged.
        """
        directory = f"{self._directory}/{checked_bookie_id(bookie_id)}"
        names = await znodes.children_of(self._tree, directory)
        found = [await self._read(f"{directory}/{name}") for name in names]
        return sorted(filter(None, found), key=lambda loss: loss.ledger_id)

    async def _read(self, path: str) -> AcceptedLoss | None:
        node = await znodes.get_or_none(self._tree, path)
        try:
            return None if node is None else AcceptedLoss.decode(node.value)
        except WireFormatError as error:
            raise MetadataFormatError(
                f"the node {path} cannot be read: {error.message}", path=path
            ) from error

    def _path(self, bookie_id: str, ledger_id: int) -> str:
        return f"{self._directory}/{checked_bookie_id(bookie_id)}/{ledger_id}"
