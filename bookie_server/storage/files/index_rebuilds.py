"""Repairs damaged indexes from the records of their files."""

from __future__ import annotations

from collections.abc import Callable

from bookie_server.errors import StorageError
from bookie_server.ports import Priority
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.finished_scan import scan_finished
from bookie_server.storage.files.held import HeldFiles
from bookie_server.storage.files.pool import Pins
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import run_in_slices


async def rebuild_index(file: FinishedFile, shared: Shared) -> bool:
    """Rebuild the index of a file from its records.

    Return False if the file contains a damaged record of an unknown ledger, and the doubt of the
    directory does not cover this loss yet. In this case, the caller begins a new epoch of doubt.
    """
    counters = shared.counters
    scan = await scan_finished(file)
    file.rebuilt = await run_in_slices(scan.index(), shared.give_way)
    counters.boot_rebuilt_indexes += 1
    if scan.is_whole:
        return True
    counters.boot_damaged_records += 1
    return file.entry.has_damage


class IndexRebuilds:
    """Rebuilds the damaged indexes that reads find. During a rebuild, the file is in doubt."""

    def __init__(self, shared: Shared, finished: HeldFiles) -> None:
        # Called with the file if a rebuild finds that a record of an unknown ledger is lost.
        self.on_lost_record: Callable[[FinishedFile], None] = lambda _file: None
        self._shared = shared
        self._finished = finished
        self._running: set[int] = set()

    def on_damage(self, file: FinishedFile | None) -> None:
        """Count damage that a read found. If the index of `file` is damaged, rebuild the index."""
        self._shared.counters.damage += 1
        if file is not None:
            self.rebuild(file)

    def is_running(self, file: FinishedFile) -> bool:
        """Return whether the index of a file is being rebuilt, or its ledgers are being counted."""
        return file.entry.file_id in self._running and file.rebuilt is None

    def rebuild(self, file: FinishedFile) -> None:
        """Start to rebuild the damaged index of a file, unless a rebuild runs or has ended."""
        if file.rebuilt is not None or file.entry.file_id in self._running:
            return
        self._running.add(file.entry.file_id)
        self._shared.health.files_in_doubt.add(file.entry.file_id)
        self._shared.tasks.spawn("index rebuild", self._rebuild(file), Priority.BACKGROUND)

    async def count_again(self, file: FinishedFile) -> None:
        """Count the live bytes of a file again. The file must not be in doubt.

        No rebuild of the file's index begins before the count ends, because the count and the
        rebuild both put the file in doubt.
        """
        doubts, file_id = self._shared.health.files_in_doubt, file.entry.file_id
        had_rebuild = file_id in self._running
        self._running.add(file_id)
        doubts.add(file_id)
        for _ in self._finished.counting_again(file):
            await self._shared.give_way()
        doubts.discard(file_id)
        if not had_rebuild:
            self._running.discard(file_id)

    async def _rebuild(self, file: FinishedFile) -> None:
        doubts, file_id = self._shared.health.files_in_doubt, file.entry.file_id
        try:
            with Pins() as pins:
                pins.add(file.handle)
                is_covered = await rebuild_index(file, self._shared)
        except StorageError:
            # The file is still in doubt. The next read that finds the damage starts a new rebuild.
            self._running.discard(file_id)
        else:
            for _ in self._finished.counting_again(file):
                await self._shared.give_way()
            if not is_covered and file_id in self._finished:
                # A new epoch of doubt begins before the file leaves the set of files in doubt, so
                # the bookie denies no entry in between.
                self.on_lost_record(file)
            doubts.discard(file_id)
        finally:
            if file_id not in self._finished:
                doubts.discard(file_id)  # the file was freed after compaction copied its entries
