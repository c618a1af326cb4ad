"""Counts the live bytes of a finished file again, from its index and the tombstones."""

from __future__ import annotations

from collections.abc import Iterator

from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.index_rebuilds import IndexRebuilds
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.live_bytes import DROPPED
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts


class LiveRecount:
    """Compares the live bytes of files with their indexes, and corrects wrong numbers."""

    def __init__(self, shared: Shared, keeper: FileKeeper, rebuilds: IndexRebuilds) -> None:
        self._shared = shared
        self._keeper = keeper
        self._rebuilds = rebuilds

    async def recount(self, file: FinishedFile) -> None:
        """Correct the live bytes of a file, unless compaction owns it or the file is in doubt."""
        for is_right in self._compared(file):
            if not self._may_count(file):
                return
            if not is_right:
                self._shared.counters.scrub_counts_corrected += 1
                await self._rebuilds.count_again(file)
                return
            await self._shared.give_way()

    def _may_count(self, file: FinishedFile) -> bool:
        file_id = file.entry.file_id
        is_taken = file_id in self._keeper.handover.owned
        in_doubt = file_id in self._shared.health.files_in_doubt
        return file_id in self._keeper.finished and not is_taken and not in_doubt

    def _compared(self, file: FinishedFile) -> Iterator[bool]:
        """For each slice of ledgers, yield whether the numbers of these ledgers are correct.

        A drop changes a tombstone and the live bytes in the same turn of the event loop, so each
        slice is exact.
        """
        live, tombstone_of, rebuilt = file.live, self._shared.states.tombstone_of, file.rebuilt
        yield file.live_bytes == live.total()
        if rebuilt is not None:
            for ids in parts(rebuilt.ledger_ids):
                yield all(
                    live.size_of(each) == (rebuilt.bytes_after(each, tombstone_of(each)) or DROPPED)
                    for each in ids
                )
            return
        for totals in parts(file.totals()):
            yield all(
                live.size_of(total.ledger_id)
                == (
                    total.size_bytes
                    if total.origin_newest > tombstone_of(total.ledger_id)
                    else DROPPED
                )
                for total in totals
            )
