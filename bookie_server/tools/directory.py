"""Opens the directory of a bookie that does not run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bookie_server.core.manifest_codec import MAGIC, NAME, FileEntry, FileState, Manifest
from bookie_server.core.replay_decision import synced_upto
from bookie_server.core.settings import FILE_SIZE_BYTES_MIN, StorageSettings
from bookie_server.errors import (
    DirectoryLockedError,
    MissingFileError,
    StorageError,
    WrongDirectoryError,
)
from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.entry_log_file import FinishedFile, read_index_head
from bookie_server.storage.files.index_rebuilds import rebuild_index
from bookie_server.storage.files.manifest import is_slot_name, is_state_name
from bookie_server.storage.open_files import Replayed, apply, judge_all, scan_open_files
from bookie_server.storage.reading.readings import finish
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import ConfigurationError

COOKIE_NAME = "VERSION"
COOKIE_BEGIN = b"5\nbookieHost:"
SESSION_NAME = "SESSION"
OPEN_FILES_MAX = 64


class NoMetadata:
    """The metadata check of a tool, which has no metadata store."""

    async def check(self, ledger_id: int) -> MetadataAnswer:  # noqa: ARG002 - always the same
        """Answer that the store could not be reached."""
        return MetadataAnswer(Standing.UNKNOWN)


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[OsFileSystem]:
    """Lock a directory of a bookie while the block runs.

    Raises:
        WrongDirectoryError: The path is not the directory of a bookie. Nothing was created.
        DirectoryLockedError: A bookie, or another tool, uses the directory.
    """
    _require_bookie_files(path)
    async with locked_files(path) as files:
        yield files


@asynccontextmanager
async def locked_files(path: Path) -> AsyncIterator[OsFileSystem]:
    """Lock any directory while the block runs.

    Raises:
        DirectoryLockedError: A bookie, or another tool, uses the directory.
    """
    files = OsFileSystem(path)
    try:
        try:
            await files.lock(create=False)
        except DirectoryLockedError as error:
            raise DirectoryLockedError(
                f"a bookie or another tool uses {path}: stop the bookie, then run this command "
                "again",
                path=str(path),
            ) from error
        yield files
    finally:
        await files.unlock()


def _require_bookie_files(path: Path) -> None:
    try:
        is_of_bookie = any(map(_proves_a_bookie, path.iterdir()))
    except OSError as error:
        raise WrongDirectoryError(
            f"cannot read the directory {path}: {error.strerror}; pass the directory of a bookie",
            path=str(path),
        ) from error
    if not is_of_bookie:
        raise WrongDirectoryError(
            f"{path} is not the directory of a bookie, because it has no {NAME}; pass the "
            "directory of a bookie",
            path=str(path),
        )


def _proves_a_bookie(path: Path) -> bool:
    """Return whether a file proves that its directory belongs to a bookie.

    Other programs also have files with the names VERSION and MANIFEST in their directories.
    """
    if is_slot_name(path.name) or is_state_name(path.name):
        return True
    begin = {NAME: MAGIC.encode(), COOKIE_NAME: COOKIE_BEGIN}.get(path.name)
    if begin is None or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(begin)) == begin


@dataclass(slots=True)
class RestingDirectory:
    """The files of a bookie that does not run. The MANIFEST and the ledger states are valid."""

    path: Path
    shared: Shared
    names: frozenset[str]

    @property
    def manifest(self) -> Manifest:
        """The MANIFEST of the directory."""
        return self.shared.store.current

    def entries(self, state: FileState) -> Iterable[FileEntry]:
        """Return the files that the MANIFEST lists with this state, in ascending order of id."""
        return (entry for entry in self.manifest.files if entry.state is state)

    def entry_of(self, wanted: str) -> FileEntry:
        """Return the MANIFEST's entry of the file with this id or this slot.

        Raises:
            ConfigurationError: The MANIFEST does not list such a file.
        """
        for entry in self.manifest.files:
            if wanted in (entry.slot, str(entry.file_id)):
                return entry
        raise ConfigurationError(
            f"the MANIFEST of {self.path} lists no file {wanted!r}; "
            f"`ledgerlog bookie inspect manifest {self.path}` shows all files",
            path=wanted,
        )

    def finished(self, entry: FileEntry) -> FinishedFile:
        """Return a finished file, whose index is not read yet.

        Raises:
            MissingFileError: The file does not exist.
        """
        if entry.slot not in self.names:
            raise MissingFileError(
                f"{entry.slot} is missing in {self.path}, but the MANIFEST lists it",
                path=entry.slot,
            )
        return FinishedFile(entry, self.shared.files.at(entry.slot), entry.identity)

    async def indexed(self, entry: FileEntry) -> FinishedFile:
        """Return a finished file, whose index head is read and verified.

        Raises:
            MissingFileError: The file does not exist.
            CorruptRecordError: The head of the index is damaged.
        """
        file = self.finished(entry)
        await finish(read_index_head(file))
        return file

    async def index_or_rebuilt(self, entry: FileEntry) -> FinishedFile:
        """Return a finished file with its index, or with an index that was rebuilt in memory.

        Raises:
            MissingFileError: The file does not exist.
            StorageError: The device can read neither the index nor the records of the file.
        """
        try:
            return await self.indexed(entry)
        except MissingFileError:
            raise
        except StorageError:
            file = self.finished(entry)
            if not await rebuild_index(file, self.shared):
                self.shared.health.files_in_doubt.add(entry.file_id)
            return file

    async def replay(self) -> list[Replayed]:
        """Read the open files, and apply their records to the ledger states, as a start does."""
        replayed = await scan_open_files(self.shared.files, self.manifest)
        synced = synced_upto([file.scan for file in replayed], self.manifest.durable_upto)
        judge_all(replayed, synced, self.manifest, self.shared.states)
        for file in replayed:
            verdict = file.verdict
            for record in (*verdict.kept, *verdict.unreadable, *verdict.rewritten):
                apply(record, self.shared.state_of(record.ledger_id))
        return replayed


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[RestingDirectory]:
    """Lock a directory, and read its MANIFEST and ledger states.

    Raises:
        StartupError: The directory cannot be used: it is locked, damaged, of a later version, or
            not the directory of a bookie.
    """
    async with locked(path) as files:
        shared = shared_of(files)
        try:
            names = await shared.files.names()
            shared.states.update(await shared.store.load(names))
            yield RestingDirectory(path, shared, frozenset(names))
        finally:
            await shared.files.close_all()


def shared_of(files: OsFileSystem) -> Shared:
    """Return the objects that the code of the storage needs to read files."""
    settings = StorageSettings(
        file_size_bytes=FILE_SIZE_BYTES_MIN,
        in_flight_bytes_max=1,
        free_bytes_min=0,
        open_files_max=OPEN_FILES_MAX,
    )
    return Shared(files, OsClock(), OsTasks(), settings, NoMetadata())


def unfinished_run(manifest: Manifest) -> str:
    """Return a warning if the synced entry-log files may lack entries of the last run, else ""."""
    run = manifest.run
    if run is None:
        return ""
    if not run.is_synced:
        return (
            f"the last run (write mode {run.mode.value}) did not stop cleanly, and acknowledged "
            "entries before their sync. Only a start of the bookie finds out whether entries are "
            "lost"
        )
    if run.needs_journal:
        return (
            f"the last run did not stop cleanly, and used the journal {run.journal}. The newest "
            "entries may be only there: start the bookie and stop it, then run this command again"
        )
    return ""
