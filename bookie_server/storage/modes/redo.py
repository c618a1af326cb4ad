"""Writes the groups of a run from its journal files into the entry-log files again.

The boot calls `redo` after an unclean end of a run with a journal, before it scans the entry-log
files. After that, the scan finds all records that the run acknowledged, as after a run without a
journal. A second `redo` after a crash writes the same bytes to the same places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import zip_longest

from bookie_server.core.bookie_run import BookieRun
from bookie_server.core.group_copy import (
    ALIGNMENT,
    HEAD_SIZE,
    MAGIC,
    GroupCopy,
    checksum_of,
    decode_copy_head,
)
from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record_codec import MAGIC as RECORD_MAGIC
from bookie_server.errors import DamagedDirectoryError, MissingFileError
from bookie_server.ports import File, FileSystem
from bookie_server.storage.files.pool import PooledFile
from bookie_server.storage.modes.ring import journal_names
from bookie_server.storage.replay import WINDOW_SIZE, FileWindow
from bookie_server.storage.shared import Shared


@dataclass(slots=True)
class ScannedFile:
    """A journal file, and the heads of its needed copies in ascending order of their numbers.

    A copy is not needed if its records are synced in entry-log files. So `copies` stays short.
    """

    handle: File
    end: int
    copies: deque[GroupCopy] = field(default_factory=deque)

    def take(self, copy: GroupCopy) -> None:
        """Add a head to `copies`, unless it was written in an earlier pass through the file."""
        copies = self.copies
        if copies and copy.number < copies[-1].number:
            return
        copies.append(copy)
        while copies[0].last_sequence < copy.needed_from:
            copies.popleft()


async def redo(shared: Shared, journal: FileSystem, run: BookieRun) -> int:
    """Write the groups of a run into the entry-log files that the MANIFEST lists as open.

    The groups are synced on return. The result is the largest sequence for which the journal proves
    that the record was acknowledged or is complete. All records up to this sequence must be
    readable now.

    Raises:
        DamagedDirectoryError: A journal file is missing.
    """
    scanned = await _scan(shared, journal, run)
    try:
        return await _redo_copies(shared, scanned)
    finally:
        for file in scanned:
            await file.handle.close()


async def _redo_copies(shared: Shared, scanned: list[ScannedFile]) -> int:
    copies = sorted((copy for file in scanned for copy in file.copies), key=_number)
    if not copies:
        return 0
    # The last copy has the newest mark. All records before this mark are synced in entry-log files.
    needed = [copy for copy in copies if copy.last_sequence >= copies[-1].needed_from]
    # A copy is written only after the previous copy is synced.
    proved = copies[-1].previous_sequence
    handles = {file.copies[0].journal_file: file for file in scanned if file.copies}
    opened = _Targets(shared)
    for copy, following in zip_longest(needed, needed[1:]):
        file = handles[copy.journal_file]
        start = copy.journal_offset + HEAD_SIZE
        body = await file.handle.read(start, copy.size)
        if len(body) != copy.size or checksum_of((body,)) != copy.checksum:
            continue  # torn or damaged copy: the scan decides whether the file lacks the group
        if await opened.write(copy, body, following):
            shared.counters.boot_redone_groups += 1
        proved = max(proved, copy.last_sequence)
    await opened.sync()
    return proved


def _number(copy: GroupCopy) -> int:
    return copy.number


async def _scan(shared: Shared, journal: FileSystem, run: BookieRun) -> list[ScannedFile]:
    """Open all journal files of a run and read their heads."""
    present = await journal.names()
    names = journal_names(shared.store.current.directory_id, run)
    for name in names:
        if name not in present:
            raise DamagedDirectoryError(
                f"the journal file {name} in {run.journal} is missing, and the last run of this "
                "bookie did not stop cleanly. The file has entries that may be in no other file "
                "of this bookie: restore the journal directory, or replace the bookie",
                path=name,
                reason="missing",
            )
    handles = [await journal.open(name) for name in names]
    await _require_whole(handles, run)
    scanned: list[ScannedFile] = []
    for number, handle in enumerate(handles):
        # After a SIGKILL, the last copies may be in the page cache only. A power loss could destroy
        # one of these copies after this boot has used it. Then the next boot would find fewer
        # records than this boot.
        await handle.datasync()
        file = ScannedFile(handle, min(await handle.size(), await handle.data_end()))
        scanned.append(file)
        await _scan_file(file, bytes.fromhex(run.run_id), number)
        await shared.give_way()
    return scanned


async def _require_whole(handles: list[File], run: BookieRun) -> None:
    """Raise DamagedDirectoryError if a journal file is shorter than its allocated size.

    The files of a run got this size before the MANIFEST named the run. A shorter file may lack
    copies at its end, and these copies would look like copies that were never written.
    """
    sizes = {handle.name: await handle.size() for handle in handles}
    name = min(sizes, key=lambda name: sizes[name])
    if sizes[name] >= run.journal_file_bytes:
        return
    for handle in handles:
        await handle.close()
    raise DamagedDirectoryError(
        f"the journal file {name} in {run.journal} has {sizes[name]} of {run.journal_file_bytes} "
        "bytes, and the last run of this bookie did not stop cleanly. The lost bytes may have held "
        "entries that are in no other file of this bookie: restore the journal directory, or "
        "replace the bookie",
        path=name,
        reason="cut off",
    )


async def _scan_file(file: ScannedFile, run_id: bytes, journal_file: int) -> None:
    """Collect the copies of the last pass through a file."""
    async for copy in copies_in(FileWindow(file.handle, file.end), run_id, journal_file):
        file.take(copy)


async def copies_in(
    window: FileWindow, run_id: bytes, journal_file: int
) -> AsyncIterator[GroupCopy]:
    """Yield the valid heads in a journal file, in the order of their offsets.

    Copies of an earlier pass through the file come after the copies of the last pass.
    """
    offset = 0
    while offset < window.end:
        data = await window.get(offset, HEAD_SIZE)
        copy = decode_copy_head(data, run_id, journal_file, offset)
        if copy is None:
            following = await _next_head(window, offset + ALIGNMENT)
            if following is None:
                return
            offset = following
            continue
        yield copy
        offset = copy.end


async def _next_head(window: FileWindow, offset: int) -> int | None:
    """Return the next place at or after `offset` that may hold a head, or None."""
    at = offset
    while at < window.end:
        data = await window.get(at, WINDOW_SIZE)
        found = data.find(MAGIC)
        while found >= 0:
            if found % ALIGNMENT == 0:
                return at + found
            found = data.find(MAGIC, found + 1)
        at += max(len(data) // ALIGNMENT, 1) * ALIGNMENT
    return None


class _Targets:
    """The open entry-log files, as the MANIFEST lists them."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._files: dict[int, FileEntry] = {
            entry.file_id: entry
            for entry in shared.store.current.files
            if entry.state is FileState.OPEN
        }
        self._handles: dict[int, PooledFile | None] = {}

    async def write(self, copy: GroupCopy, body: bytes, following: GroupCopy | None) -> bool:
        """Write a group to its place. If its file is finished or does not exist, return False.

        A finished file was synced before the MANIFEST listed it as finished. `following` is the
        next copy that has a readable head.
        """
        entry = self._files.get(copy.file_id)
        if entry is None or bytes.fromhex(entry.salt) != copy.salt:
            return False
        if copy.file_id not in self._handles:
            try:
                self._handles[copy.file_id] = await self._shared.files.open(entry.slot)
            except MissingFileError:
                self._handles[copy.file_id] = None  # the scan puts the file in doubt
        handle = self._handles[copy.file_id]
        if handle is None:
            return False
        if await self._has_lost_its_end_mark(handle, copy, body, following):
            body = body[:-ALIGNMENT]
        await handle.write(copy.offset, (body,))
        return True

    async def _has_lost_its_end_mark(
        self, handle: PooledFile, copy: GroupCopy, body: bytes, following: GroupCopy | None
    ) -> bool:
        """Return whether the next group was written over the end mark of this group.

        Such a mark must not be rewritten, because the new mark would destroy the first record of
        the next group. The next group may have no usable copy: its copy may be damaged, or may be
        overwritten because the group is already synced.
        """
        at = copy.offset + copy.size - ALIGNMENT
        if following is not None and following.number == copy.number + 1:
            return (following.file_id, following.offset) == (copy.file_id, at)
        sector = await handle.read(at, ALIGNMENT)
        is_record = sector[:4] == RECORD_MAGIC and sector[16:24] == copy.file_id.to_bytes(8, "big")
        return is_record and not any(body[-ALIGNMENT:])

    async def sync(self) -> None:
        """Sync and close all files that were written."""
        for handle in self._handles.values():
            if handle is not None:
                await handle.datasync()
                await handle.close()
