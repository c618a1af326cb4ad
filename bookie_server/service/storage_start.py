"""Makes the settings and the directories for a bookie's storage, and logs its failures.

All directories of a bookie share the memory, the descriptors and the speed of compaction that the
settings allow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bookie_server.config import BookieSettings
from bookie_server.core.disk_use import DiskLevel, DiskSettings
from bookie_server.core.settings import RECENT_BYTES_MAX, ModeSettings, StorageSettings
from bookie_server.errors import StorageError, lost_directory_advice
from bookie_server.service.logging import fields_of, get_logger
from bookie_server.storage.device.filesystem import CACHED_BYTES_MAX, OsFileSystem
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.ledger_storage import LedgerStorage

_logger = get_logger("lifecycle")


def storage_settings(
    settings: BookieSettings, journal: Path | None, open_files_max: int
) -> StorageSettings:
    """Return the settings for the storage of one directory."""
    count = len(settings.places)
    # If a bookie has several directories, each gets an equal part of the limit. 0 means no limit.
    bytes_per_s = -(-settings.compaction_bytes_per_s // count)
    return StorageSettings(
        file_size_bytes=settings.file_size_bytes,
        free_bytes_min=settings.free_bytes_min,
        open_files_max=open_files_max,
        # At this limit, storage would answer BUSY. The limits of the lanes are smaller, and they
        # cover all directories, so peers wait before storage reaches its limit.
        in_flight_bytes_max=settings.in_flight_bytes_max,
        recent_bytes_max=RECENT_BYTES_MAX // count,
        mode_settings=ModeSettings(
            write_mode=settings.write_mode,
            journal_directory=str(journal or ""),
            journal_sync_data=settings.journal_sync_data,
            journal_files=settings.journal_files,
            checkpoint_interval_ms=settings.checkpoint_interval_ms,
            group_wait_ms=settings.group_wait_ms,
        ),
        compaction_minor_percent=settings.compaction_minor_percent,
        compaction_major_percent=settings.compaction_major_percent,
        compaction_minor_interval_ms=settings.compaction_minor_interval_ms,
        compaction_major_interval_ms=settings.compaction_major_interval_ms,
        compaction_bytes_per_s=bytes_per_s,
        scrub_bytes_per_s=-(-settings.scrub_bytes_per_s // count),
        scrub_interval_ms=settings.scrub_interval_ms,
        release_wait_ms=settings.release_wait_ms,
        disk=DiskSettings(
            settings.disk_usage_warn,
            settings.disk_usage_max,
            settings.disk_usage_low_water,
            settings.disk_check_interval_ms,
        ),
    )


def directory_at(
    path: str, on_sync: Callable[[float], None], directories_count: int
) -> OsFileSystem:
    """Return the files of a directory of the bookie, which is not locked yet."""
    files = OsFileSystem(
        Path(path),
        lambda notice: _logger.warning("file_system", path=path, notice=notice),
        CACHED_BYTES_MAX // directories_count,
    )
    files.on_sync = on_sync
    return files


class StorageReports:
    """Writes a log line for each change of a disk level, and for each directory that fails."""

    def __init__(self, storage: BookieStorage) -> None:
        self._directories = storage.directories
        self._failed: set[str] = set()
        for directory in self._directories:
            directory.on_disk_level = partial(log_disk_level, directory)
            if directory.disk.level is not DiskLevel.NORMAL:
                log_disk_level(directory)

    def report_failures(self) -> None:
        """Write a log line for each directory that has failed since the last call.

        If all directories have failed, no line is written here, because the bookie then ends.
        """
        failed = [each for each in self._directories if each.failure is not None]
        if len(failed) == len(self._directories):
            return
        for directory in failed:
            if directory.path not in self._failed:
                self._failed.add(directory.path)
                _log_failed_directory(directory, len(self._directories))


def _log_failed_directory(directory: LedgerStorage, directories_count: int) -> None:
    failure = directory.failure
    assert failure is not None
    _logger.error(
        "directory_failed",
        **{
            **fields_of(failure),
            "directory": directory.path,
            "advice": "the bookie is read-only now, and the other directories still serve. Repair "
            "the device and start the bookie again. "
            f"{lost_directory_advice(directory.path, directories_count)}",
        },
    )


def log_disk_level(directory: LedgerStorage) -> None:
    """Write a log line for the new level of a device."""
    disk = directory.disk
    log = _logger.info if disk.level is DiskLevel.NORMAL else _logger.warning
    log(
        "disk_level_changed",
        directory=directory.path,
        disk_level=disk.level.value,
        used_part=round(disk.space.used_part, 4),
        free_bytes=disk.space.free,
        total_bytes=disk.space.total,
    )


def log_failed_read(ledger_id: int, entry_id: int, peer: object, error: StorageError) -> None:
    """Write a log line for a read that ended with an error."""
    about = {"ledger_id": ledger_id, "entry_id": entry_id, "peer": peer}
    _logger.warning("read_failed", **{**fields_of(error), **about})


def log_failed_add(ledger_id: int, entry_id: int, peer: object, error: StorageError) -> None:
    """Write a log line for an add that ended with an error."""
    about = {"ledger_id": ledger_id, "entry_id": entry_id, "peer": peer}
    _logger.warning("add_failed", **{**fields_of(error), **about})
