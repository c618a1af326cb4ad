"""Decides at boot which scanned records are torn or damaged (FORMATS.md#torn-or-damaged).

A bad record counts as damaged if `durable_upto` of the MANIFEST or of any valid record proves that
the bad record was synced. Otherwise the bad record counts as torn. A valid record later in the file
is no proof of a sync, because the system writes pages back in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bookie_server.core.record import JournalRecord, JournalRecordKind


@dataclass(slots=True)
class Gap:
    """Bytes in which a record was expected, but no readable record was found."""

    offset: int
    sequence: int  # expected sequence of the first record in the gap
    record: JournalRecord | None = None  # the header of the record, if only the body is damaged
    is_blank: bool = False  # whether the gap has only zeros, or an earlier file's record start


@dataclass(slots=True)
class FileScan:
    """All records of one file and the gaps between the records, in order of offset."""

    records_start: int
    next_sequence: int  # the sequence after the last record's sequence
    records: list[JournalRecord] = field(default_factory=list)  # verified, without bodies
    gaps: list[Gap] = field(default_factory=list)  # without a finish record, the file ends in a gap

    @property
    def is_finished(self) -> bool:
        """Whether the last record is a finish record."""
        return bool(self.records) and self.records[-1].kind is JournalRecordKind.FINISH


@dataclass(slots=True)
class FileVerdict:
    """The result of `judge` for the records of one file."""

    kept: list[JournalRecord]  # synced records, except finish and watermark records
    unreadable: list[JournalRecord]  # synced records with a damaged body, which cannot be read
    rewritten: list[JournalRecord]  # valid records without proof of a sync; copied to a new file
    was_cut: bool  # whether bytes that may have been a record are discarded
    has_damage: bool  # whether a synced record of an unknown ledger is lost
    last_sequence: int  # sequence of the last valid record, 0 when there is none
    next_sequence: int  # the sequence after all kept, unreadable and rewritten records
    data_end: int  # first byte after the last valid record
    write_from: int  # first byte without valid data

    def leave_out(self, is_obsolete: Callable[[JournalRecord], bool]) -> None:
        """Remove obsolete synced records from the verdict. Their bytes stay in the file."""
        self.kept = [record for record in self.kept if not is_obsolete(record)]
        self.unreadable = [record for record in self.unreadable if not is_obsolete(record)]


def synced_upto(scans: list[FileScan], durable_upto: int) -> int:
    """Return the largest sequence proved to be synced; `durable_upto` is from the MANIFEST."""
    return max(durable_upto, *(r.durable_upto for scan in scans for r in scan.records), 0)


def largest_sequence(scans: list[FileScan], durable_upto: int) -> int:
    """Return the largest sequence in any file, including discarded records at the ends of files."""
    seen = (r.sequence for scan in scans for r in scan.records)
    expected = (scan.next_sequence - 1 for scan in scans)
    return max(durable_upto, 0, *seen, *expected)


def judge(
    scan: FileScan, synced: int, *, previous: FileScan | None, following: FileScan | None
) -> FileVerdict:
    """Decide what happens to the records of one file.

    For the first file, `previous` is None. For the last file, `following` is None.
    """
    was_reached = bool(scan.records) or previous is None or previous.is_finished
    counted = [r for r in scan.records if r.kind is not JournalRecordKind.FINISH]
    kept = [r for r in counted if r.sequence <= synced]
    damaged = [g.record for g in scan.gaps if g.record is not None]
    unreadable = [
        r for r in damaged if r.sequence <= synced and r.kind is not JournalRecordKind.FINISH
    ]
    torn = [g for g in scan.gaps if g.sequence > synced]
    cut_at = min((g.offset for g in torn), default=None)
    tail = [r for r in counted if r.sequence > synced]
    rewritten = [r for r in tail if cut_at is None or r.offset < cut_at]
    last = max((*kept, *unreadable), key=lambda r: r.offset, default=None)
    data_end = scan.records_start if last is None else last.offset + last.size
    return FileVerdict(
        kept=[r for r in kept if r.kind is not JournalRecordKind.WATERMARK],
        unreadable=unreadable,
        rewritten=[r for r in rewritten if r.kind is not JournalRecordKind.WATERMARK],
        was_cut=len(rewritten) < len(tail) or any(not g.is_blank for g in torn),
        has_damage=was_reached
        and any(_hides_a_record(gap, scan, synced, following) for gap in scan.gaps),
        last_sequence=0 if last is None else last.sequence,
        next_sequence=max(
            (r.sequence + 1 for r in (*kept, *unreadable, *rewritten)),
            default=min((g.sequence for g in scan.gaps), default=scan.next_sequence),
        ),
        data_end=data_end,
        write_from=max((r.offset + r.size for r in rewritten), default=data_end),
    )


def _hides_a_record(gap: Gap, scan: FileScan, synced: int, following: FileScan | None) -> bool:
    """Return whether a synced record in the gap is lost, so that its ledger is unknown.

    If only the finish record is missing in the gap, the result is False, because the other records
    of the file contain the same information. In this case, the following file starts at most one
    sequence after the sequence that is expected in the gap.
    """
    if gap.record is not None or gap.sequence > synced:
        return False
    is_last = gap is scan.gaps[-1] and not (scan.records and scan.records[-1].offset > gap.offset)
    if is_last and following is not None and following.records:
        return following.records[0].sequence > gap.sequence + 1
    return True
