"""The notes of one kind, such as holes.

Each note is a node below `<root>-repair`, and a ledger has at most one note of each kind. Apache's
tools never read these nodes. A directory has the notes of up to 1,024 ledger ids, so that the list
of its children is never long.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Generic, Protocol, Self, TypeVar

from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.replication.guarded import (
    delete_under_lock,
    delete_unlocked,
    remove_empty,
)
from ledgerlog_spark.metadata.replication.locks import ReplicationLocks
from ledgerlog_spark.metadata.replication.ports import HeldLock
from ledgerlog_spark.metadata.settled_writes import update_node, write_node
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.repair_nodes import decode_note, encode_note

GROUP_BITS = 10
_GROUP = re.compile("[0-9a-f]{14}")
_LEDGER = re.compile("0|[1-9][0-9]{0,18}")


class Mergeable(Protocol):
    """A note that can be merged with a newer note."""

    def merged(self, other: Self) -> Self:
        """Return the union of both notes."""
        ...


Note = TypeVar("Note", bound=Mergeable)


class NodeNotes(Generic[Note]):
    """Implements `LedgerNotes` on a tree of nodes, for one class of notes."""

    def __init__(
        self,
        tree: znodes.ZnodeTree,
        root: str,
        locks: ReplicationLocks,
        name: str,
        kind: type[Note],
    ) -> None:
        self._tree = tree
        self._locks = locks
        self._directory = f"{root}-repair/{name}"
        self._kind = kind

    async def add(self, ledger_id: int, note: Note) -> Version:
        """Implements `LedgerNotes.add`."""
        path = self._path(ledger_id)

        def changed(data: bytes | None) -> bytes:
            return encode_note(note if data is None else self._decoded(path, data).merged(note))

        return await update_node(self._tree, path, changed)

    async def load(self, ledger_id: int) -> Versioned[Note] | None:
        """Implements `LedgerNotes.load`."""
        path = self._path(ledger_id)
        await self._tree.sync(path)
        found = await znodes.get_or_none(self._tree, path)
        if found is None:
            return None
        return Versioned(self._decoded(path, found.value), found.version)

    async def replace(self, ledger_id: int, note: Note, version: Version) -> Version | None:
        """Implements `LedgerNotes.replace`."""
        return await write_node(self._tree, self._path(ledger_id), encode_note(note), version)

    async def delete(
        self,
        ledger_id: int,
        version: Version,
        lock: HeldLock | None = None,
        checks: Sequence[znodes.NodeOperation] = (),
    ) -> bool:
        """Implements `LedgerNotes.delete`."""
        path = self._path(ledger_id)
        if lock is None:
            is_deleted = await delete_unlocked(self._tree, path, version)
        else:
            is_deleted = await delete_under_lock(
                self._tree, self._locks, path, version, lock, checks
            )
        if is_deleted:
            await remove_empty(self._tree, znodes.parent_of(path), self._directory)
        return is_deleted

    async def walk(self, after: int = -1) -> AsyncIterator[int]:
        """Implements `LedgerNotes.walk`. Nodes that are not notes are omitted."""
        for group in await znodes.children_of(self._tree, self._directory):
            if not _GROUP.fullmatch(group) or int(group, 16) < after >> GROUP_BITS:
                continue
            names = await znodes.children_of(self._tree, f"{self._directory}/{group}")
            for ledger_id in sorted(int(name) for name in names if _LEDGER.fullmatch(name)):
                if ledger_id > after:
                    yield ledger_id

    def watch(self, on_change: OnChange) -> CancelWatch:
        """Implements `LedgerNotes.watch`.

        The watch reports only the first note that is created in each directory.
        """
        return self._tree.watch_children(self._directory, on_change)

    def _decoded(self, path: str, data: bytes) -> Note:
        return decoded(path, lambda value: decode_note(self._kind, value), data)

    def _path(self, ledger_id: int) -> str:
        return f"{self._directory}/{ledger_id >> GROUP_BITS:014x}/{ledger_id}"
