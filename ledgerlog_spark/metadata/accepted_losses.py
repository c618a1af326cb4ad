"""The store of the losses that operators accepted.

The losses of one bookie are at `<root>-losses/<bookie id>/<ledger id>`. The losses of the whole
cluster are at `<root>-losses/@ledgers/<ledger id>`, because no bookie id contains an @. The nodes
are outside the ledgers root, so Apache's tools never see them.
"""

from __future__ import annotations

from ledgerlog_spark.errors import (
    LocalProtocolError,
    MetadataFormatError,
    WireFormatError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.settled_writes import put_node, update_node
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss
from ledgerlog_spark.wire.ledger_loss import (
    ACCEPTANCES_MAX,
    SIZE_BYTES_MAX,
    AcceptedRanges,
    LedgerLoss,
)


class AcceptedLosses:
    """The accepted losses of the cluster at one root.

    Each bookie has at most one record for a ledger, of its newest accepted loss.
    """

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-losses"

    async def write(self, loss: AcceptedLoss) -> None:
        """Create or replace the record of a loss. If the answer is lost, the write is repeated."""
        path = self._path(loss.bookie_id, loss.ledger_id)
        await put_node(self._tree, path, loss.encode())

    async def of_bookie(self, bookie_id: str) -> list[AcceptedLoss]:
        """Return the accepted losses of one bookie, sorted by ledger id.

        Raises:
            MetadataFormatError: A later release wrote a record, or a record is damaged.
        """
        directory = f"{self._directory}/{checked_bookie_id(bookie_id)}"
        names = await znodes.children_of(self._tree, directory)
        found = [await self._read(f"{directory}/{name}") for name in names]
        return sorted(filter(None, found), key=lambda loss: loss.ledger_id)

    async def of_ledger(self, ledger_id: int) -> LedgerLoss | None:
        """Return the accepted losses of a ledger, read after a sync; None if there are none.

        Raises:
            MetadataFormatError: A later release wrote the record, or the record is damaged.
        """
        path = self._ledger_path(ledger_id)
        await self._tree.sync(path)
        node = await znodes.get_or_none(self._tree, path)
        return None if node is None else _decoded(path, node.value)

    async def ledger_ids(self) -> frozenset[int]:
        """Return the ids of ledgers with entries that the cluster gave up.

        The read may be stale.
        """
        names = await znodes.children_of(self._tree, f"{self._directory}/@ledgers")
        return frozenset(int(name) for name in names if name.isdecimal())

    async def accept(self, ledger_id: int, acceptance: AcceptedRanges) -> LedgerLoss:
        """Add an acceptance to the losses of a ledger. Return all losses of the ledger.

        A second call with the same acceptance changes nothing.

        Raises:
            LocalProtocolError: The ledger has `ACCEPTANCES_MAX` acceptances, or the record would be
                too large.
            MetadataUnknownError: It is unknown whether the acceptance was added.
            MetadataVersionError: Other operators changed the record during every attempt.
            MetadataFormatError: A later release wrote the record, or the record is damaged.
        """
        path = self._ledger_path(ledger_id)
        losses = LedgerLoss(ledger_id)

        def changed(data: bytes | None) -> bytes:
            nonlocal losses
            losses = LedgerLoss(ledger_id) if data is None else _decoded(path, data)
            if acceptance not in losses.acceptances:
                losses = _checked(losses.with_acceptance(acceptance))
            return losses.encode()

        await update_node(self._tree, path, changed)
        return losses

    async def _read(self, path: str) -> AcceptedLoss | None:
        node = await znodes.get_or_none(self._tree, path)
        try:
            return None if node is None else AcceptedLoss.decode(node.value)
        except WireFormatError as error:
            raise MetadataFormatError(
                f"the node {path} cannot be read: {error.message}", path=path
            ) from error

    def _ledger_path(self, ledger_id: int) -> str:
        return f"{self._directory}/@ledgers/{ledger_id}"

    def _path(self, bookie_id: str, ledger_id: int) -> str:
        return f"{self._directory}/{checked_bookie_id(bookie_id)}/{ledger_id}"


def _decoded(path: str, data: bytes) -> LedgerLoss:
    try:
        return LedgerLoss.decode(data)
    except WireFormatError as error:
        raise MetadataFormatError(
            f"the node {path} cannot be read: {error.message}", path=path
        ) from error


def _checked(losses: LedgerLoss) -> LedgerLoss:
    is_full = len(losses.acceptances) > ACCEPTANCES_MAX or len(losses.encode()) > SIZE_BYTES_MAX
    if is_full:
        raise LocalProtocolError(
            f"the record of the accepted losses of ledger {losses.ledger_id} is full; nothing was "
            "changed. Copy the readable entries to a new ledger, and delete this one",
            ledger_id=losses.ledger_id,
        )
    return losses
