"""Damage that reads meet: counted, and mended where a file's records can say what its index did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie_server.core.ledger_gate import Health
from bookie_server.errors import CorruptRecordError, StorageError
from bookie_server.ports import Tasks
from bookie_server.storage.boot import rebuild_index
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.keeper import FileKeeper

if TYPE_CHECKING:
    from bookie_server.storage.counters import StorageCounters


class IndexRebuilds:
    """Rebuilds damaged indexes, each once at a time; meanwhile the file is in doubt."""

    def __init__(
        self,
        *,
        keeper: FileKeeper,
        tasks: Tasks,
        health: Health,
        counters: StorageCounters,
    ) -> None:
        self._keeper = keeper
        self._tasks = tasks
        self._health = health
        self._counters = counters
        self._running: set[int] = set()

    def on_damage(self, error: CorruptRecordError, file: FinishedFile | None) -> None:
        """A read met damage, of a file's index when it names the file."""
        _ = error
        self._counters.damage += 1
        if file is None or file.rebuilt is not None or file.entry.file_id in self._running:
            return
        self._running.add(file.entry.file_id)
        self._health.files_in_doubt.add(file.entry.file_id)
        self._tasks.spawn("index rebuild", self._rebuild(file))

    async def _give_way(self) -> None:
        await self._tasks.sleep(0)

    async def _rebuild(self, file: FinishedFile) -> None:
        pin = self._keeper.pins.take()
        doubts, file_id = self._health.files_in_doubt, file.entry.file_id
        try:
            await rebuild_index(file, self._health, self._counters.boot, self._give_way)
        except StorageError:
            # Still in doubt: the next read that meets the damage tries again.
            self._running.discard(file.entry.file_id)
        else:
            is_whole = file_id not in doubts
            doubts.add(file_id)
            for _ in self._keeper.finished.counting_again(file):
                await self._give_way()
            if is_whole:
                doubts.discard(file_id)
        finally:
            self._keeper.pins.release(pin)
