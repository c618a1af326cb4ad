"""The vacations of bookies: nodes at `<root>-repair/bookies/<bookie id>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ledgerlog_spark.errors import MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.replication.guarded import delete_unlocked
from ledgerlog_spark.metadata.settled_writes import write_node
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.repair_nodes import decode_note, encode_note
from ledgerlog_spark.wire.repair_notes import Vacation


class NodeVacations:
    """Implements `VacationStore` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-repair/bookies"
        self._cookies = f"{root}/cookies"
        self._known = KnownBookies(tree, root)

    async def load(self, bookie_id: str) -> Versioned[Vacation] | None:
        """Implements `VacationStore.load`."""
        path = self._path(bookie_id)
        await self._tree.sync(path)
        return await self._read(path)

    async def write(self, bookie_id: str, vacation: Vacation, version: Version | None) -> Version:
        """Implements `VacationStore.write`."""
        path = self._path(bookie_id)
        written = await write_node(self._tree, path, encode_note(vacation), version)
        if written is None:
            raise _changed(path, bookie_id)
        return written

    async def write_and_delete_cookie(
        self, bookie_id: str, vacation: Vacation, version: Version, cookie: Version
    ) -> Version:
        """Implements `VacationStore.write_and_delete_cookie`.

        If the answer is lost, MetadataUnknownError is raised. A later read of the vacation shows
        whether the transaction happened.
        """
        path, cookie_path = self._path(bookie_id), f"{self._cookies}/{bookie_id}"
        for node, expected in ((path, version), (cookie_path, cookie)):
            stat = await znodes.synced_stat(self._tree, node)
            if stat is None or stat.version != expected:
                raise _changed(node, bookie_id)
        operations: list[znodes.NodeOperation] = [
            znodes.SetNode(path, encode_note(vacation), version),
            znodes.DeleteNode(cookie_path, cookie),
        ]
        known = await self._known.read(bookie_id)
        if known is not None:
            retired = replace(known.value, is_retired=True).encode()
            record = znodes.SetNode(self._known.path(bookie_id), retired, known.version)
            operations.append(record)
        try:
            outcomes = await self._tree.transact(operations)
        except znodes.TransactionFailedError as failure:
            if isinstance(failure.cause, znodes.NodeMissingError | MetadataVersionError):
                raise _changed(path, bookie_id) from failure
            raise failure.cause from failure
        written = outcomes[0]
        assert isinstance(written, Version)
        return written

    async def delete(self, bookie_id: str, version: Version) -> bool:
        """Implements `VacationStore.delete`."""
        return await delete_unlocked(self._tree, self._path(bookie_id), version)

    async def all(self) -> Mapping[str, Versioned[Vacation]]:
        """Implements `VacationStore.all`."""
        await self._tree.sync(self._directory)
        found: dict[str, Versioned[Vacation]] = {}
        for name in await znodes.children_of(self._tree, self._directory):
            vacation = await self._read(f"{self._directory}/{name}")
            if vacation is not None:
                found[name] = vacation
        return found

    def watch(self, bookie_id: str, on_change: OnChange) -> CancelWatch:
        """Implements `VacationStore.watch`."""
        return self._tree.watch(self._path(bookie_id), on_change)

    async def _read(self, path: str) -> Versioned[Vacation] | None:
        found = await znodes.get_or_none(self._tree, path)
        if found is None:
            return None
        vacation = decoded(path, lambda data: decode_note(Vacation, data), found.value)
        return Versioned(vacation, found.version)

    def _path(self, bookie_id: str) -> str:
        return f"{self._directory}/{checked_bookie_id(bookie_id)}"


def _changed(path: str, bookie_id: str) -> MetadataVersionError:
    return MetadataVersionError(
        f"another process has just changed {path} of bookie {bookie_id}; nothing was changed, so "
        "load it and decide again",
        bookie_id=bookie_id,
        path=path,
    )
