"""The entries of one listed range that a task reads: what planning makes and reading is given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind


class EntryForm(StrEnum):
    """What the entries of a range are."""

    ARROW_STREAM = "arrow stream"
    """Record batches, the schema is entry 0 of the ledger: transactional logs."""
    LEADER_RECORDS = "leader records"
    LEADER_ROWS = "leader rows"

    @classmethod
    def of(cls, kind: LogKind, content: LogContent) -> EntryForm:
        """Of a log's entries."""
        if kind is LogKind.TRANSACTIONAL:
            return cls.ARROW_STREAM
        return cls.LEADER_RECORDS if content is LogContent.RECORDS else cls.LEADER_ROWS


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Consecutive entries with rows of one listed range, for one task.

    Attributes:
        log: Name of the log.
        ledger_id: The ledger.
        first_entry_id: Inclusive.
        last_entry_id: Inclusive; never the index entry.
        rows: About how many: exact when the range was not split, or by its index.
        size_bytes: About how many payload bytes: exact when the range is read whole, or by its
            index.
        schema_id: Of the rows as stored.
        range_offset: Offset of the listed range's first row: an entry's first row, which counts
            from there, plus this is the offset of its first row.
        start_offset: Rows before this offset are not part of the scan.
        end_offset: Neither are this one and those behind it.
        commit_times: Of the commits whose rows the range has, rising: the offset behind a commit's
            last row (the last one at or behind `end_offset`), and its time in ms since the epoch,
            None when the history does not say any more. Empty without a history, and when each
            entry tells its own time.
        index_entry_id: The entry to read first, because it tells which of the entries are needed;
            NO_ENTRY when all are.
        entry_rows: Rows of the listed range that the entries hold, half-open; the task checks it.
            None when nothing says so before they are read.
        form: What the entries are.
        is_searched: Of a leader log: look first which of the entries hold the rows, by what some
            of them say of themselves.
    """

    log: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    rows: int
    size_bytes: int
    schema_id: int
    range_offset: int
    start_offset: int
    end_offset: int
    commit_times: tuple[tuple[int, int | None], ...]
    index_entry_id: int = NO_ENTRY
    entry_rows: tuple[int, int] | None = None
    form: EntryForm = EntryForm.ARROW_STREAM
    is_searched: bool = False
