"""Reads the files that the MANIFEST lists as open, and decides which of their records are valid.

The boot uses this module, and so do the tools for the files of stopped bookies. It changes no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bookie_server.core.ledger_state import HeldLedger, HeldLedgers
from bookie_server.core.manifest_codec import FileEntry, FileState, Manifest
from bookie_server.core.record import NO_KEY, JournalRecord, JournalRecordKind
from bookie_server.core.replay_decision import FileScan, FileVerdict, judge
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import MissingFileError
from bookie_server.storage.files.pool import FilePool, PooledFile
from bookie_server.storage.replay import Scanner


@dataclass(slots=True)
class Replayed:
    """One file that the MANIFEST lists as open, and the result of its replay."""

    entry: FileEntry
    handle: PooledFile | None  # None if the file is missing
    scan: FileScan
    is_short: bool = False
    verdict: FileVerdict = field(init=False)


async def scan_open_files(files: FilePool, manifest: Manifest) -> list[Replayed]:
    """Read the records of all open files, in the order of the journal."""
    replayed: list[Replayed] = []
    finished = [e for e in manifest.files if e.state is FileState.FINISHED]
    expected = max((e.last_sequence for e in finished), default=0) + 1
    for entry in manifest.files:
        if entry.state is not FileState.OPEN:
            continue
        expected = entry.first_sequence or expected
        try:
            handle = await files.open(entry.slot)
        except MissingFileError:
            replayed.append(Replayed(entry, None, FileScan(RECORDS_START, expected)))
            continue
        size, data_end = await handle.size(), await handle.data_end()
        # The first record of this file may have been written before the finish record of the
        # previous file was durable.
        is_next = not entry.first_sequence and bool(replayed)
        scan = await Scanner(handle, entry, min(size, data_end)).scan(
            expected, may_lack_finish=is_next and not replayed[-1].scan.is_finished
        )
        # A file gets its whole size before the MANIFEST lists it, so a shorter file lost data.
        is_short = size < entry.size_bytes
        replayed.append(Replayed(entry, handle, scan, is_short=is_short))
        expected = scan.next_sequence
    return replayed


def judge_all(
    replayed: list[Replayed], synced: int, manifest: Manifest, states: HeldLedgers
) -> None:
    """Set the verdict of each file. All records up to the sequence `synced` were synced.

    `states` are the states of the MANIFEST. A commit writes all states together with the sequence
    `durable_upto`. So if a ledger has a record up to this sequence and no state, the bookie has
    forgotten the ledger. The records of a forgotten ledger are left out, because they would restore
    a part of its state, and another directory may have become the home of the ledger.
    """
    scans = [file.scan for file in replayed]
    for number, file in enumerate(replayed):
        file.verdict = judge(
            file.scan,
            synced,
            previous=scans[number - 1] if number else None,
            following=scans[number + 1] if number + 1 < len(scans) else None,
        )
        # If the MANIFEST marks the file, the file counts as damaged even if no damage was found,
        # because an earlier start may have overwritten the damaged bytes with an index.
        was_damaged = file.handle is None or file.is_short or file.entry.has_damage
        file.verdict.has_damage |= was_damaged
        file.verdict.leave_out(
            lambda record: (
                record.sequence <= manifest.durable_upto and record.ledger_id not in states
            )
        )


def apply(record: JournalRecord, state: HeldLedger) -> None:
    """Update the state of a ledger with one of the ledger's records."""
    if record.kind is JournalRecordKind.RUN:
        is_keyless = record.is_recovery and record.master_key == NO_KEY  # from a repair
        if state.master_key is None and not is_keyless:
            state.master_key = record.master_key
        state.last_add_confirmed = max(state.last_add_confirmed, record.last_add_confirmed)
    elif record.kind is JournalRecordKind.FENCE:
        if state.master_key is None:
            state.master_key = record.master_key
        state.is_fenced = True
    elif record.kind is JournalRecordKind.LAC:
        state.explicit_lac = max(state.explicit_lac, record.value)
    elif record.kind is JournalRecordKind.LIMBO:
        state.explicit_lac = max(state.explicit_lac, record.value)
        state.cleared_epoch = max(state.cleared_epoch, record.epoch)
    elif record.kind is JournalRecordKind.TOMBSTONE:
        if state.master_key is None and record.master_key != NO_KEY:
            state.master_key = record.master_key
        state.bury(record.origin_sequence, record.value, is_release=record.is_release)
