"""Checkpoints: syncs of entry-log files whose groups were written without a sync.

In the write modes `journal` and `unjournaled`, the adds of a group are acknowledged when the group
is in the page cache, but perhaps not yet synced in its entry-log file. A checkpoint syncs these
files, and reports the last synced record. A checkpoint begins on request, after an interval, and
after a number of written bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bookie_server.errors import FreedFileError, StorageError
from bookie_server.ports import Future
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.modes.ring import JournalPlace
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import resolve, settle


@dataclass(frozen=True, slots=True)
class WrittenMark:
    """The last record that was written to an entry-log file."""

    sequence: int = 0
    ticket: int = 0
    place: JournalPlace | None = None  # the end of the record's copy in a journal file


class OpenedFiles(Protocol):
    """The owner of the entry-log files."""

    @property
    def opened(self) -> Sequence[OpenFile]:
        """The files that may have unsynced records. All other files are synced."""


class Checkpoints:
    """Runs the checkpoints of one storage, one after the other.

    `on_synced` is called with the last synced record, before waiting coroutines continue.
    """

    def __init__(
        self,
        shared: Shared,
        files: OpenedFiles,
        on_synced: Callable[[WrittenMark], None],
        on_failed: Callable[[StorageError], None],
    ) -> None:
        self._shared = shared
        self._files = files
        self._tasks = shared.tasks
        self._on_synced = on_synced
        self._on_failed = on_failed
        # Called after an interval in which nothing was written, if everything is synced.
        self.on_idle: Callable[[], None] = lambda: None
        self._written = self._synced = WrittenMark()
        self._unsynced_bytes = 0
        self._is_due = False
        self._is_closing = False
        self._due: Future[None] | None = None
        self._waiting: list[Future[None]] = []
        self._ended: Future[None] = self._tasks.future()

    @property
    def is_synced(self) -> bool:
        """Whether all written groups are synced."""
        return self._written == self._synced

    def start(self) -> None:
        """Start the checkpoints."""
        self._tasks.spawn("checkpoints", self._run())
        self._tasks.spawn("checkpoints' clock", self._tick())

    def wrote(self, written: WrittenMark, size_bytes: int, *, is_synced: bool = False) -> None:
        """Note that a group was written to an entry-log file.

        If `is_synced` is true, this group and all groups before it are synced there.
        """
        self._written = written
        if is_synced:
            self._synced = written
            return
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= self._shared.settings.mode_settings.checkpoint_bytes:
            self.request()

    def request(self) -> None:
        """Begin a checkpoint soon. It covers all groups that are written when it begins."""
        self._is_due = True
        if self._due is not None:
            resolve(self._due, None)

    async def sync_now(self) -> None:
        """Wait until all groups that are written now are synced, or the storage has failed."""
        if self.is_synced or self._ended.done():
            return
        waiting: Future[None] = self._tasks.future()
        self._waiting.append(waiting)
        self.request()
        await waiting

    async def close(self) -> None:
        """Run a last checkpoint, unless the storage has failed, and end."""
        await self.sync_now()
        self._is_closing = True
        self.request()
        await self._ended

    def fail(self) -> None:
        """End all waits, because the storage has failed."""
        self._is_closing = True
        self.request()
        settle(self._waiting)

    async def _tick(self) -> None:
        before = self._written
        while True:
            await self._tasks.sleep(self._shared.settings.mode_settings.checkpoint_interval_ms)
            if self._is_closing:
                return
            if not self.is_synced:
                self.request()
            elif self._written == before:
                self.on_idle()
            before = self._written

    async def _run(self) -> None:
        try:
            while not self._is_closing:
                if not self._is_due:
                    self._due = self._tasks.future()
                    await self._due
                    continue
                self._is_due = False
                await self._checkpoint()
        except StorageError as error:
            self._on_failed(error)
        finally:
            resolve(self._ended, None)
            settle(self._waiting)

    async def _checkpoint(self) -> None:
        written, self._unsynced_bytes = self._written, 0
        waiting, self._waiting = self._waiting, []
        try:
            for file in self._files.opened:
                # A file that was freed in the meantime has no live record.
                with contextlib.suppress(FreedFileError):
                    await file.handle.datasync()
            self._shared.counters.checkpoints += 1
            self._synced = written
            self._on_synced(written)
        finally:
            settle(waiting)
