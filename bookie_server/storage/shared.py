"""State shared by the parts of one bookie's storage: ports, ledger states, counters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bookie_server.core import doubt as rules
from bookie_server.core.bookie_run import BookieRun, RunJournal
from bookie_server.core.directory_identity import FoundOutside
from bookie_server.core.ledger_gate import Health
from bookie_server.core.ledger_state import HeldLedger, HeldLedgers
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import CorruptRecordError, StorageError
from bookie_server.ports import Clock, FileSystem, MetadataCheck, Tasks
from bookie_server.storage.files.manifest import ManifestStore
from bookie_server.storage.files.pool import FilePool

OnFailure = Callable[[int, int, object, StorageError], None]
"""A function that gets the ledger, first entry and peer of a request, and the error that ended the
request."""


@dataclass(slots=True)
class StorageCounters:
    """Counters since the storage was opened; service/metrics/descriptions.py explains them."""

    boot_replayed_records: int = 0
    boot_rewritten_records: int = 0
    boot_torn_tails: int = 0
    boot_damaged_records: int = 0
    boot_damaged_headers: int = 0
    boot_rebuilt_indexes: int = 0
    journal_records: int = 0
    journal_groups: int = 0
    journal_bytes_written: int = 0
    journal_syncs: int = 0
    journal_busy_ms: int = 0
    files_freed: int = 0
    files_recycled: int = 0
    adds: int = 0
    entries: int = 0
    add_bytes: int = 0
    adds_repeated: int = 0
    add_overlap: int = 0
    fences: int = 0
    damage: int = 0
    drops: int = 0
    releases: int = 0
    tombstones_forgotten: int = 0
    checkpoints: int = 0
    boot_redone_groups: int = 0
    compactions: int = 0
    compaction_bytes_copied: int = 0
    compaction_bytes_freed: int = 0
    compaction_sources_withdrawn: int = 0
    scrubs: int = 0
    scrub_files: int = 0
    scrub_files_skipped: int = 0
    scrub_bytes: int = 0
    scrub_damaged_records: int = 0
    scrub_damaged_entries: int = 0
    scrub_damaged_indexes: int = 0
    scrub_wrong_pointers: int = 0
    scrub_counts_corrected: int = 0

    def by_metric(self) -> dict[str, int]:
        """Return the counts by metric name. Metric names have `log_` in place of `journal_`."""
        return {name.replace("journal_", "log_"): count for name, count in asdict(self).items()}


@dataclass(slots=True)
class Sequences:
    """The sequences of the next record and of the last synced record of a directory."""

    next_sequence: int = 1
    durable_sequence: int = 0  # all records up to this sequence are synced


class Shared:
    """State that the parts of one storage share. It is created before the boot of the storage."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        tasks: Tasks,
        settings: StorageSettings,
        metadata: MetadataCheck,
        open_directory: Callable[[str], FileSystem] | None = None,
    ) -> None:
        """Set the fields.

        `open_directory` opens another directory by its absolute path. It is used only for journal
        directories.
        """
        self.files = FilePool(files, tasks, settings.open_files_max)
        self.store = ManifestStore(self.files, settings.state_deltas_bytes_min, self.give_way)
        self.open_directory = open_directory
        self.run: BookieRun | None = None  # the run that the next MANIFEST lists
        self.journals: tuple[RunJournal, ...] = ()  # the journals that the next MANIFEST lists
        self.starts = self.changes = 0  # counters for the next MANIFEST
        self.found = FoundOutside()  # set before the boot
        # Epochs of doubt by ledger id, for ledgers without a state. The metadata of the ledger is
        # newer than all losses up to this epoch. `Denials` limits the number of these ledgers.
        self.newer: OrderedDict[int, int] = OrderedDict()
        self.on_failed_read: OnFailure = lambda *_: None  # called for each failed read
        # Called for each read of a damaged entry, with the ledger, the entry and the error.
        self.on_damaged_read: Callable[[int, int, CorruptRecordError], None] = lambda *_: None
        # Called for each add that ended with an error before it was passed to the journal. The
        # outcome of the add is unknown.
        self.on_failed_add: OnFailure = lambda *_: None
        self.tasks = tasks
        self.clock = clock
        self.settings = settings
        self.metadata = metadata
        self.health = Health()
        self.states = HeldLedgers()
        self.sequences = Sequences()
        self.counters = StorageCounters()

    @property
    def is_moved(self) -> bool:
        """Whether the directory had another path in the last run, so it may be a copy."""
        return self.store.current.path not in ("", self.files.path)

    def state_of(self, ledger_id: int, master_key: bytes | None = None) -> HeldLedger:
        """Return the state of a ledger. Create the state or set its key if they are missing."""
        state = self.states.get(ledger_id)
        if state is None:
            state = self.states[ledger_id] = HeldLedger(ledger_id)
            epoch = rules.first_cleared_epoch(self.health.doubt)
            state.cleared_epoch = max(epoch, self.newer.pop(ledger_id, 0))
            state.is_unverified = ledger_id <= self.health.highest_dropped_ledger_id
            self.states.changed.add(ledger_id)
        if state.master_key is None and master_key is not None:
            state.master_key = master_key
            self.states.changed.add(ledger_id)
        return state

    async def give_way(self) -> None:
        """Pause between two slices of work, so that other tasks can run."""
        await self.tasks.give_way()
