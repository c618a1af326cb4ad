"""The identities of bookies, which `LedgerStore.replace` checks in its transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ledgerlog_spark.errors import MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.replication.ports import BookieIdentity
from ledgerlog_spark.wire.known_bookie import KnownBookie


class NodeIdentities:
    """Implements `BookieIdentities` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._known = KnownBookies(tree, root)
        self._cookies = f"{root}/cookies"

    async def load(self, bookie_id: str) -> BookieIdentity | None:
        """Implements `BookieIdentities.load`."""
        found = await self._read(bookie_id)
        return None if found is None else found[0]

    async def checks(self, identity: BookieIdentity) -> Sequence[znodes.NodeOperation]:
        """Implements `BookieIdentities.checks`.

        The store compares only the numbers of versions. A cookie that is deleted and created again
        after this call may have the same number as before. But in this case the bookie's record has
        changed too, because a bookie of ledgerlog writes its cookie and its record in one
        transaction. A bookie of Apache has no record. If its cookie is created again between the
        reads of this call and the transaction, the transaction does not fail.
        """
        found = await self._read(identity.bookie_id)
        if found is None or found[0] != identity:
            raise MetadataVersionError(
                f"bookie {identity.bookie_id} has changed: its cookie was re-written, or a "
                "directory is another one or may have lost entries",
                bookie_id=identity.bookie_id,
            )
        return found[1]

    async def _read(
        self, bookie_id: str
    ) -> tuple[BookieIdentity, Sequence[znodes.NodeOperation]] | None:
        cookie_path = f"{self._cookies}/{checked_bookie_id(bookie_id)}"
        cookie = await znodes.synced_stat(self._tree, cookie_path)
        known = await self._known.read(bookie_id)
        if cookie is None:
            return None
        checks: list[znodes.NodeOperation] = [znodes.CheckNode(cookie_path, cookie.version)]
        directories: frozenset[tuple[str, int]] | None = None
        if known is not None:
            checks.append(znodes.CheckNode(self._known.path(bookie_id), known.version))
            directories = _directories(known.value)
        return BookieIdentity(bookie_id, cookie.version, directories), checks


def _directories(known: KnownBookie) -> frozenset[tuple[str, int]]:
    return frozenset((each.directory_id, each.doubt_epoch) for each in known.directories)
