"""Writes the damaged indexes of finished files again."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.errors import CorruptRecordError, MissingFileError
from bookie_server.ports import Buffer
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.entry_log_file import FinishedFile, read_block
from bookie_server.storage.files.finished_scan import scan_finished
from bookie_server.storage.journal import append_encoded
from bookie_server.storage.reading.readings import finish
from bookie_server.storage.slices import run_in_slices
from bookie_server.tools.directory import RestingDirectory

INTACT = "intact"
REBUILT = "rebuilt"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The result for the index of one file.

    Attributes:
        slot: Name of the file.
        outcome: `intact`, `rebuilt` or `refused`.
        reason: The damage, or the reason why the index was not written.
        pieces: Number of pieces in the new index.
    """

    slot: str
    outcome: str
    reason: str = ""
    pieces: int = 0


async def rebuild_indexes(directory: RestingDirectory, wanted: FileEntry | None) -> list[Rebuild]:
    """Write the damaged indexes again, from the records of their files.

    `wanted` is the only file to check. If it is None, all finished files are checked. An index is
    not written if a record of the file is not readable and its ledger is unknown. With a new index,
    a bookie would deny that the entries of that record exist.
    """
    files = directory.entries(FileState.FINISHED) if wanted is None else (wanted,)
    return [await _rebuild(directory, entry) for entry in files]


async def _rebuild(directory: RestingDirectory, entry: FileEntry) -> Rebuild:
    if entry.state is not FileState.FINISHED:
        return Rebuild(
            entry.slot, REFUSED, "the file is open, and gets its index at the next start"
        )
    try:
        damage = await _damage_of(directory, entry)
    except MissingFileError as error:
        return Rebuild(entry.slot, REFUSED, error.message)
    if not damage:
        return Rebuild(entry.slot, INTACT)
    file = directory.finished(entry)
    scan = await scan_finished(file)
    if not scan.is_whole:
        return Rebuild(
            entry.slot,
            REFUSED,
            "a record of the file is not readable, so its entries must stay unknown",
        )
    shared = directory.shared
    # All entries of one ledger in a file are either older or newer than the ledger's tombstone.
    index = await run_in_slices(scan.index(shared.states.tombstone_of), shared.give_way)
    await _write(directory, file, index, scan.last_sequence)
    return Rebuild(entry.slot, REBUILT, damage, index.pieces)


async def _damage_of(directory: RestingDirectory, entry: FileEntry) -> str:
    """Return the message about damage in the index of a file, or "" if the index is intact."""
    try:
        file = await directory.indexed(entry)
        assert file.head is not None
        for number in range(len(file.head.keys)):
            await finish(read_block(file, number))
            file.blocks.clear()
    except CorruptRecordError as error:
        return error.message
    return ""


async def _write(
    directory: RestingDirectory, file: FinishedFile, index: ActiveIndex, last: int
) -> None:
    """Write the finish record of a file again, at the same offset.

    After a crash during the write, the index is still damaged.
    """
    entry = file.entry
    encoding = index.encoding(file.identity)
    body, _ = await run_in_slices(encoding, directory.shared.give_way)
    record = JournalRecord(JournalRecordKind.FINISH, body=body)
    record.identity, record.offset = file.identity, entry.finish_offset
    record.sequence = record.origin_sequence = last + 1
    record.durable_upto = entry.last_sequence
    buffers: list[Buffer] = []
    append_encoded(record, buffers)
    await file.handle.write(record.offset, buffers)
    await file.handle.datasync()
