"""Torn or damaged? What a boot makes of the records it scanned (FORMATS.md#torn-or-damaged).

A bad record is damage when something that was written later vouches that it had been synced:
`durable_upto` of any valid record, the MANIFEST, or a finish record. Otherwise it is a torn tail:
page write-back has no order, so that valid records lie behind it proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bookie_server.core.record import JournalRecord, RecordKind


@dataclass(slots=True)
class Gap:
    """Bytes where a record was expected and none could be read.

    Attributes:
        offset: Of the first byte.
        sequence: That the first record in it must have had.
        record: Its header, when only the body is damaged.
        is_blank: Nothing was ever written there by this file: the first sector is zeros, or
            begins a record of an earlier file in the same slot.
    """

    offset: int
    sequence: int
    record: JournalRecord | None = None
    is_blank: bool = False


@dataclass(slots=True)
class FileScan:
    """All records of one file, and the gaps between them, in order of offset.

    Attributes:
        records_start: Where the first record starts.
        records: Valid, headers and bodies verified; bodies not kept.
        gaps: The last one stands for the end of a file that was not finished.
        next_sequence: Of the record after the last.
    """

    records_start: int
    next_sequence: int
    records: list[JournalRecord] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        """Whether the last record is a finish record."""
        return bool(self.records) and self.records[-1].kind is RecordKind.FINISH


@dataclass(slots=True)
class FileVerdict:
    """What is kept of one file.

    Attributes:
        kept: Vouched records, which stay where they are, without finish and watermark records.
        unreadable: Vouched records with a damaged body: known to exist, never served.
        rewritten: Valid records after them, up to the first bad one: written again elsewhere.
        was_cut: Something that may have been a record is left behind.
        has_damage: A vouched record is gone without a trace of whose it was.
        last_sequence: Of the last record that counts, 0 when there is none.
        next_sequence: Of the first record that neither counts nor is written again.
        data_end: First byte after that record.
        write_from: First byte that holds nothing of value.
    """

    kept: list[JournalRecord]
    unreadable: list[JournalRecord]
    rewritten: list[JournalRecord]
    was_cut: bool
    has_damage: bool
    last_sequence: int
    next_sequence: int
    data_end: int
    write_from: int


def vouched_upto(scans: list[FileScan], durable_upto: int) -> int:
    """The largest sequence that anything vouches for; `durable_upto` is the MANIFEST's."""
    return max(durable_upto, *(r.durable_upto for scan in scans for r in scan.records), 0)


def largest_sequence(scans: list[FileScan], durable_upto: int) -> int:
    """The largest sequence seen anywhere, cut tails included."""
    seen = (r.sequence for scan in scans for r in scan.records)
    expected = (scan.next_sequence - 1 for scan in scans)
    return max(durable_upto, 0, *seen, *expected)


def judge(
    scan: FileScan, vouched: int, *, previous: FileScan | None, following: FileScan | None
) -> FileVerdict:
    """Decide what is kept of one file.

    Args:
        scan: Of the file.
        vouched: Sequence known to be synced.
        previous: Scan of the file before, None for the first one.
        following: Scan of the next file, None for the last one.
    """
    was_reached = bool(scan.records) or previous is None or previous.is_finished
    counted = [r for r in scan.records if r.kind is not RecordKind.FINISH]
    kept = [r for r in counted if r.sequence <= vouched]
    damaged = [g.record for g in scan.gaps if g.record is not None]
    unreadable = [r for r in damaged if r.sequence <= vouched and r.kind is not RecordKind.FINISH]
    torn = [g for g in scan.gaps if g.sequence > vouched]
    cut_at = min((g.offset for g in torn), default=None)
    tail = [r for r in counted if r.sequence > vouched]
    rewritten = [r for r in tail if cut_at is None or r.offset < cut_at]
    last = max((*kept, *unreadable), key=lambda r: r.offset, default=None)
    data_end = scan.records_start if last is None else last.offset + last.size
    return FileVerdict(
        kept=[r for r in kept if r.kind is not RecordKind.WATERMARK],
        unreadable=unreadable,
        rewritten=[r for r in rewritten if r.kind is not RecordKind.WATERMARK],
        was_cut=len(rewritten) < len(tail) or any(not g.is_blank for g in torn),
        has_damage=was_reached
        and any(_hides_a_record(gap, scan, vouched, following) for gap in scan.gaps),
        last_sequence=0 if last is None else last.sequence,
        next_sequence=max(
            (r.sequence + 1 for r in (*kept, *unreadable, *rewritten)),
            default=min((g.sequence for g in scan.gaps), default=scan.next_sequence),
        ),
        data_end=data_end,
        write_from=max((r.offset + r.size for r in rewritten), default=data_end),
    )


def _hides_a_record(gap: Gap, scan: FileScan, vouched: int, following: FileScan | None) -> bool:
    """Whether a vouched record of unknown contents has to be in the gap.

    Not so when the only one missing is the finish record, which says nothing that the others do
    not: the following file then starts with the sequence after it, or, where its header was found,
    with the one that is expected in the gap.
    """
    if gap.record is not None or gap.sequence > vouched:
        return False
    is_last = gap is scan.gaps[-1] and not (scan.records and scan.records[-1].offset > gap.offset)
    if is_last and following is not None and following.records:
        return following.records[0].sequence > gap.sequence + 1
    return True
