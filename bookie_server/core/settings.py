"""Sizes and times of a bookie's storage."""

from __future__ import annotations

from dataclasses import dataclass

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
FILE_SIZE_BYTES_MIN = 64 * KIBIBYTE
GROUPS_IN_FILE_MIN = 8
OPEN_FILES_MIN = 8
MAY_BE_0 = ("free_bytes_min", "pool_files_max")


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of the storage; for the settings of an operator, `config.py` has the defaults."""

    file_size_bytes: int  # size of each entry-log file, allocated ahead
    in_flight_bytes_max: int  # bytes of unanswered adds; a further add is refused BUSY
    free_bytes_min: int  # with less free space, no file is allocated: the bookie is read-only
    open_files_max: int  # open entry-log files; another file is opened when it is read
    pieces_max: int = 100_000  # of an index; a file is finished before its index has more
    lists_bytes_max: int = 64 * MEBIBYTE  # ids and lengths of a file's runs in memory
    group_bytes_max: int = 8 * MEBIBYTE  # written and synced together; never above 1/8 of a file
    recent_bytes_max: int = 16 * MEBIBYTE  # newest bodies, kept in memory for fast reads
    idle_watermark_ms: int = 50  # idle time before a watermark record
    metadata_check_ms: int = 5_000  # longest wait of an add for the metadata check
    allocation_retry_ms: int = 5_000  # pause between two attempts to allocate on a full disk
    pool_files_max: int = 4  # freed files kept for reuse
    state_deltas_bytes_min: int = 16 * KIBIBYTE  # appended to the state file before it is rewritten
    tombstone_keep_s: int = 7 * 24 * 3_600  # shortest time for which a dropped ledger is remembered

    def __post_init__(self) -> None:
        # Before this, `BookieSettings` and `descriptors` report the wrong value to an operator.
        sizes = {name: getattr(self, name) for name in self.__slots__}
        assert all(size >= (name not in MAY_BE_0) for name, size in sizes.items()), sizes
        assert self.open_files_max >= OPEN_FILES_MIN
        assert self.file_size_bytes >= FILE_SIZE_BYTES_MIN
        assert self.file_size_bytes % 4096 == 0

    @property
    def group_bytes(self) -> int:
        """Size of a full group in bytes."""
        return min(self.group_bytes_max, self.file_size_bytes // GROUPS_IN_FILE_MIN)
