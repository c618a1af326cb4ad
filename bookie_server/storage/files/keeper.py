"""Owns the files of a directory: the active file, the prepared next file, the finished files.

The MANIFEST names the next file before it is used. Therefore a roll needs no commit, and the
journal continues in the next file immediately. The maintenance coroutine then writes the index of
the full file, prepares another file and commits a MANIFEST. The next roll waits until the index is
durable. On a full disk, no next file can be prepared. In this case, regular adds are refused, and
only control records and recovery adds may use the rest of the active file.

Each commit frees the finished files without live entries. After the MANIFEST without these files is
durable, some of their slots are kept for reuse and the other slots are removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from bookie_server.core.index_format import decode_index_head
from bookie_server.core.manifest_codec import FileEntry, FileState, Manifest
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import DiskFullError, StorageError, TooManyFilesError
from bookie_server.ports import Buffer, Future
from bookie_server.storage.boot import Boot
from bookie_server.storage.files.entry_log_file import FinishedFile, OpenFile
from bookie_server.storage.files.handover import Handover, Switch
from bookie_server.storage.files.held import HeldFiles
from bookie_server.storage.files.pool import PooledFile
from bookie_server.storage.files.room import (
    CONTROL_RECORD_SIZE,
    INDEX_BYTES_PER_PIECE,
    PIECES_PER_STRETCH_MAX,
    RESERVE_FRACTION,
    room_for_drops,
    room_left,
)
from bookie_server.storage.files.slots import write_header
from bookie_server.storage.journal import append_encoded
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import run_in_slices
from bookie_server.storage.wake_ups import resolve, settle
from ledgerlog_spark.model import Code


class FileKeeper:
    """Owns all files of one directory after its boot."""

    def __init__(
        self,
        shared: Shared,
        boot: Boot,
        on_failed: Callable[[StorageError], None],
        on_state_change: Callable[[], None],
    ) -> None:
        assert boot.active is not None
        self._shared = shared
        self._tasks = shared.tasks
        self._health = shared.health
        self._on_failed = on_failed
        self._on_state_change = on_state_change
        self.slots = boot.slots
        self.handover = Handover()
        self.on_short: Callable[[], None] = lambda: None  # called when the disk has no room
        # Returns the number of accepted records that have no place in a file yet.
        self.records_queued: Callable[[], int] = lambda: 0
        self._next_file_id = 0
        self._is_retrying = False
        self._missing = boot.missing
        self._freed = boot.freed
        self._changed: Future[None] = self._tasks.future()
        self._due: Future[None] | None = None
        self._is_due = boot.spare is None
        self._ended: Future[None] = self._tasks.future()
        self._is_closing = False
        self._committed: list[Future[None]] = []
        self._unmarked: list[FinishedFile] = []
        self._leaving: dict[str, PooledFile] = {}
        # Called after a commit of the maintenance, which may have allocated or freed a file.
        self.on_commit: Callable[[], None] = lambda: None
        self.active = boot.active  # written by the journal
        self.full: OpenFile | None = None  # the previous file, until its index is durable
        self.spare = boot.spare  # the next file, which is prepared and named in the MANIFEST
        self.finished = HeldFiles(boot.finished, shared.states.tombstone_of)

    @property
    def opened(self) -> Sequence[OpenFile]:
        """The unfinished files that may hold entries, newest first. Their indexes are in memory."""
        return (self.active,) if self.full is None else (self.active, self.full)

    def has_file(self, file_id: int) -> bool:
        """Return whether the directory has this file and the file has not been freed."""
        return file_id in self.finished or any(file_id == f.entry.file_id for f in self.opened)

    def new_file_id(self) -> int:
        """Return a file id that this process has not used and no MANIFEST lists."""
        file_id = max(self._next_file_id, self._shared.store.current.next_file_id)
        self._next_file_id = file_id + 1
        return file_id

    @property
    def free_slots(self) -> list[str]:
        """The free slots that can be used now."""
        used = (*self._leaving, *self.handover.taken)
        return [slot for slot in self._shared.store.current.free_slots if slot not in used]

    def drop(self, ledger_id: int) -> None:
        """Apply a durable tombstone that deletes all stored entries of a ledger."""
        for file in self.opened:
            file.index.drop(ledger_id)
        self.finished.drop(ledger_id)

    @property
    def is_in_doubt(self) -> bool:
        """Whether any file is missing or in doubt. Such a file may contain any ledger's records."""
        return bool(self._still_missing() or self._health.unknown_files)

    def _still_missing(self) -> list[FileEntry]:
        """Return the missing files that are still listed because the doubt is not over."""
        return [] if self._health.doubt.is_over else self._missing

    def has_room_for(self, size: int, *, is_drop: bool = False) -> bool:
        """Return whether a record of `size` bytes fits in addition to all accepted records.

        The record must not be a regular add. While regular adds are accepted, there is a next file,
        so the result is True. Some room is reserved for deletions.
        """
        health = self._health
        if health.is_writable:
            return True
        room = room_left(self.active) + (0 if self.spare is None else room_left(self.spare))
        taken = 2 * health.in_flight_bytes + CONTROL_RECORD_SIZE * self.records_queued()
        if not is_drop:
            room -= room_for_drops(self.active, self._shared.settings.file_size_bytes)
        return taken + size <= room

    def refuses_control(self, *, is_drop: bool = False) -> Code | None:
        """Return the code for a control record that must be refused now, or None to accept it."""
        if self._health.has_failed or self._health.is_closing:
            return Code.IO_ERROR
        has_room = self.has_room_for(2 * CONTROL_RECORD_SIZE, is_drop=is_drop)
        return None if has_room else Code.READ_ONLY

    def must_roll(self, size: int, stretches: int) -> bool:
        """Return whether a record must go to the next file (see `JournalFiles`)."""
        active = self.active
        if active.end == RECORDS_START:
            return False
        index, settings = active.index, self._shared.settings
        pieces = PIECES_PER_STRETCH_MAX * stretches
        left = room_left(active) - active.entry.size_bytes // RESERVE_FRACTION
        if (
            size + INDEX_BYTES_PER_PIECE * pieces <= left
            and index.pieces + pieces <= settings.pieces_max
            and index.lists_bytes < settings.lists_bytes_max
        ):
            return False
        return self.spare is not None or self._health.is_writable

    async def roll(self) -> None:
        """Make the next file active; the full file gets its index later.

        If the disk has no room for a next file, nothing changes.
        """
        while self.spare is None or self.full is not None:
            # The index of the full file needs no new room, so this roll waits for the index even if
            # the bookie is not writable.
            if self._health.has_failed or (self.full is None and not self._health.is_writable):
                return
            await self._changed
        self._retire_active()
        self.active, self.spare = self.spare, None
        self.active.first_sequence = self._shared.sequences.next_sequence
        self.wake()

    def _retire_active(self) -> None:
        """Mark the active file as full. After this, only its finish record is added.

        Call this only while no group is being written.
        """
        assert self.full is None
        self.full = self.active
        self.full.finish_sequence = self._shared.sequences.next_sequence
        self._shared.sequences.next_sequence += 1

    async def finish_all(self) -> None:
        """Write and sync the indexes of all files with entries, at a clean stop."""
        await self._finish_full()
        # A file with only control records needs no index: the ledger-state file has their contents.
        if self.active.index.pieces:
            self._retire_active()
            await self._finish_full()

    async def _finish_full(self) -> None:
        """Write and sync the index of the full file, if there is a full file.

        The work is done in slices, and adds, reads and drops continue between the slices. If a
        ledger is dropped before the last slice, the index may keep the pieces of the ledger, but
        the tombstone of the ledger deletes their entries.
        """
        full = self.full
        if full is None:
            return
        encoding = full.index.encoding(full.identity)
        body, live_bytes = await run_in_slices(encoding, self._shared.give_way)
        record = JournalRecord(JournalRecordKind.FINISH, body=body)
        record.identity, record.offset = full.identity, full.end
        record.sequence = record.origin_sequence = full.finish_sequence
        record.durable_upto = full.finish_sequence - 1
        buffers: list[Buffer] = []
        self._shared.counters.journal_bytes_written += append_encoded(record, buffers)
        await full.handle.write(full.end, buffers)
        await full.handle.datasync()
        self._shared.counters.journal_syncs += 1
        entry = replace(
            full.entry,
            state=FileState.FINISHED,
            first_sequence=full.first_sequence,
            last_sequence=record.sequence - 1,
            data_end=full.end,
            finish_offset=full.end,
            live_bytes=live_bytes,
        )
        head = decode_index_head(body, full.identity)
        file = FinishedFile(entry, full.handle, full.identity, head, record.header_size)
        for _ in self.finished.adding(file):
            await self._tasks.give_way()
        self._unmarked.append(file)
        self.full = None
        self._notify()

    def wake(self) -> None:
        """Wake the maintenance coroutine."""
        self._is_due = True
        if self._due is not None:
            due, self._due = self._due, None
            resolve(due, None)

    async def commit_soon(self) -> None:
        """Commit the current state and wait for the commit.

        On return, the state is durable, unless the storage failed or ended or the disk is full.
        """
        if self._ended.done():
            return
        self._committed.append(committed := self._tasks.future())
        self.wake()
        await committed

    async def maintain(self) -> None:
        """Prepare files and commit the MANIFEST when necessary, until the keeper is closed."""
        try:
            while not self._is_closing and not self._health.has_failed:
                if not self._is_due:
                    self._due = self._tasks.future()
                    await self._due
                    continue
                self._is_due = False
                waiting, self._committed = self._committed, []
                try:
                    await self._catch_up()
                finally:
                    settle(waiting)
        except StorageError as error:
            self._on_failed(error)
        finally:
            resolve(self._ended, None)
            settle(self._committed)

    async def stop(self) -> None:
        """Stop the maintenance and wait for its end."""
        self._is_closing = True
        self.wake()
        await self._ended

    async def _catch_up(self) -> None:
        prepared: OpenFile | None = None
        taken = self.free_slots[:1] if self.spare is None else []
        self.handover.taken.update(taken)
        try:
            await self._finish_full()
            if self.spare is None:
                prepared = await self.slots.prepare(
                    self.new_file_id(),
                    taken[0] if taken else None,
                    others=self.free_slots,
                    borrowed_bytes=self.handover.borrowed_bytes,
                )
            await self.commit(prepared)
        except DiskFullError:
            if prepared is not None:
                await self.slots.discard(prepared)
            if await self._commit_without_spare():
                self._is_due = True
                return
            self._set_writable(is_writable=False)
            self._retry_later()
            self.on_short()
            return
        except TooManyFilesError:
            if prepared is not None:
                await self.slots.discard(prepared)
            # Without a next file, the bookie is read-only, as on a full disk.
            self._set_writable(is_writable=self.spare is not None)
            self._retry_later()
            return
        finally:
            self.handover.taken.difference_update(taken)
        if prepared is not None:
            self.spare = prepared
            self._shared.counters.files_recycled += prepared.is_recycled
        self._set_writable(is_writable=True)
        self.on_commit()

    async def _commit_without_spare(self) -> bool:
        """Commit without a next file. Return whether the commit freed a file."""
        counters = self._shared.counters
        freed = counters.files_freed
        try:
            await self.commit(None)
        except (DiskFullError, TooManyFilesError):
            # Without this commit, nothing is lost, because the next start reads the files. A retry
            # commits the same state later.
            return False
        return counters.files_freed > freed

    def _retry_later(self) -> None:
        if not self._is_retrying:
            self._is_retrying = True
            self._tasks.spawn("retry of the preparation of a file", self._retry())

    async def _retry(self) -> None:
        await self._tasks.sleep(self._shared.settings.allocation_retry_ms)
        self._is_retrying = False
        if not self._is_closing and not self._health.has_failed:
            self.wake()

    def _set_writable(self, *, is_writable: bool) -> None:
        before = self._health.is_writable
        self._health.is_writable = is_writable
        self._notify()
        if before != is_writable:
            self._on_state_change()

    def _notify(self) -> None:
        """Wake a roll that waits for a next file, or for the index of the full file."""
        changed, self._changed = self._changed, self._tasks.future()
        resolve(changed, None)

    def fail(self) -> None:
        """Wake the coroutines that wait for a next file, so that they end after a failure."""
        self._set_writable(is_writable=False)
        self.wake()

    async def commit(self, prepared: OpenFile | None, *, keep_open: bool = True) -> None:
        """Write a MANIFEST that lists the current files, with `prepared` as the next file.

        The MANIFEST is durable on return. At a clean stop, `keep_open` is False. Then the open
        files have no entries, and their slots become free. After a DiskFullError or
        TooManyFilesError, the old MANIFEST is still valid.
        """
        kept = self._health.unknown_files | self.handover.owned
        dead = self.finished.dead(kept)
        for file in dead:
            # From now on, no read finds an entry in the file. Its slot is in use until the commit.
            self.finished.remove(file)
            self._freed.append(file.entry.slot)
            self._leaving[file.entry.slot] = file.handle
        unmarked = [file for file in self._unmarked if file not in dead]
        for file in unmarked:
            await write_header(file.handle, file.entry)
        freed: list[str] = []
        switch: Switch | None = None

        def compose() -> Manifest:
            nonlocal switch
            switch = self.handover.due
            left = () if switch is None else switch.sources
            freed[:] = [*self._freed, *(file.entry.slot for file in left)]
            return self._compose(prepared, freed, keep_open=keep_open)

        await self._shared.store.commit(compose, self._shared.states)
        if switch is not None:
            await self._remove_sources(switch)
        manifest = self._shared.store.current
        self._unmarked = [file for file in self._unmarked if file not in (*unmarked, *dead)]
        self._freed = [slot for slot in self._freed if slot not in freed]
        for file in unmarked:
            await self._cut(file)
        for slot in freed:
            await self._release(slot, is_kept=slot in manifest.free_slots)
        if not keep_open:
            await self._remove_unlisted(manifest)

    async def _remove_unlisted(self, manifest: Manifest) -> None:
        """Remove the open files that the MANIFEST of a clean stop does not list."""
        listed = {*manifest.free_slots, *(entry.slot for entry in manifest.files)}
        for opened in (self.active, self.spare):
            if opened is not None and opened.entry.slot not in listed:
                await opened.handle.close()
                with contextlib.suppress(StorageError):  # the next start removes the file
                    await self._shared.store.remove_slot(opened.entry.slot)

    async def _remove_sources(self, switch: Switch) -> None:
        """Stop reading the sources of a durable switch, so that the caller can free their slots."""
        switch.is_done = True
        self.handover.switch = self.handover.borrowed = None
        for file in switch.sources:
            self._leaving[file.entry.slot] = file.handle
            for _ in self.finished.removing(file):
                await self._tasks.give_way()
            # Damage that was found during the switch has no effect any more.
            self._health.files_in_doubt.discard(file.entry.file_id)
            self._health.damaged_files.discard(file.entry.file_id)

    async def withdraw(self, copies: FinishedFile) -> None:
        """Remove a file of copies that no MANIFEST lists, when no reading uses it any more."""
        for _ in self.finished.removing(copies):
            await self._tasks.give_way()
        slot = copies.entry.slot
        self._leaving[slot] = copies.handle
        await self._release(slot, is_kept=slot in self._shared.store.current.free_slots)

    async def _cut(self, file: FinishedFile) -> None:
        """Cut a file after its index. The durable MANIFEST already lists the file as finished."""
        # Before that MANIFEST, a file that is shorter than its allocation would count as damaged.
        file.handle.may_close()
        # After an error, the next start cuts the file.
        with contextlib.suppress(TooManyFilesError, DiskFullError):
            await file.handle.truncate(file.end)

    async def _release(self, slot: str, *, is_kept: bool) -> None:
        """Free a slot that the durable MANIFEST lists as free or does not list."""
        self._shared.counters.files_freed += 1
        handle = self._leaving.get(slot)
        if handle is None or not handle.pins or self._is_closing:
            await self._drop_file(slot, is_kept=is_kept)
            return

        def unpinned() -> None:
            # After a stop, the directory may belong to another process.
            if not self._is_closing:
                self._tasks.spawn("release of a file", self._drop_file(slot, is_kept=is_kept))

        handle.on_unpinned = unpinned

    async def _drop_file(self, slot: str, *, is_kept: bool) -> None:
        """Close a freed file, and remove it unless it is kept for reuse."""
        try:
            if slot in self._leaving:
                # An operation of the file may still run, so wait for its end.
                await self._leaving[slot].close()
                del self._leaving[slot]
            if not is_kept:
                with contextlib.suppress(DiskFullError):  # the next start removes the file
                    await self._shared.store.remove_slot(slot)
        except StorageError as error:
            self._on_failed(error)

    def _compose(self, prepared: OpenFile | None, freed: list[str], *, keep_open: bool) -> Manifest:
        before = self._shared.store.current
        # If the directory is a copy, it must not have the id of the original.
        is_moved = self._shared.is_moved
        directory_id = "" if is_moved else before.directory_id
        for file in self.finished:
            if file.entry.live_bytes != file.live_bytes:
                file.entry = replace(file.entry, live_bytes=file.live_bytes)
        unlisted = self.handover.unlisted
        files = [file.entry for file in self.finished if file not in unlisted]
        files += self._still_missing()
        opened = [
            replace(opened.entry, first_sequence=opened.first_sequence)
            for opened in (self.full, self.active, self.spare, prepared)
            if opened is not None
        ]
        used = {entry.slot for entry in (*files, *opened)}
        free = [slot for slot in (*before.free_slots, *freed) if slot not in used]
        if keep_open:
            files += opened
        else:
            free += sorted({entry.slot for entry in opened} - {entry.slot for entry in files})
        return replace(
            before,
            next_file_id=max(
                [self._next_file_id, before.next_file_id, *(e.file_id + 1 for e in files + opened)]
            ),
            durable_upto=max(before.durable_upto, self._shared.sequences.durable_sequence),
            check_epoch=self._health.check_epoch,
            doubt=self._health.doubt,
            directory_id=directory_id or self._shared.files.random_bytes(8).hex(),
            previous_id=before.directory_id if is_moved else before.previous_id,
            path=self._shared.files.path,
            starts=self._shared.starts,
            changes=self._shared.changes,
            run=self._shared.run,
            journals=self._shared.journals,
            highest_dropped_ledger_id=self._health.highest_dropped_ledger_id,
            files=tuple(sorted(files, key=lambda entry: entry.file_id)),
            free_slots=tuple(free[: self._shared.settings.pool_files_max]),
        )
