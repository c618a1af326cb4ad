"""The exceptions that only the bookie raises, and its exit codes."""

from __future__ import annotations

import enum
from typing import Final

from ledgerlog_spark.errors import LedgerLogError, StartupError

REPLACEMENT_ADVICE: Final = (
    "If the data is lost, start a bookie with another bookie_id and a new directory instead. Never "
    "start this bookie_id with an empty directory, because the bookie would then deny entries that "
    "it acknowledged"
)
"""Advice at the end of each message about missing or damaged data."""


def lost_directory_advice(path: object, directories_count: int) -> str:
    """Return the end of the message about a directory that cannot be used."""
    if directories_count == 1:
        return REPLACEMENT_ADVICE
    return (
        f"If its data is lost, start the bookie once with --without-directory {path}. Then the "
        "directory does not belong to the bookie any more, and the bookie denies no entry that may "
        "have been there. Never replace it by an empty directory"
    )


class BookieServerError(LedgerLogError):
    """Base of the errors that only a bookie raises."""


class StorageError(BookieServerError):
    """A file could not be read or written. The error has the field `path`."""

    definite = False


class CorruptRecordError(StorageError):
    """Bytes on disk are damaged. The error has the fields `path`, `offset_bytes` and `reason`."""


class FreedFileError(CorruptRecordError):
    """The file was freed while it was read. A repeated read may succeed."""

    retriable = True


def freed(name: str) -> FreedFileError:
    """Return the error for a file that was freed or closed during a read."""
    message = f"{name} was freed while it was read; retry"
    return FreedFileError(message, path=name, offset_bytes=-1, reason="freed")


def unknown_entries(ledger_id: int) -> StorageError:
    """Return the error for entries of a ledger that are not found, but may be stored."""
    message = (
        f"the entries of ledger {ledger_id} on this bookie are unknown: a file is damaged or "
        "failed, or entries may be lost; read from another replica"
    )
    return StorageError(message, path=".", ledger_id=ledger_id)


class MissingFileError(StorageError):
    """A file that the bookie needs does not exist. The error has the field `path`."""


class DiskFullError(StorageError):
    """The device has no room. Data that was stored earlier is unchanged."""

    retriable = True


class TooManyFilesError(StorageError):
    """The process or the system has no descriptor for one more file; nothing was changed."""

    retriable = True
    definite = True


class TooManyRangesError(StorageError):
    """A ledger has too many stretches for one list of ranges.

    The error has the fields `ledger_id` and `count_max`.
    """

    definite = True


class SyncFailedError(StorageError):
    """A write or sync failed. The data may be lost, and is never acknowledged."""


class JournalFailedError(SyncFailedError):
    """A write or sync of a journal file failed, so the storage of its directory has failed.

    The error has the fields `path`, `journal`, `reason` and `is_needed`, which states whether the
    next start needs the journal.
    """


def journal_failed(path: str, journal: str, reason: str, *, is_needed: bool) -> JournalFailedError:
    """Return the error for a journal directory that cannot be written any more."""
    advice = (
        "The entry log is not synced, so the next start needs this journal: repair its device, "
        "then start the bookie again"
        if is_needed
        else "All acknowledged entries are synced in the entry log, so the next start does not "
        "need this journal: start the bookie with another --journal-directory, or with "
        "--write-mode direct"
    )
    message = f"the journal in {journal} has failed: {reason}. {advice}"
    return JournalFailedError(
        message, path=path, journal=journal, reason=reason, is_needed=is_needed
    )


class CookieMismatchError(StartupError):
    """The data belongs to another bookie, or to another cluster."""


class DirectoryIdentityError(StartupError):
    """A directory is not the newest state of its bookie.

    The error has the fields `path` and `bookie_id`, the directory's `directory_id`, `starts` and
    `changes`, and the `known_directory_ids`, `known_starts` and `known_changes` of the metadata
    store.
    """


class OlderCopyError(DirectoryIdentityError):
    """The directory is an older copy, so entries and fences are missing."""


class SwappedDirectoryError(DirectoryIdentityError):
    """The directory has another id than the directories of the bookie."""


class UncountedDirectoryError(DirectoryIdentityError):
    """The directory has no counters, although the metadata store has counters of the bookie."""


class RetiredBookieError(DirectoryIdentityError):
    """An operator took the bookie out of service."""


class DirectoryLockedError(StartupError):
    """Another process has locked the directory. The error has the field `path`."""


class WrongDirectoryError(StartupError):
    """A path is not the directory of a bookie. The error has the field `path`."""


class FormatVersionError(StartupError):
    """A file has a format version that this program cannot read.

    The error has the fields `path` and `version`.
    """


class DamagedDirectoryError(StartupError):
    """The MANIFEST or the ledger-state file is missing or damaged.

    The error has the fields `path` and `reason`.
    """


class UnrepairedDirectoryError(StartupError):
    """The directory may have lost entries, and a tool needs a repaired directory.

    The error has the field `path`.
    """


class UncleanDirectoryError(StartupError):
    """The bookie did not stop cleanly, and a tool needs a clean stop.

    The error has the field `path`.
    """


class ForeignJournalError(StartupError):
    """The journal's files are of another directory, or of a copy of this directory.

    The error has the field `path`.
    """


class MissingJournalError(StartupError):
    """The journal directory does not exist. The error has the field `path`."""


class MovedDirectoryError(StartupError):
    """A directory was moved or copied after an unclean end.

    The error has the fields `path` and `moved_from`.
    """


class UnusableDirectoryError(StartupError):
    """One of several directories of a bookie is damaged, or its device has failed.

    The error has the field `path`.
    """


def unusable_directory(path: str, error: LedgerLogError) -> UnusableDirectoryError:
    """Return the error for one of several directories that a start cannot use."""
    reason = error.message.replace(REPLACEMENT_ADVICE, "").rstrip(". ")
    return UnusableDirectoryError(
        f"the directory {path} cannot be used: {reason}. "
        f"{lost_directory_advice(path, directories_count=2)}",
        path=path,
    )


class SharedLedgerError(StartupError):
    """Two directories of a bookie have the same ledger.

    The error has the fields `ledger_id` and `paths`.
    """


def shared_ledger(ledger_id: int, *paths: str) -> SharedLedgerError:
    """Return the error for a ledger that is in two directories, and may differ there."""
    return SharedLedgerError(
        f"{paths[0]} and {paths[1]} both have ledger {ledger_id}, but a ledger is always in one "
        "directory of a bookie: one of the directories was replaced or restored. Start the bookie "
        f"without the wrong directory, for example: --without-directory {paths[1]}",
        ledger_id=ledger_id,
        paths=paths,
    )


class PortInUseError(StartupError):
    """Another process uses the address. The error has the field `address`."""


class ExitCode(enum.IntEnum):
    """The exit codes of a bookie process."""

    STOPPED = 0
    """SIGTERM or SIGINT stopped the bookie. Every add that it acknowledged is on disk."""
    INTERNAL_ERROR = 1
    """A bug of the bookie; standard error contains the traceback."""
    BAD_CONFIGURATION = 2
    """A setting is wrong. Stored entries are unchanged."""
    REFUSED_TO_START = 3
    """The directory, its cookie or lock, a port or a limit of the system prevents the start. Stored
    entries are unchanged."""
    METADATA_UNAVAILABLE = 4
    """The metadata store could not be reached in time."""
    STORAGE_FAILED = 5
    """The disk failed, or has no room for a start. All acknowledged entries are synced, except in a
    run without syncs."""
