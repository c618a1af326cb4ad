"""The times of the auditor's last checks, in Apache's nodes, and the progress of its walks."""

from __future__ import annotations

import contextlib

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.replication.ports import Check, Walk, WalkPosition
from ledgerlog_spark.metadata.settled_writes import put_node
from ledgerlog_spark.wire.repair_nodes import decode_note, encode_note
from ledgerlog_spark.wire.underreplication import UNDERREPLICATION, decode_time, encode_time


class ReplicationCheckTimes:
    """Implements `CheckTimes` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._times = root + UNDERREPLICATION
        self._walks = f"{root}-repair/walk"

    async def time_ms(self, check: Check) -> int | None:
        """Implements `CheckTimes.time_ms`."""
        path = f"{self._times}/{check.value}"
        await self._tree.sync(path)
        found = await znodes.get_or_none(self._tree, path)
        return None if found is None else decoded(path, decode_time, found.value)

    async def set_time_ms(self, check: Check, time_ms: int) -> None:
        """Implements `CheckTimes.set_time_ms`."""
        await put_node(self._tree, f"{self._times}/{check.value}", encode_time(time_ms))

    async def position(self, walk: Walk) -> WalkPosition:
        """Implements `CheckTimes.position`."""
        path = f"{self._walks}/{walk.value}"
        await self._tree.sync(path)
        found = await znodes.get_or_none(self._tree, path)
        if found is not None:
            with contextlib.suppress(WireFormatError):
                return decode_note(WalkPosition, found.value)
        return WalkPosition()

    async def set_position(self, walk: Walk, position: WalkPosition) -> None:
        """Implements `CheckTimes.set_position`."""
        await put_node(self._tree, f"{self._walks}/{walk.value}", encode_note(position))
