"""The content of the files of a directory, as rows for tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from bookie_server.core.doubt import Doubt
from bookie_server.core.index_format import PIECES_PER_BLOCK
from bookie_server.core.ledger_gate import is_in_limbo
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record import JournalRecord
from bookie_server.core.replay_decision import Gap
from bookie_server.errors import CorruptRecordError, MissingFileError
from bookie_server.storage.files.entry_log_file import held_spans, read_block, read_header
from bookie_server.storage.files.finished_scan import scan_finished
from bookie_server.storage.files.index_rebuilds import rebuild_index
from bookie_server.storage.files.manifest import UNCLEAN_NAME
from bookie_server.storage.reading.readings import finish
from bookie_server.tools.directory import RestingDirectory
from bookie_server.tools.excerpts import Excerpt, Row, excerpt_of
from ledgerlog_spark.errors import ConfigurationError, LedgerNotFoundError

VALID = "valid"
DAMAGED = "damaged"
"""State of a record with a valid header and a damaged body."""
UNREADABLE = "unreadable"
"""State of a row without a record: a record was expected at this offset, but has no valid
header."""


def manifest_fields(directory: RestingDirectory) -> Row:
    """Return the fields of the MANIFEST, except the list of its files."""
    manifest = directory.manifest
    return {
        "generation": manifest.generation,
        "directory_id": manifest.directory_id or None,
        "starts": manifest.starts,
        "changes": manifest.changes,
        "is_clean": UNCLEAN_NAME not in directory.names,
        "run": None if manifest.run is None else manifest.run.to_json(),
        "next_file_id": manifest.next_file_id,
        "durable_upto": manifest.durable_upto,
        "state_file": manifest.state_file,
        "state_bytes": manifest.state_bytes,
        "check_epoch": manifest.check_epoch,
        "doubt": manifest.doubt.to_json(),
        "highest_dropped_ledger_id": manifest.highest_dropped_ledger_id,
        "free_slots": list(manifest.free_slots),
        "files": len(manifest.files),
    }


def manifest_files(directory: RestingDirectory, start: int, limit: int) -> Excerpt:
    """Return the files that the MANIFEST lists. The keys of the excerpt are file ids."""
    return excerpt_of(
        (
            (
                entry.file_id,
                {
                    **asdict(entry),
                    "state": entry.state.value,
                    "is_present": entry.slot in directory.names,
                },
            )
            for entry in directory.manifest.files
        ),
        start,
        limit,
    )


async def journal(directory: RestingDirectory, start: int, limit: int) -> Excerpt:
    """Return the records of the open files in the order of the journal.

    The keys of the excerpt are sequence numbers.
    """
    replayed = await directory.replay()
    return excerpt_of(
        (
            (row["sequence"], row)
            for file in replayed
            for row in _rows_of_scan(file.entry, file.scan.records, file.scan.gaps)
        ),
        start,
        limit,
    )


async def entry_log(
    directory: RestingDirectory, entry: FileEntry, start: int, limit: int
) -> Excerpt:
    """Return the records of one file. The keys of the excerpt are offsets in the file."""
    if entry.state is FileState.OPEN:
        [replayed] = [file.scan for file in await directory.replay() if file.entry == entry]
        rows = list(_rows_of_scan(entry, replayed.records, replayed.gaps))
    else:
        file = directory.finished(entry)
        scan = await scan_finished(file)
        rows = list(_rows_of_scan(entry, scan.records, scan.gaps))
        offset = entry.finish_offset
        try:
            record = await finish(read_header(file.handle, file.identity, offset))
            rows.append(_row_of(entry, record, VALID))
        except CorruptRecordError:
            rows.append(_unreadable(entry, offset, scan.last_sequence + 1))
    return excerpt_of(((row["offset"], row) for row in rows), start, limit)


def _rows_of_scan(
    entry: FileEntry, records: Iterable[JournalRecord], gaps: Iterable[Gap]
) -> Iterator[Row]:
    shown = [gap for gap in gaps if not gap.is_blank and not _is_end(entry, gap.offset)]
    rows = [_row_of(entry, record, VALID) for record in records]
    rows += [
        _unreadable(entry, gap.offset, gap.sequence)
        if gap.record is None
        else _row_of(entry, gap.record, DAMAGED)
        for gap in shown
    ]
    return iter(sorted(rows, key=lambda row: row["offset"]))


def _is_end(entry: FileEntry, offset: int) -> bool:
    """Return whether the records of a finished file end at or before this offset."""
    return entry.state is FileState.FINISHED and offset >= entry.data_end


def _row_of(entry: FileEntry, record: JournalRecord, state: str) -> Row:
    ids = record.entry_ids
    return {
        "sequence": record.sequence,
        "kind": record.kind.name.lower(),
        "ledger_id": record.ledger_id,
        "first_entry_id": ids[0] if ids else None,
        "last_entry_id": ids[-1] if ids else None,
        "entries": len(ids),
        "value": None if ids else record.value,
        "epoch": None if ids else record.epoch,
        "is_recovery": record.is_recovery,
        "body_bytes": record.body_size,
        "file_id": entry.file_id,
        "offset": record.offset,
        "origin_sequence": record.origin_sequence,
        "durable_upto": record.durable_upto,
        "state": state,
    }


def _unreadable(entry: FileEntry, offset: int, sequence: int) -> Row:
    names = ("kind", "ledger_id", "first_entry_id", "last_entry_id", "entries", "value", "epoch")
    others = ("is_recovery", "body_bytes", "origin_sequence", "durable_upto")
    row: Row = dict.fromkeys((*names, *others))
    return row | {
        "sequence": sequence,
        "file_id": entry.file_id,
        "offset": offset,
        "state": UNREADABLE,
    }


async def index(directory: RestingDirectory, entry: FileEntry, start: int, limit: int) -> Excerpt:
    """Return the pieces in the index of a finished file.

    The keys of the excerpt are the numbers of the pieces, counted from 0.

    Raises:
        ConfigurationError: The file is open, so it has no index.
        CorruptRecordError: The head of the index, or a block of the excerpt, is damaged.
    """
    if entry.state is FileState.OPEN:
        raise ConfigurationError(
            f"{entry.slot} is open, and gets its index at the next start; `ledgerlog bookie "
            f"inspect entrylog {directory.path} {entry.file_id}` shows its records",
            path=entry.slot,
        )
    file = await directory.indexed(entry)
    assert file.head is not None
    end = min(file.head.pieces, start + limit)
    rows: list[Row] = []
    for number in range(start // PIECES_PER_BLOCK, -(-end // PIECES_PER_BLOCK)):
        block = await finish(read_block(file, number))
        file.blocks.clear()
        for place in range(len(block)):
            piece_number = number * PIECES_PER_BLOCK + place
            if start <= piece_number < end:
                ledger_id, piece = block.piece_at(place)
                rows.append(
                    {
                        "piece": piece_number,
                        "ledger_id": ledger_id,
                        "first_entry_id": piece.first,
                        "last_entry_id": piece.last,
                        "origin_sequence": piece.origin,
                        "record_offset": piece.target,
                        "place": piece.place,
                    }
                )
    return Excerpt(rows, end if end < file.head.pieces else None)


async def ledgers(directory: RestingDirectory, start: int, limit: int) -> Excerpt:
    """Return the states of all ledgers. The keys of the excerpt are ledger ids."""
    await directory.replay()
    states, doubt = directory.shared.states, directory.manifest.doubt
    return excerpt_of(
        ((ledger_id, state_fields(states[ledger_id], doubt)) for ledger_id in sorted(states)),
        start,
        limit,
    )


async def ledger(
    directory: RestingDirectory, ledger_id: int, start: int, limit: int
) -> tuple[Row, Excerpt]:
    """Return the state of a ledger, and the ranges of its live entries in each file.

    The keys of the ranges are their numbers, counted from 0.

    Raises:
        LedgerNotFoundError: The directory has no state of the ledger.
    """
    replayed = await directory.replay()
    state = directory.shared.states.get(ledger_id)
    if state is None:
        raise LedgerNotFoundError(
            f"{directory.path} has no ledger {ledger_id}; "
            f"`ledgerlog bookie inspect ledger {directory.path}` shows all ledgers",
            ledger_id=ledger_id,
        )
    rows: list[Row] = []
    for entry in directory.entries(FileState.FINISHED):
        rows += await _ranges_in(directory, entry, state)
    for file in replayed:
        verdict = file.verdict
        rows += [
            _range(file.entry, record.entry_ids[0], record.entry_ids[-1])
            for record in (*verdict.kept, *verdict.unreadable, *verdict.rewritten)
            if record.ledger_id == ledger_id
            and record.entry_ids
            and record.origin_sequence > state.tombstone
        ]
    return state_fields(state, directory.manifest.doubt), excerpt_of(enumerate(rows), start, limit)


async def _ranges_in(directory: RestingDirectory, entry: FileEntry, state: HeldLedger) -> list[Row]:
    ledger_id = state.ledger_id
    try:
        file = await directory.index_or_rebuilt(entry)
    except MissingFileError:
        return [_range(entry, None, None)]
    if file.rebuilt is None:
        try:
            spans = await finish(held_spans(file, ledger_id, state.tombstone))
        except CorruptRecordError:
            await rebuild_index(file, directory.shared)
        else:
            return [_range(entry, first, last) for first, last in spans]
    assert file.rebuilt is not None
    pieces = file.rebuilt.pieces_of(ledger_id)
    return [_range(entry, p.first, p.last) for p in pieces if p.origin > state.tombstone]


def _range(entry: FileEntry, first: int | None, last: int | None) -> Row:
    state = "missing" if first is None else entry.state.value
    return {
        "file_id": entry.file_id,
        "slot": entry.slot,
        "file_state": state,
        "first_entry_id": first,
        "last_entry_id": last,
    }


def state_fields(state: HeldLedger, doubt: Doubt) -> Row:
    """Return the state of a ledger without its master key."""
    return {
        "ledger_id": state.ledger_id,
        "is_fenced": state.is_fenced,
        "has_key": state.master_key is not None,
        "last_add_confirmed": state.lac,
        "is_lac_known": state.is_lac_known,
        "tombstone": state.tombstone,
        "dropped_s": state.dropped_s,
        "is_released": state.is_released,
        "is_unverified": state.is_unverified,
        "check_epoch": state.check_epoch,
        "cleared_epoch": state.cleared_epoch,
        "in_limbo": is_in_limbo(state, doubt),
    }
