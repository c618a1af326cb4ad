"""Makes the writer of a new run, and takes over the records of the last run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from bookie_server.core.bookie_run import BookieRun, BookieWriteMode, RunJournal
from bookie_server.core.manifest_codec import FileState, Manifest
from bookie_server.errors import (
    REPLACEMENT_ADVICE,
    DiskFullError,
    ForeignJournalError,
    MissingFileError,
    MissingJournalError,
    MovedDirectoryError,
    StorageError,
    SyncFailedError,
)
from bookie_server.ports import FileSystem, SurvivingNumber
from bookie_server.storage.modes.checkpoints import Checkpoints, OpenedFiles, WrittenMark
from bookie_server.storage.modes.recorded_run import Commits, RecordedRun
from bookie_server.storage.modes.redo import redo
from bookie_server.storage.modes.ring import (
    PREFIX,
    JournalRing,
    journal_names,
    journal_prefix,
)
from bookie_server.storage.modes.writers import (
    HAS_FAILED,
    DirectWriter,
    GroupWriter,
    JournalWriter,
    UnsyncedWriter,
)
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import StartupError

OnSynced = Callable[[WrittenMark], None]
OnFailed = Callable[[StorageError], None]


def number_name(shared: Shared) -> str:
    """Return the name of the number in shared memory that all runs of a directory use."""
    return f"ledgerlog-{shared.store.current.directory_id}"


def missing_journal(path: str, advice: str) -> MissingJournalError:
    """Return the error for a journal directory that does not exist.

    `advice` is the end of the message.
    """
    return MissingJournalError(
        f"the journal directory {path} does not exist. If its device is not mounted, mount it, and "
        f"start the bookie again. {advice}",
        path=path,
    )


def creation_of(path: str) -> str:
    """Return the advice for a missing journal directory that no earlier run needs."""
    return f"To use a new directory, create it first: mkdir -p -m 700 {path}"


@dataclass(slots=True)
class Journals:
    """The journal directories that this process has locked."""

    shared: Shared
    _open: dict[str, FileSystem] = field(default_factory=dict)

    async def at(self, path: str, advice: str) -> FileSystem:
        """Lock and return a journal directory.

        If it does not exist, `advice` ends the error message.

        Raises:
            DirectoryLockedError: Another process has locked the directory.
            MissingJournalError: The directory does not exist.
        """
        if path not in self._open:
            assert self.shared.open_directory is not None, "this storage has no journal"
            files = self.shared.open_directory(path)
            try:
                await files.lock(create=False)
            except MissingFileError as error:
                await files.unlock()
                raise missing_journal(path, advice) from error
            except BaseException:
                await files.unlock()
                raise
            self._open[path] = files
        return self._open[path]

    async def needed(self, run: BookieRun) -> FileSystem:
        """Return the journal directory of the last run, which did not stop cleanly."""
        return await self.at(
            run.journal,
            "The last run did not stop cleanly, so its newest entries may be only there. "
            f"{REPLACEMENT_ADVICE}",
        )

    async def remove_files(self, *, kept: str) -> None:
        """Remove the journal files of all runs that the MANIFEST lists, except of the run `kept`.

        If a journal directory cannot be used now, the MANIFEST still lists it, and the next start
        tries again. Files of other runs stay, because they belong to a copy of this directory.
        """
        shared = self.shared
        for journal in shared.journals:
            if journal.run_id != kept and await self._has_removed(journal):
                shared.journals = tuple(each for each in shared.journals if each != journal)

    async def _has_removed(self, journal: RunJournal) -> bool:
        prefix = journal_prefix(self.shared.store.current.directory_id, journal.run_id)
        try:
            files = await self.at(journal.path, "")
            for name in await files.names():
                if name.startswith(prefix):
                    await files.remove(name)
            # Without this sync, a power loss could bring back files that no MANIFEST lists.
            await files.sync_directory()
        except (StorageError, StartupError):
            return False
        return True

    async def unlock(self, *, kept: str = "") -> None:
        """Unlock all directories except `kept`."""
        for path in [path for path in self._open if path != kept]:
            await self._open.pop(path).unlock()


def journals_of(manifest: Manifest, *, is_moved: bool) -> tuple[RunJournal, ...]:
    """Return the runs of a directory that may have journal files."""
    if is_moved:
        return ()  # the journal files belong to the original directory
    run = manifest.run
    if run is None or not run.journal or any(j.run_id == run.run_id for j in manifest.journals):
        return manifest.journals
    return (*manifest.journals, RunJournal(run.run_id, run.journal))


def require_own_directory(shared: Shared) -> None:
    """Refuse a copy of a directory if the last run needs data outside of the directory.

    These data are a journal or a number in shared memory. They may belong to the original
    directory.

    Raises:
        MovedDirectoryError: The directory was moved or copied after an unclean end.
    """
    manifest = shared.store.current
    run = manifest.run
    if not shared.is_moved or run is None or (run.is_synced and not run.journal):
        return
    raise MovedDirectoryError(
        f"{shared.files.path} is a copy of {manifest.path}, or was moved from there, and its last "
        f"run (write mode {run.mode.value}) did not stop cleanly. The data that this run left "
        f"elsewhere may belong to the original. Start the bookie in {manifest.path}; if that "
        f"directory does not exist any more, first move {shared.files.path} there: mv "
        f"{shared.files.path} {manifest.path}",
        path=shared.files.path,
        moved_from=manifest.path,
    )


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The records of the last run, as a start finds them.

    Attributes:
        proved_upto: The largest sequence that the last run may have acknowledged, as its journal or
            its number in shared memory proves. It is 0 after a clean stop, after a run in direct
            mode, and if nothing is proved.
        loss: The reason why records of the run may be lost; "" if no record is lost.
    """

    proved_upto: int = 0
    loss: str = ""


async def take_over(shared: Shared, journals: Journals) -> TakenOver:
    """Make all records that the last run acknowledged readable in entry-log files, and sync them.

    Raises:
        DamagedDirectoryError: A journal file is missing.
    """
    run = shared.store.current.run
    if run is None:
        return TakenOver()
    if run.is_synced:
        proved = await redo(shared, await journals.needed(run), run) if run.needs_journal else 0
        return TakenOver(proved)
    number = await shared.files.surviving_number(number_name(shared), run.run_id)
    try:
        # The records that survived are synced, and are read from the device, even if other records
        # are lost. Without this, a repair could count an entry as stored that is only in the cache.
        await _sync_open_files(shared)
    except SyncFailedError:
        if number is not None:
            number.set(HAS_FAILED)  # a later sync would succeed despite the loss
        raise
    if number is None:
        return TakenOver(loss=_loss_of(run, "its number in shared memory is missing"))
    if number.get() == HAS_FAILED:
        return TakenOver(loss=_loss_of(run, "a write or a sync of its entries failed"))
    return TakenOver(number.get())


def _loss_of(run: BookieRun, reason: str) -> str:
    return (
        f"the last run (write mode {run.mode.value}) acknowledged entries before their sync, and "
        f"did not stop cleanly: {reason}"
    )


async def _sync_open_files(shared: Shared) -> None:
    """Sync the files that the last run wrote."""
    for entry in shared.store.current.files:
        if entry.state is FileState.OPEN:
            try:
                handle = await shared.files.open(entry.slot)
            except MissingFileError:
                continue  # the scan puts the file in doubt
            await handle.datasync()
            # The last run may have been killed before it could record a failed sync. Then this sync
            # succeeds, although the lost pages are missing on the device.
            await handle.drop_cache()
            await handle.close()


class RunFiles(OpenedFiles, Commits, Protocol):
    """The owner of the entry-log files and of the MANIFEST."""


@dataclass(slots=True)
class Mode:
    """The parts of a run that depend on the write mode."""

    run: BookieRun
    writer: GroupWriter
    checkpoints: Checkpoints | None = None
    ring: JournalRing | None = None
    survivor: SurvivingNumber | None = None

    def start(self) -> None:
        """Start the checkpoints, if the write mode has checkpoints."""
        if self.checkpoints is not None:
            self.checkpoints.start()

    def note_loss(self, error: StorageError, unfinished: Collection[str]) -> None:
        """Record an error if it may have lost written groups of the files `unfinished`.

        Other errors, such as a failed write of the MANIFEST, lose no entry.
        """
        is_loss = isinstance(error, SyncFailedError) and error.fields.get("path") in unfinished
        if is_loss and isinstance(self.writer, UnsyncedWriter):
            self.writer.fail()

    def fail(self, error: StorageError) -> None:
        """End all waits after a failure of the storage."""
        if self.checkpoints is not None:
            self.checkpoints.fail()
        if self.ring is not None:
            self.ring.fail(error)

    async def stop(self) -> None:
        """Sync all written groups, unless the storage has failed, and close the journal files."""
        if self.checkpoints is not None:
            await self.checkpoints.close()
        if self.ring is not None:
            await self.ring.close()


def new_run(shared: Shared) -> BookieRun:
    """Return a new run with the write mode of the settings."""
    settings = shared.settings.mode_settings
    is_journal = settings.write_mode is BookieWriteMode.JOURNAL
    return BookieRun(
        shared.files.random_bytes(8).hex(),
        settings.write_mode,
        is_synced=settings.write_mode is not BookieWriteMode.UNJOURNALED
        and (not is_journal or settings.journal_sync_data),
        journal=settings.journal_directory,
        journal_files=settings.journal_files if is_journal else 0,
        journal_file_bytes=shared.settings.file_size_bytes if is_journal else 0,
    )


async def prepare_mode(
    shared: Shared,
    files: RunFiles,
    journals: Journals,
    run: BookieRun,
    *,
    on_synced: OnSynced,
    on_failed: OnFailed,
) -> Mode:
    """Create the journal files and the number in shared memory, if the write mode needs them.

    Raises:
        StartupError: The journal's device has no room.
    """
    if run.mode is BookieWriteMode.DIRECT:
        return Mode(run, DirectWriter())
    ring = (
        await _create_ring(shared, journals, run) if run.mode is BookieWriteMode.JOURNAL else None
    )

    def synced(written: WrittenMark) -> None:
        if ring is not None:
            ring.release(written.sequence, written.place)
        if not run.is_synced:
            on_synced(written)

    checkpoints = Checkpoints(shared, files, synced, on_failed)
    if ring is not None:
        ring.on_full = checkpoints.request
    if run.is_synced:
        assert ring is not None
        return Mode(run, JournalWriter(ring, checkpoints), checkpoints, ring)
    survivor = await shared.files.surviving_number(number_name(shared), run.run_id, create=True)
    recorded = RecordedRun(shared, run, files)
    checkpoints.on_idle = recorded.note_idle
    writer = UnsyncedWriter(checkpoints, recorded, survivor, ring)
    return Mode(run, writer, checkpoints, ring, survivor)


async def require_journals(shared: Shared, journals: Journals) -> None:
    """Lock the journal directories of the last and of the new run, as far as the start needs them.

    The directory of the new run must not have files of other bookies.

    Raises:
        DirectoryLockedError: Another process has locked a needed journal directory.
        ForeignJournalError: The journal directory of the new run has journal files of another
            directory, or of a copy of this directory.
        MissingJournalError: A needed journal directory does not exist.
    """
    last = shared.store.current.run
    if last is not None and last.needs_journal:
        await journals.needed(last)
    path = shared.settings.mode_settings.journal_directory
    if not path:
        return
    files = await journals.at(path, creation_of(path))
    directory_id = shared.store.current.directory_id
    own = tuple(journal_prefix(directory_id, each.run_id) for each in shared.journals)
    foreign = [n for n in await files.names() if n.startswith(PREFIX) and not n.startswith(own)]
    if not foreign:
        return
    is_of_copy = bool(directory_id) and foreign[0].startswith(f"{PREFIX}{directory_id}-")
    raise ForeignJournalError(
        f"the journal directory {path} has {foreign[0]}, which belongs to "
        + ("another copy of this directory" if is_of_copy else "another directory of entries")
        + ", and may have the only copies of its entries; give each bookie a journal directory of "
        f"its own, or move the files {PREFIX}* elsewhere if nothing needs them",
        path=path,
    )


async def _create_ring(shared: Shared, journals: Journals, run: BookieRun) -> JournalRing:
    files = await journals.at(run.journal, "")
    try:
        return await JournalRing.create(
            files,
            journal_names(shared.store.current.directory_id, run),
            run,
            shared.tasks,
        )
    except DiskFullError as error:
        size = run.journal_files * run.journal_file_bytes
        raise StartupError(
            f"the journal needs {size} bytes in {run.journal} ({run.journal_files} files), and "
            f"the device has no room: {error.message}",
        ) from error
