"""What a storage counts of itself."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.storage.boot import BootCounters
from bookie_server.storage.files.keeper import FileCounters
from bookie_server.storage.journal import JournalCounters


@dataclass(slots=True)
class StorageCounters:
    """What a storage did since it was opened; for metrics.

    Attributes:
        adds: Runs stored.
        entries: Stored with them.
        add_bytes: Stored with them.
        adds_repeated: Answered from the copy that was there.
        add_overlap: Regular adds of an entry that was there with other bytes.
        fences: Ledgers fenced.
        damage: Reads that met damage.
        drops: Ledgers dropped.
        tombstones_forgotten: Of ledgers dropped long ago.
        boot: What the boot found.
        log: What the journal wrote.
        files: What became of files.
    """

    boot: BootCounters
    log: JournalCounters
    files: FileCounters
    adds: int = 0
    entries: int = 0
    add_bytes: int = 0
    adds_repeated: int = 0
    add_overlap: int = 0
    fences: int = 0
    damage: int = 0
    drops: int = 0
    tombstones_forgotten: int = 0
