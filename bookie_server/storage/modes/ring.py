"""The journal files of one run, which are written in turn and reused (FORMATS.md#journal-files)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie_server.core.bookie_run import BookieRun
from bookie_server.core.group_copy import (
    ALIGNMENT,
    GroupCopy,
    checksum_of,
    encode_copy_head,
    size_of_copy,
)
from bookie_server.core.record import FileIdentity
from bookie_server.errors import DiskFullError, StorageError, journal_failed
from bookie_server.ports import Buffer, File, FileSystem, Future, Tasks
from bookie_server.storage.wake_ups import resolve

PREFIX = "journal-"
PADDING = bytes(ALIGNMENT)


def journal_prefix(directory_id: str, run_id: str) -> str:
    """Return the start of the names of all journal files of one run."""
    return f"{PREFIX}{directory_id}-{run_id}-"


def journal_names(directory_id: str, run: BookieRun) -> list[str]:
    """Return the names of the journal files of a run."""
    return [
        f"{journal_prefix(directory_id, run.run_id)}{number:02d}"
        for number in range(run.journal_files)
    ]


@dataclass(slots=True)
class RingFile:
    """One journal file."""

    handle: File
    last_sequence: int = 0  # sequence of the last record in the file; 0 while it has no copy


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """The end of a copy in a journal file."""

    number: int  # number of the file in the ring
    name: str
    offset: int


class JournalRing:
    """Appends copies of groups to the journal files of a run.

    A file is reused after `release` was called for all its records. If no file can be reused, an
    append waits. Appends are written in the order of the calls.
    """

    def __init__(
        self,
        files: list[RingFile],
        run: BookieRun,
        tasks: Tasks,
        *,
        is_synced: bool,
    ) -> None:
        self._files = files
        # The groups of all copies up to this place are synced in entry-log files.
        self.mark = JournalPlace(0, files[0].handle.name, 0)
        self._path = run.journal
        self._run_id = bytes.fromhex(run.run_id)
        self._size_bytes = run.journal_file_bytes
        self._tasks = tasks
        self._is_synced = is_synced
        self._current = 0
        self._offset = 0
        self._number = 0
        self._last_sequence = 0
        self._released = 0  # all records up to this sequence are synced in entry-log files
        self._turn: Future[None] | None = None  # ends when the newest append has its place
        self._room: Future[None] | None = None  # ends when a file may have become free
        self._last_write: Future[None] | None = None  # ends when the newest copy is written or lost
        self._failure: StorageError | None = None  # after a failure, no copy is written
        # Called when an append begins to wait for a file.
        self.on_full: Callable[[], None] = lambda: None

    @classmethod
    async def create(
        cls, files: FileSystem, names: Sequence[str], run: BookieRun, tasks: Tasks
    ) -> JournalRing:
        """Create the files of a run, with all their blocks. They are durable on return.

        Raises:
            DiskFullError: The journal's device has no room for the files; they are removed.
        """
        ring_files: list[RingFile] = []
        try:
            for name in names:
                ring_files.append(RingFile(await files.open(name, create=True)))
                await ring_files[-1].handle.allocate(run.journal_file_bytes)
                await ring_files[-1].handle.datasync()
            await files.sync_directory()
        except DiskFullError:
            for file in ring_files:
                await file.handle.close()
                await files.remove(file.handle.name)
            raise
        return cls(ring_files, run, tasks, is_synced=run.is_synced)

    async def append(
        self,
        identity: FileIdentity,
        offset: int,
        buffers: Sequence[Buffer],
        sequences: tuple[int, int],
    ) -> JournalPlace:
        """Write the copy of a group, and return its end. Unless the run syncs later, sync the copy.

        `sequences` are the sequences of the first and the last record. The group must not be larger
        than a journal file.

        Raises:
            JournalFailedError: The copy may or may not be on the device. No later copy is written.
        """
        size = sum(map(len, buffers))
        before, self._turn = self._turn, self._tasks.future()
        mine = self._turn
        try:
            if before is not None:
                await before
            await self._make_room(size_of_copy(size))
            place = self._offset
            file = self._files[self._current]
            self._number += 1
            self._offset += size_of_copy(size)
            end = JournalPlace(self._current, file.handle.name, self._offset)
            file.last_sequence = sequences[1]
            copy = GroupCopy(
                run_id=self._run_id,
                number=self._number,
                first_sequence=sequences[0],
                last_sequence=sequences[1],
                file_id=identity.file_id,
                salt=identity.salt,
                offset=offset,
                size=size,
                checksum=checksum_of(buffers),
                journal_file=self._current,
                journal_offset=place,
                needed_from=self._released + 1,
                previous_sequence=self._last_sequence,
            )
            self._last_sequence = sequences[1]
            written = self._last_write = self._tasks.future()
        finally:
            resolve(mine, None)
        parts = [encode_copy_head(copy), *buffers]
        if size % ALIGNMENT:
            parts.append(PADDING[: -size % ALIGNMENT])
        try:
            if self._is_synced:
                await file.handle.write_synced(place, parts)
            else:
                await file.handle.write_in_order(place, parts)
        except StorageError as error:
            failed = journal_failed(file.handle.name, self._path, error.message, is_needed=True)
            self.fail(failed)
            raise failed from error
        finally:
            resolve(written, None)
        return end

    async def _make_room(self, size: int) -> None:
        """If the current file is full, wait until the next file is free, and make it current."""
        assert size <= self._size_bytes
        while self._failure is None and self._offset + size > self._size_bytes:
            following = (self._current + 1) % len(self._files)
            if self._last_write is not None and not self._last_write.done():
                # After a failed copy, only the same file refuses further copies. So a copy in the
                # next file waits until all copies in this file are written.
                await self._last_write
            elif self._files[following].last_sequence <= self._released:
                self._current, self._offset = following, 0
            else:
                self._room = self._tasks.future()
                self.on_full()
                await self._room
        if self._failure is not None:
            raise self._failure

    def release(self, sequence: int, mark: JournalPlace | None) -> None:
        """Allow the reuse of files that have no record after `sequence`.

        All records up to `sequence` are synced in entry-log files. `mark` is the end of the copy
        that contains the record with this sequence.
        """
        self._released = max(self._released, sequence)
        self.mark = mark or self.mark
        if self._room is not None:
            resolve(self._room, None)

    def fail(self, error: StorageError) -> None:
        """End the wait of an append with `error`, and write no further copy."""
        self._failure = self._failure or error
        if self._room is not None:
            resolve(self._room, None)

    async def close(self) -> None:
        """Close the files. A failed close loses no copy, because each copy was synced."""
        for file in self._files:
            with contextlib.suppress(StorageError):
                await file.handle.close()
