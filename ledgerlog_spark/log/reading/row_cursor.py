"""Decodes the entries of a leader log of rows, in order, from an offset on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerlog_spark.arrow.leader_batches import decode_row_entries
from ledgerlog_spark.log.reading.ledger_entries import EntryCursor
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.entry import decode_entry_header

if TYPE_CHECKING:
    import pyarrow as pa


class RowBatch(NamedTuple):
    """Consecutive rows of one entry of a leader log.

    Attributes:
        offset: Offset of the first row. The offsets of the rows have no gaps and are never reused.
        rows: The appended rows, with the columns of the log.
        append_time_ms: The time when the leader accepted the rows, by the store's clock, in
            milliseconds since 1970-01-01 UTC. A later batch never has an earlier time.
        ledger_id: Id of the ledger that stores the rows.
        entry_id: The entry that stores the rows, perhaps together with other rows.
        log_id: Id of the log.
    """

    offset: int
    rows: pa.RecordBatch
    append_time_ms: int
    ledger_id: int
    entry_id: int
    log_id: str

    @property
    def end_offset(self) -> int:
        """The offset after the last row, where the next read begins."""
        return self.offset + int(self.rows.num_rows)

    @property
    def position(self) -> Position:
        """Position of the first row."""
        return Position(self.log_id, self.offset, self.ledger_id, self.entry_id)


class RowCursor(EntryCursor[RowBatch]):
    """An `EntryCursor` that decodes entries to batches of rows."""

    def __init__(
        self,
        schema: bytes,
        log: str,
        log_id: str,
        *,
        next_offset: int,
        end_offset: int | None = None,
    ) -> None:
        """Create a cursor that returns rows. `schema` is the encoded schema of the log."""
        super().__init__(log, log_id, next_offset=next_offset, end_offset=end_offset)
        # One Arrow stream decodes all entries, because a new stream for each entry takes three
        # times as long.
        self._payloads: list[Any] = []
        self._decoded = decode_row_entries(schema, iter(self._payloads.pop, None))

    def take(self, ledger_id: int, entry: Any) -> list[RowBatch]:
        """Return at most one batch with the entry's rows that are not skipped."""
        header = decode_entry_header(entry.payload)
        kept = self._kept(header, ledger_id, entry.entry_id)
        if not kept:
            return []
        self._payloads.append(entry.payload)
        rows = next(self._decoded).batch.slice(kept.start, len(kept))
        offset = header.first_offset + kept.start
        self.next_offset = offset + len(kept)
        time_ms = header.append_time_ms
        return [RowBatch(offset, rows, time_ms, ledger_id, entry.entry_id, self._log_id)]
