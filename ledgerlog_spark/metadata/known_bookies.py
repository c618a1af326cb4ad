"""The store of the bookies' records, which contain the counters of the bookies' directories.

The nodes are at `<root>-bookies/<bookie id>`, outside the ledgers root, so Apache's tools never see
them.
"""

from __future__ import annotations

from ledgerlog_spark.errors import MetadataFormatError, MetadataVersionError, WireFormatError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.settled_writes import write_node
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.known_bookie import KnownBookie


class KnownBookies:
    """The records of the bookies of the cluster at one root."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-bookies"
        self._cookies = f"{root}/cookies"

    async def read(self, bookie_id: str) -> Versioned[KnownBookie] | None:
        """Sync, and return the record of a bookie; None if the bookie has no record.

        Raises:
            MetadataFormatError: A later release wrote the record, or the record is damaged.
        """
        path = self.path(bookie_id)
        await self._tree.sync(path)
        found = await znodes.get_or_none(self._tree, path)
        if found is None:
            return None
        try:
            return Versioned(KnownBookie.decode(found.value), found.version)
        except WireFormatError as error:
            raise MetadataFormatError(
                f"the node {path} cannot be read: {error.message}", path=path
            ) from error

    async def write(self, bookie_id: str, known: KnownBookie, version: Version | None) -> Version:
        """Create or replace the record of a bookie, and return the new version.

        If `version` is None, the record must not exist. If the answer is lost and the store has the
        same record, the record counts as written.

        Raises:
            MetadataVersionError: Another process wrote the record first.
        """
        path = self.path(bookie_id)
        written = await write_node(self._tree, path, known.encode(), version)
        if written is None:
            raise _changed(path, bookie_id)
        return written

    async def transaction(self, bookie_id: str) -> int:
        """Return the id of the transaction that last wrote the record of a bookie.

        After a `write` of the caller, the result is the transaction of this write, or of a later
        write.

        Raises:
            MetadataVersionError: The record was deleted.
        """
        path = self.path(bookie_id)
        stat = await self._tree.stat(path)
        if stat is None:
            raise _changed(path, bookie_id)
        return stat.changed_by

    async def write_with_cookie(
        self,
        bookie_id: str,
        known: KnownBookie,
        version: Version | None,
        cookie: bytes | None,
        cookie_version: Version | None,
    ) -> None:
        """Write a record and a cookie in one transaction. If `cookie` is None, delete the cookie.

        Args:
            bookie_id: Id of the bookie.
            known: The new record of the bookie.
            version: The expected version of the bookie's record; None if it has no record.
            cookie: The new cookie of the bookie.
            cookie_version: The expected version of the bookie's cookie; None if it has no cookie.

        Raises:
            MetadataVersionError: Another process wrote the record or the cookie first. Nothing was
                changed.
        """
        path, cookie_path = self.path(bookie_id), f"{self._cookies}/{bookie_id}"
        await znodes.make_persistent(self._tree, self._directory)
        data = known.encode()
        operations: list[znodes.NodeOperation] = [
            znodes.CreateNode(path, data)
            if version is None
            else znodes.SetNode(path, data, version)
        ]
        if cookie is not None and cookie_version is None:
            operations.append(znodes.CreateNode(cookie_path, cookie))
        elif cookie is not None:
            operations.append(znodes.SetNode(cookie_path, cookie, cookie_version))
        elif cookie_version is not None:
            operations.append(znodes.DeleteNode(cookie_path, cookie_version))
        try:
            await self._tree.transact(operations)
        except znodes.TransactionFailedError as failure:
            raise _changed(path, bookie_id) from failure

    def path(self, bookie_id: str) -> str:
        """Return the path of a bookie's record, for transactions that also change other nodes."""
        return f"{self._directory}/{checked_bookie_id(bookie_id)}"


def _changed(path: str, bookie_id: str) -> MetadataVersionError:
    return MetadataVersionError(
        f"another process has just changed the record of bookie {bookie_id} ({path}) or its "
        "cookie; nothing was changed, so try again",
        bookie_id=bookie_id,
        path=path,
        retriable=True,
    )
