"""What the parts of one bookie's storage share: its ports, its states, and what they count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from bookie_server.core.ledger_gate import Health
from bookie_server.core.ledger_state import LedgerState, LedgerStates
from bookie_server.core.settings import StorageSettings
from bookie_server.ports import Clock, FileSystem, MetadataCheck, Tasks
from bookie_server.storage.files.manifest import ManifestStore
from bookie_server.storage.files.pool import FilePool


@dataclass(slots=True)
class BootCounters:
    """What a boot found.

    Attributes:
        replayed_records: Read back from files that were not finished.
        rewritten_records: Valid, not vouched for, written again.
        torn_tails: Files with something behind the last good record that nobody vouches for. A
            damaged last group looks the same.
        damaged_records: Vouched for and unreadable.
        damaged_headers: Of slots that the MANIFEST names; nothing depends on them.
        rebuilt_indexes: Of finished files.
    """

    replayed_records: int = 0
    rewritten_records: int = 0
    torn_tails: int = 0
    damaged_records: int = 0
    damaged_headers: int = 0
    rebuilt_indexes: int = 0


@dataclass(slots=True)
class JournalCounters:
    """What the journal did since it was opened.

    Attributes:
        records: Written, padding records and copies included.
        groups: Written and synced at once.
        bytes_written: To files, padding included.
        syncs: Of the journal's files.
        busy_ms: Spent in writes and syncs; its growth over time is how busy the device is.
    """

    records: int = 0
    groups: int = 0
    bytes_written: int = 0
    syncs: int = 0
    busy_ms: int = 0


@dataclass(slots=True)
class FileCounters:
    """What became of files since the storage was opened.

    Attributes:
        freed: Nothing in them was live.
        recycled: Prepared in a slot that held another file.
    """

    freed: int = 0
    recycled: int = 0


@dataclass(slots=True)
class StorageCounters:
    """What a storage did since it was opened. Metrics have the names of these fields.

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
        log: Of the journal.
    """

    boot: BootCounters = field(default_factory=BootCounters)
    log: JournalCounters = field(default_factory=JournalCounters)
    files: FileCounters = field(default_factory=FileCounters)
    adds: int = 0
    entries: int = 0
    add_bytes: int = 0
    adds_repeated: int = 0
    add_overlap: int = 0
    fences: int = 0
    damage: int = 0
    drops: int = 0
    tombstones_forgotten: int = 0


@dataclass(slots=True)
class Sequences:
    """How far the records of a directory go.

    Attributes:
        next_sequence: Of the next record written.
        durable_sequence: Everything up to it is synced.
    """

    next_sequence: int = 1
    durable_sequence: int = 0


@dataclass(frozen=True, slots=True)
class Shared:
    """Made once for each storage, before its boot.

    Attributes:
        metadata: Asked when a fence of a ledger may have been lost.
        states: Of all ledgers.
    """

    files: FilePool
    store: ManifestStore
    tasks: Tasks
    clock: Clock
    settings: StorageSettings
    metadata: MetadataCheck
    health: Health = field(default_factory=Health)
    states: LedgerStates = field(default_factory=LedgerStates)
    sequences: Sequences = field(default_factory=Sequences)
    counters: StorageCounters = field(default_factory=StorageCounters)

    @classmethod
    def of(
        cls,
        files: FileSystem,
        clock: Clock,
        tasks: Tasks,
        settings: StorageSettings,
        metadata: MetadataCheck,
    ) -> Self:
        """As settings have it; nothing is read yet."""
        pool = FilePool(files, tasks, settings.open_files_max)
        store = ManifestStore(
            pool, settings.state_deltas_bytes_min, give_way=lambda: tasks.sleep(0)
        )
        return cls(pool, store, tasks, clock, settings, metadata)

    def state_of(self, ledger_id: int, master_key: bytes | None = None) -> LedgerState:
        """The state of a ledger, made when it is met first; one without a key gets this one."""
        state = self.states.get(ledger_id)
        if state is None:
            state = self.states[ledger_id] = LedgerState(ledger_id)
            state.is_unverified = ledger_id <= self.health.highest_dropped_ledger_id
            self.states.changed.add(ledger_id)
        if state.master_key is None and master_key is not None:
            state.master_key = master_key
            self.states.changed.add(ledger_id)
        return state

    async def give_way(self) -> None:
        """End a slice of work: others run."""
        await self.tasks.sleep(0)
