"""Sizes and times of a bookie's storage."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.errors import ConfigurationError

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
FILE_SIZE_BYTES_MIN = 64 * KIBIBYTE
GROUPS_IN_FILE_MIN = 8
OPEN_FILES_MIN = 8


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of the storage; `bookie_server/config.py` has the defaults of the operator's.

    Attributes:
        file_size_bytes: Size of each entry-log file, allocated ahead.
        in_flight_bytes_max: Adds accepted and not yet answered; beyond it they are refused BUSY.
        free_bytes_min: No file is allocated when the device would have less left; the bookie is
            read-only then.
        open_files_max: Files open at the same time; others are opened when they are read.
        pieces_max: Pieces in the index of a file; a file that would have more is finished first.
        lists_bytes_max: A file is finished when the ids and lengths of its runs take this much
            memory. Those of the groups under way are not included.
        group_bytes_max: Bytes written and synced together; at most an eighth of a file.
        recent_bytes_max: Newest bodies that are kept in memory for tailing readers.
        idle_watermark_ms: Idle time after which a watermark record marks the last group as synced.
        metadata_check_ms: Longest wait of an add for the metadata check.
        allocation_retry_ms: Pause between two attempts to allocate on a full disk.
        pool_files_max: Freed files kept for reuse.
        state_deltas_bytes_min: Appended changes of ledger states before their file is rewritten.
        tombstone_keep_s: Shortest time for which a dropped ledger is remembered.
    """

    file_size_bytes: int
    in_flight_bytes_max: int
    free_bytes_min: int
    open_files_max: int
    pieces_max: int = 100_000
    lists_bytes_max: int = 64 * MEBIBYTE
    group_bytes_max: int = 8 * MEBIBYTE
    recent_bytes_max: int = 16 * MEBIBYTE
    idle_watermark_ms: int = 50
    metadata_check_ms: int = 5_000
    allocation_retry_ms: int = 5_000
    pool_files_max: int = 4
    state_deltas_bytes_min: int = 16 * KIBIBYTE
    tombstone_keep_s: int = 7 * 24 * 3_600

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in ("free_bytes_min", "pool_files_max")):
                raise ConfigurationError(
                    f"{name} = {value}: set a number greater than 0", key=name, value=value
                )
        if self.open_files_max < OPEN_FILES_MIN:
            raise ConfigurationError(
                f"open_files_max = {self.open_files_max}: set at least {OPEN_FILES_MIN}",
                key="open_files_max",
                value=self.open_files_max,
            )
        if self.file_size_bytes < FILE_SIZE_BYTES_MIN or self.file_size_bytes % 4096:
            raise ConfigurationError(
                f"file_size_bytes = {self.file_size_bytes}: set a multiple of 4096, at least "
                f"{FILE_SIZE_BYTES_MIN}",
                key="file_size_bytes",
                value=self.file_size_bytes,
            )

    @property
    def group_bytes(self) -> int:
        """Bytes of a full group."""
        return min(self.group_bytes_max, self.file_size_bytes // GROUPS_IN_FILE_MIN)
