"""Verifies the files of a directory: all checksums, and the relations between the files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

from bookie_server.core.manifest_codec import FileEntry, FileState, Manifest
from bookie_server.core.record import JournalRecord
from bookie_server.core.slot_header import (
    HEADER_AREA_SIZE,
    SECTOR_OFFSETS,
    SECTOR_SIZE,
    decode_slot_header,
)
from bookie_server.errors import CorruptRecordError, StorageError
from bookie_server.ports import File
from bookie_server.storage.files.entry_log_file import FinishedFile, read_body, read_header
from bookie_server.storage.files.finished_scan import FinishedScan, scan_finished
from bookie_server.storage.files.manifest import NEW_NAME, is_slot_name, is_state_name
from bookie_server.storage.open_files import Replayed
from bookie_server.storage.reading.readings import finish
from bookie_server.tools.check_index import compare_index
from bookie_server.tools.directory import RestingDirectory, unfinished_run

PORTION_SIZE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect of the files.

    Attributes:
        file: Name of the file.
        offset: Offset of the damage in bytes; None if the damage has no single place.
        what: Description of the defect.
    """

    file: str
    offset: int | None
    what: str


@dataclass(slots=True)
class Report:
    """The result of a check.

    Attributes:
        limit: Maximum number of defects in `findings`. `wrong` counts all defects.
        findings: The first defects.
        notes: Conditions that are no defects, but may need an action of an operator.
        wrong: Number of all defects.
        seen: Numbers of the verified items, by kind.
    """

    limit: int
    findings: list[Defect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def find(self, file: str, offset: int | None, what: str) -> None:
        """Count a defect, and add it to `findings` if there is room."""
        self.wrong += 1
        if len(self.findings) < self.limit:
            self.findings.append(Defect(file, offset, what))

    def note(self, text: str) -> None:
        """Add a note if there is room."""
        if len(self.notes) < self.limit:
            self.notes.append(text)


async def check(directory: RestingDirectory, limit: int) -> Report:
    """Verify all files of a directory without changing them, and return the result."""
    report = Report(limit)
    manifest = directory.manifest
    _check_manifest(directory, report)
    tombstones = {each: state.tombstone for each, state in directory.shared.states.items()}
    replayed = await directory.replay()
    report.seen["ledgers"] = len(directory.shared.states)
    for entry in manifest.files:
        report.seen["files"] += 1
        if entry.slot not in directory.names:
            report.find(entry.slot, None, "the file is missing, but the MANIFEST lists it")
            continue
        try:
            await _check_header(directory.shared.files.at(entry.slot), entry, report)
            if entry.state is FileState.FINISHED:
                await _check_finished(directory, entry, tombstones, report)
        except StorageError as error:
            report.find(entry.slot, None, error.message)
    for file in replayed:
        _check_open(file, report)
    if warning := unfinished_run(manifest):
        report.note(warning)
    return report


def _check_manifest(directory: RestingDirectory, report: Report) -> None:
    """Check that the MANIFEST is consistent, and compare it with the names in the directory."""
    manifest, names = directory.manifest, directory.names
    ids = [entry.file_id for entry in manifest.files]
    if ids != sorted(set(ids)) or (ids and ids[-1] >= manifest.next_file_id):
        report.find("MANIFEST", None, "the ids of the files are not in order")
    slots = Counter([*(entry.slot for entry in manifest.files), *manifest.free_slots])
    for slot, uses in slots.items():
        if uses > 1:
            report.find("MANIFEST", None, f"{slot} is listed {uses} times")
    for entry in manifest.files:
        if entry.has_damage:
            report.find(entry.slot, None, "the MANIFEST lists the file as damaged")
    for slot in manifest.free_slots:
        if slot not in names:
            report.note(f"{slot} is listed as free, but does not exist; the bookie creates it")
    known = _names_listed(manifest)
    for name in sorted(names - known):
        if is_slot_name(name) or is_state_name(name) or name == NEW_NAME:
            report.note(f"the MANIFEST does not list {name}; the next start removes it")


def _names_listed(manifest: Manifest) -> set[str]:
    slots = {entry.slot for entry in manifest.files}
    return {manifest.state_file, *manifest.free_slots, *slots}


async def _check_header(handle: File, entry: FileEntry, report: Report) -> None:
    data = await handle.read(0, HEADER_AREA_SIZE)
    header = decode_slot_header(data)
    is_intact = header is not None and header.identity(entry.slot) == entry.identity
    if not is_intact:
        report.find(entry.slot, 0, "the header does not have the identity that the MANIFEST lists")
    for start in SECTOR_OFFSETS:
        sector = data[start : start + SECTOR_SIZE]
        alone = (bytes(start) + sector).ljust(HEADER_AREA_SIZE, b"\0")
        if is_intact and any(sector) and decode_slot_header(alone) is None:
            # A crash may leave one torn sector. The other sector is sufficient.
            report.note(f"{entry.slot} has a damaged header sector at byte {start}")
    report.seen["headers"] += 1


async def _check_finished(
    directory: RestingDirectory, entry: FileEntry, tombstones: dict[int, int], report: Report
) -> None:
    file = directory.finished(entry)
    scan = await scan_finished(file)
    _count_records(scan.records, report)
    _check_records(scan, report)
    size = await file.handle.size()
    if size < entry.finish_offset:
        report.find(entry.slot, size, "the file ends before its index")
        return
    await _check_finish_record(file, report)
    try:
        file = await directory.indexed(entry)
        comparison = await compare_index(file, scan, tombstones, directory.shared.give_way)
    except CorruptRecordError as error:
        report.find(entry.slot, entry.finish_offset, error.message)
        return
    report.seen["pieces"] += comparison.pieces
    for what in comparison.wrong:
        report.find(entry.slot, entry.finish_offset, what)
    if comparison.live_bytes != entry.live_bytes:
        report.find(
            "MANIFEST",
            None,
            f"{entry.slot} has {comparison.live_bytes} live bytes, but the MANIFEST lists "
            f"{entry.live_bytes}",
        )


def _check_records(scan: FinishedScan, report: Report) -> None:
    """Report the damaged and the missing records of a finished file."""
    for gap in scan.gaps:
        if gap.record is not None:
            report.find(scan.entry.slot, gap.offset, _damaged(gap.record))
    for gap in scan.lost:
        report.find(scan.entry.slot, gap.offset, f"the record {gap.sequence} is not readable")


def _damaged(record: JournalRecord) -> str:
    ids = record.entry_ids
    what = f"entries {ids[0]} to {ids[-1]} of ledger {record.ledger_id}" if ids else "its body"
    return f"the record {record.sequence} is damaged: {what}"


async def _check_finish_record(file: FinishedFile, report: Report) -> None:
    """Verify the checksums of the record that contains the index."""
    entry = file.entry
    try:
        record = await finish(read_header(file.handle, file.identity, entry.finish_offset))
        for start in count(0, PORTION_SIZE_BYTES):
            if start >= record.body_size:
                break
            end = min(start + PORTION_SIZE_BYTES, record.body_size)
            await finish(read_body(file.handle, record, start, end))
    except CorruptRecordError as error:
        report.find(entry.slot, entry.finish_offset, error.message)
        return
    report.seen["records"] += 1


def _check_open(file: Replayed, report: Report) -> None:
    verdict, slot = file.verdict, file.entry.slot
    _count_records(file.scan.records, report)
    for record in verdict.unreadable:
        report.find(slot, record.offset, _damaged(record))
    if file.is_short:
        report.find(slot, None, "the file is shorter than the MANIFEST lists")
    if verdict.has_damage and file.handle is not None and not file.is_short:
        report.find(slot, None, "a synced record is not readable, and its ledger is unknown")
    if verdict.was_cut:
        report.note(f"{slot} ends with a torn record, which the next start cuts off")


def _count_records(records: list[JournalRecord], report: Report) -> None:
    report.seen["records"] += len(records)
    for record in records:
        report.seen["entries"] += len(record.entry_ids)
        report.seen["bytes"] += record.size
