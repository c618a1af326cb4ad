"""The progress of the replication workers: ephemeral nodes at `<root>-repair/workers/<id>`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.held_nodes import HeldNodes
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.wire.repair_nodes import decode_note, encode_note
from ledgerlog_spark.wire.repair_notes import WorkerReport


class NodeReports:
    """Implements `WorkerReports` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-repair/workers"
        self._held = HeldNodes(tree, self._directory)

    async def publish(self, worker_id: str, report: WorkerReport) -> None:
        """Implements `WorkerReports.publish`.

        If an earlier session of the same worker has not ended yet, the node of this session still
        exists. Until this session ends, the new report is not stored.
        """
        path, data = self._path(worker_id), encode_note(report)
        with contextlib.suppress(znodes.NodeMissingError):
            stat = await self._tree.stat(path)
            if stat is not None and stat.owner == self._tree.session_id:
                await self._tree.set(path, data, None)
                return
        await self._held.acquire(path, data)

    async def withdraw(self, worker_id: str) -> None:
        """Implements `WorkerReports.withdraw`."""
        await self._held.release(self._path(worker_id))

    async def all(self) -> Mapping[str, WorkerReport]:
        """Implements `WorkerReports.all`."""
        await self._tree.sync(self._directory)
        found: dict[str, WorkerReport] = {}
        for name in await znodes.children_of(self._tree, self._directory):
            node = await znodes.get_or_none(self._tree, f"{self._directory}/{name}")
            if node is not None:
                with contextlib.suppress(WireFormatError):
                    found[name] = decode_note(WorkerReport, node.value)
        return found

    def _path(self, worker_id: str) -> str:
        return f"{self._directory}/{checked_bookie_id(worker_id)}"
