"""Reads the records of a finished file again, and decides which records belong to the file.

The boot, the rebuild of a damaged index and the tools for stopped bookies use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from bookie_server.core.manifest_codec import FileEntry
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.replay_decision import Gap
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.replay import Scanner
from bookie_server.storage.slices import parts


@dataclass(frozen=True, slots=True)
class FinishedScan:
    """The records of a finished file, without its finish record."""

    entry: FileEntry
    records: list[JournalRecord]  # verified
    gaps: list[Gap]
    next_sequence: int  # the sequence after the last found record

    @property
    def last_sequence(self) -> int:
        """The sequence of the last valid record of the file."""
        # The MANIFEST does not have the sequences of copies.
        return self.next_sequence - 1 if self.entry.is_copies else self.entry.last_sequence

    @property
    def known(self) -> list[JournalRecord]:
        """All records of the scan, including records of which only the header is readable."""
        return [*self.records, *(gap.record for gap in self.gaps if gap.record is not None)]

    def is_run(self, record: JournalRecord) -> bool:
        """Return whether a record of the scan is a run that belongs to the file."""
        is_held = self.entry.holds(record.sequence, record.offset)
        return is_held and record.kind is JournalRecordKind.RUN

    def index(
        self, tombstone_of: Callable[[int], int] = lambda _ledger_id: 0
    ) -> Generator[None, None, ActiveIndex]:
        """Return the index of the runs of the file. The generator yields after each slice.

        If a tombstone deletes a run, the index has only the ledger id of the run.
        """
        index = ActiveIndex()
        deleted: set[int] = set()
        for records in parts([record for record in self.known if self.is_run(record)]):
            for record in records:
                if record.origin_sequence > tombstone_of(record.ledger_id):
                    index.insert(record)
                else:
                    deleted.add(record.ledger_id)
            yield
        for ledger_id in deleted:
            if ledger_id not in index:
                index.name_only(ledger_id)
        return index

    @property
    def lost(self) -> list[Gap]:
        """The gaps in which the file may have lost records. The ledgers of the records are unknown.

        A scan ends in a gap, unless the file has a finish record where the scan ends. So a file
        that lost its last records has a gap. The gap has the sequence of the first lost record.
        """
        holds = self.entry.holds
        return [gap for gap in self.gaps if gap.record is None and holds(gap.sequence, gap.offset)]

    @property
    def is_whole(self) -> bool:
        """Whether all records of the file are known, at least by their headers."""
        return not self.lost


async def scan_finished(file: FinishedFile) -> FinishedScan:
    """Read and verify the records of a finished file."""
    entry = file.entry
    scan = await Scanner(file.handle, entry, entry.data_end).scan(entry.scan_from)
    return FinishedScan(entry, scan.records, scan.gaps, scan.next_sequence)
