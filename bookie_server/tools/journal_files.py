"""The journal files of a stopped bookie, and the copies of groups in each file, as rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bookie_server.core.bookie_run import BookieRun, BookieWriteMode, RunJournal
from bookie_server.core.group_copy import HEAD_SIZE, GroupCopy, checksum_of
from bookie_server.errors import MissingFileError, StorageError
from bookie_server.ports import FileSystem
from bookie_server.storage.modes.redo import copies_in
from bookie_server.storage.modes.ring import journal_names, journal_prefix
from bookie_server.storage.modes.setup import journals_of
from bookie_server.storage.replay import WINDOW_SIZE, FileWindow
from bookie_server.tools.directory import RestingDirectory, locked_files
from bookie_server.tools.excerpts import Excerpt, Row, excerpt_of
from ledgerlog_spark.errors import ConfigurationError, StartupError

VALID = "valid"
TORN = "torn"
"""State of the newest copy of a run, if it is incomplete. A power loss may have interrupted its
write."""
DAMAGED = "damaged"
"""State of a copy with a valid head and a damaged group, unless it is the newest copy. Also the
state of a file with such a copy."""
UNREADABLE = "unreadable"
"""State of a place where a copy was expected, but has no valid head. Also the state of a file that
the device cannot read."""
OLDER = "older"
"""State of a copy that an earlier pass through the file has written. No start uses such a copy."""
MISSING = "missing"
CUT_OFF = "cut off"


@dataclass(slots=True)
class _Copy:
    """A copy in a journal file, or a place without a valid head (`head` is None)."""

    offset: int
    head: GroupCopy | None
    state: str


async def journal_files(directory: RestingDirectory) -> list[Row]:
    """Return the journal files that the MANIFEST lists, and the number of groups in each file.

    A directory or a file that cannot be read has a row with the reason.
    """
    rows: list[Row] = []
    for journal in journals_of(directory.manifest, is_moved=False):
        rows += await _files_of(directory, journal)
    return rows


async def journal_copies(directory: RestingDirectory, name: str, start: int, limit: int) -> Excerpt:
    """Return the copies in one journal file. The keys are offsets in the journal file.

    Raises:
        ConfigurationError: The MANIFEST lists no run with this file.
        StorageError: The file is missing, or the device cannot read it.
        DirectoryLockedError: Another process has locked the journal directory.
    """
    manifest = directory.manifest
    for journal in journals_of(manifest, is_moved=False):
        if name.startswith(journal_prefix(manifest.directory_id, journal.run_id)):
            break
    else:
        raise ConfigurationError(
            f"the MANIFEST of {directory.path} lists no run with a journal file {name!r}; "
            f"`ledgerlog bookie inspect journal {directory.path}` shows all journal files",
            path=name,
        )
    newest = max((row["last_copy"] or 0 for row in await _files_of(directory, journal)), default=0)
    slots = {(file.file_id, bytes.fromhex(file.salt)): file.slot for file in manifest.files}
    async with locked_files(Path(journal.path)) as files:
        copies = [each async for each in _copies_of(files, name, journal.run_id)]
    for each in copies:
        if each.state == DAMAGED and each.head is not None and each.head.number == newest:
            each.state = TORN
    return excerpt_of(((each.offset, _row_of_copy(each, slots)) for each in copies), start, limit)


async def _files_of(directory: RestingDirectory, journal: RunJournal) -> list[Row]:
    """Return the rows of the journal files of one run."""
    manifest = directory.manifest
    is_last = manifest.run is not None and manifest.run.run_id == journal.run_id
    run = manifest.run if is_last else None
    prefix = journal_prefix(manifest.directory_id, journal.run_id)
    try:
        async with locked_files(Path(journal.path)) as files:
            present = {name for name in await files.names() if name.startswith(prefix)}
            names = (
                present if run is None else present.union(journal_names(manifest.directory_id, run))
            )
            rows = [await _row_of_file(files, name, journal, run) for name in sorted(names)]
    except (StorageError, StartupError) as error:
        state = MISSING if isinstance(error, MissingFileError) else UNREADABLE
        return [_new_row("", journal, run) | {"state": state, "reason": error.message}]
    newest = max((row["last_copy"] or 0 for row in rows), default=0)
    for row in rows:
        is_newest = row["last_copy"] == newest
        if row["state"] == DAMAGED and is_newest and row["damage"] == row["torn"] == 1:
            row["state"] = TORN
        del row["torn"]
    return rows


def _new_row(name: str, journal: RunJournal, run: BookieRun | None) -> Row:
    is_needed = run is not None and run.mode is BookieWriteMode.JOURNAL and run.is_synced
    numbers = ("size_bytes", "groups", "damage", "older_groups")
    ends = ("first_copy", "last_copy", "first_sequence", "last_sequence", "needed_from")
    return {
        "name": name,
        "directory": journal.path,
        "run_id": journal.run_id,
        "is_needed": is_needed,
        "state": VALID,
        "reason": "",
        **dict.fromkeys(numbers, 0),
        **dict.fromkeys(ends),
    }


async def _row_of_file(
    files: FileSystem, name: str, journal: RunJournal, run: BookieRun | None
) -> Row:
    row = _new_row(name, journal, run) | {"torn": 0}
    try:
        handle = await files.open(name)
        row["size_bytes"] = await handle.size()
        await handle.close()
        async for each in _copies_of(files, name, journal.run_id):
            _count(row, each)
    except StorageError as error:
        row["state"] = MISSING if isinstance(error, MissingFileError) else UNREADABLE
        row["reason"] = error.message
        return row
    if row["damage"]:
        row["state"] = DAMAGED
    if run is not None and row["size_bytes"] < run.journal_file_bytes:
        row["state"] = CUT_OFF
        row["reason"] = f"it has {row['size_bytes']} of {run.journal_file_bytes} bytes"
    return row


def _count(row: Row, each: _Copy) -> None:
    """Add a copy to the row of its file. `torn` is 1 while the newest copy is damaged."""
    if each.state == OLDER:
        row["older_groups"] += 1
        return
    row["damage"] += each.state != VALID
    copy = each.head
    if copy is None:
        return
    row["groups"] += 1
    row["torn"] = int(each.state != VALID)
    if row["first_copy"] is None:
        row["first_copy"], row["first_sequence"] = copy.number, copy.first_sequence
    row["last_copy"], row["last_sequence"] = copy.number, copy.last_sequence
    row["needed_from"] = copy.needed_from


async def _copies_of(files: FileSystem, name: str, run_id: str) -> AsyncIterator[_Copy]:
    """Yield the copies in a journal file and the damage between them, in order of offset."""
    number = name.rpartition("-")[2]
    if not number.isdecimal():
        return
    handle = await files.open(name)
    try:
        window = FileWindow(handle, min(await handle.size(), await handle.data_end()))
        newest = end = 0
        async for copy in copies_in(window, bytes.fromhex(run_id), int(number)):
            if copy.number < newest:
                yield _Copy(copy.journal_offset, copy, OLDER)
                continue
            if copy.journal_offset > end:
                yield _Copy(end, None, UNREADABLE)
            newest, end = copy.number, copy.end
            is_whole = await _is_whole(window, copy)
            yield _Copy(copy.journal_offset, copy, VALID if is_whole else DAMAGED)
        if not newest and any(await window.get(0, HEAD_SIZE)):
            yield _Copy(0, None, UNREADABLE)
    finally:
        await handle.close()


async def _is_whole(window: FileWindow, copy: GroupCopy) -> bool:
    at, checksum = copy.journal_offset + HEAD_SIZE, 0
    end = at + copy.size
    while at < end:
        data = await window.get(at, min(WINDOW_SIZE, end - at))
        if not data:
            return False
        checksum = checksum_of((data,), checksum)
        at += len(data)
    return checksum == copy.checksum


def _row_of_copy(each: _Copy, slots: dict[tuple[int, bytes], str]) -> Row:
    copy = each.head
    if copy is None:
        names = (
            "copy", "size_bytes", "first_sequence", "last_sequence", "file_id", "slot",
            "file_offset", "needed_from", "previous_sequence",
        )  # fmt: skip
        return {"offset": each.offset, **dict.fromkeys(names), "state": each.state}
    return {
        "offset": each.offset,
        "copy": copy.number,
        "size_bytes": copy.size,
        "first_sequence": copy.first_sequence,
        "last_sequence": copy.last_sequence,
        "file_id": copy.file_id,
        # The slot is None if the MANIFEST does not list the file. In this case, a start does not
        # replay the group.
        "slot": slots.get((copy.file_id, copy.salt)),
        "file_offset": copy.offset,
        "needed_from": copy.needed_from,
        "previous_sequence": copy.previous_sequence,
        "state": each.state,
    }
