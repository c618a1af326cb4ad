"""Sizes and times of a bookie's storage."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.disk_use import NO_THRESHOLDS, DiskSettings

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
FILE_SIZE_BYTES_MIN = 64 * KIBIBYTE
"""The size of the smallest file, which a start on a full disk may need. `config.py` requires a much
larger file size, so a file of this size leaves enough room for compaction."""
GROUPS_IN_FILE_MIN = 8
OPEN_FILES_MIN = 8
MAY_BE_0 = (
    "free_bytes_min",
    "pool_files_max",
    "compaction_minor_percent",
    "compaction_major_percent",
    "compaction_minor_interval_ms",
    "compaction_major_interval_ms",
    "compaction_bytes_per_s",
    "scrub_bytes_per_s",
    "scrub_interval_ms",
    "release_wait_ms",
)
JOURNAL_FILES_MIN = 2
RECENT_BYTES_MAX = 16 * MEBIBYTE


@dataclass(frozen=True)
class ModeSettings:
    """Settings of the write mode. `config.py` has the same defaults, and explains them."""

    write_mode: BookieWriteMode = BookieWriteMode.DIRECT  # where an acknowledged entry must be
    journal_directory: str = ""  # absolute path; "" unless the write mode is `journal`
    journal_sync_data: bool = True  # whether adds wait for the sync of the journal
    journal_files: int = 3  # number of journal files, each as large as an entry-log file
    checkpoint_bytes: int = 128 * MEBIBYTE  # unsynced bytes after which a checkpoint begins
    checkpoint_interval_ms: int = 10_000  # time after which written entry-log files are synced
    group_wait_ms: int = 0  # time that a group which is not full waits for more records

    def __post_init__(self) -> None:
        assert (self.write_mode is BookieWriteMode.JOURNAL) == bool(self.journal_directory)
        assert self.journal_files >= JOURNAL_FILES_MIN
        assert min(self.checkpoint_bytes, self.checkpoint_interval_ms) > 0


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of the storage. Defaults of settings that operators change are in `config.py`."""

    file_size_bytes: int  # size of each entry-log file, which is allocated before its use
    in_flight_bytes_max: int  # maximum size of all adds without an answer; further adds get BUSY
    free_bytes_min: int  # minimum free space; with less, the bookie allocates no file
    open_files_max: int  # maximum number of open files; unused files are closed first
    pieces_max: int = 100_000  # maximum number of pieces (core/pieces.py) in the index of a file
    lists_bytes_max: int = 64 * MEBIBYTE  # maximum memory for the ids and lengths of a file's adds
    # Maximum size of a group (records synced together); a group never exceeds 1/8 of a file.
    group_bytes_max: int = 8 * MEBIBYTE
    recent_bytes_max: int = (
        RECENT_BYTES_MAX  # maximum memory for the newest records, to serve reads
    )
    idle_watermark_ms: int = 50  # time without records after which a watermark is written
    metadata_check_ms: int = 5_000  # maximum time that an add waits for the metadata check
    allocation_retry_ms: int = 5_000  # pause between two attempts to allocate on a full disk
    pool_files_max: int = 4  # maximum number of freed files that are kept for reuse
    # Number of bytes that must be appended to a ledger-state file before a new file is begun.
    state_deltas_bytes_min: int = 16 * KIBIBYTE
    tombstone_keep_s: int = 7 * 24 * 3_600  # minimum time for which a tombstone is kept
    release_wait_ms: int = 24 * 3_600_000  # time without adds before a release; 0: never
    mode_settings: ModeSettings = ModeSettings()  # the settings of the write mode
    compaction_minor_percent: int = 20  # threshold of minor compactions; 0: never
    compaction_major_percent: int = 80  # threshold of major compactions; 0: never
    compaction_minor_interval_ms: int = 3_600_000  # time between two minor compactions; 0: never
    compaction_major_interval_ms: int = 24 * 3_600_000  # time between major compactions; 0: never
    compaction_bytes_per_s: int = 32 * MEBIBYTE  # maximum bytes read and written; 0: no limit
    scrub_bytes_per_s: int = 8 * MEBIBYTE  # maximum bytes that the scrub reads; 0: no limit
    scrub_interval_ms: int = 7 * 24 * 3_600_000  # time between the beginnings of scrubs; 0: never
    disk: DiskSettings = NO_THRESHOLDS  # disk usage at which regular adds are refused

    def __post_init__(self) -> None:
        # `BookieSettings` and `descriptors` have already reported wrong values to the operator.
        others = ("mode_settings", "disk")
        sizes = {name: getattr(self, name) for name in self.__slots__ if name not in others}
        assert all(size >= (name not in MAY_BE_0) for name, size in sizes.items()), sizes
        assert self.open_files_max >= OPEN_FILES_MIN
        assert self.file_size_bytes >= FILE_SIZE_BYTES_MIN
        assert self.file_size_bytes % 4096 == 0

    @property
    def short_percent(self) -> int:
        """The threshold of a compaction while the disk has no room; 0 if compaction is disabled."""
        return max(self.compaction_minor_percent, self.compaction_major_percent)

    @property
    def compaction_slot_bytes(self) -> int:
        """The room on the device that only compaction may use."""
        return self.file_size_bytes if self.short_percent else 0

    @property
    def group_bytes(self) -> int:
        """Size of a full group in bytes."""
        return min(self.group_bytes_max, self.file_size_bytes // GROUPS_IN_FILE_MIN)
