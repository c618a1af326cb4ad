"""Entries of a leader log of rows, decoded in order from some offset on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerlog_spark.arrow.leader_batches import decode_row_entries
from ledgerlog_spark.log.reading.ledger_entries import EntryCursor
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.entry import decode_entry_header

if TYPE_CHECKING:
    import pyarrow as pa


class RowBatch(NamedTuple):
    """Consecutive rows of a leader log, of one entry.

    Attributes:
        offset: Offset of the first row; the others follow without a gap. Dense, never reused.
        rows: The appended rows, with the columns of the log.
        append_time_ms: When their leader accepted them, by the store's clock, ms since the epoch;
            never falls from one batch to the next.
        ledger_id: The ledger that stores them.
        entry_id: The entry that stores them, perhaps with others.
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
        """The offset after the last row: where the next read begins."""
        return self.offset + int(self.rows.num_rows)

    @property
    def position(self) -> Position:
        """Position of the first row."""
        return Position(self.log_id, self.offset, self.ledger_id, self.entry_id)


class RowCursor(EntryCursor[RowBatch]):
    """Decodes entries to batches of rows; an `EntryCursor`."""

    def __init__(
        self,
        schema: bytes,
        log: str,
        log_id: str,
        *,
        next_offset: int,
        end_offset: int | None = None,
    ) -> None:
        """A cursor over rows of the schema in that schema record."""
        super().__init__(log, log_id, next_offset=next_offset, end_offset=end_offset)
        # One stream for all entries: a new one for each costs three times the decoding.
        self._payloads: list[Any] = []
        self._decoded = decode_row_entries(schema, iter(self._payloads.pop, None))

    def take(self, ledger_id: int, entry: Any) -> list[RowBatch]:
        """Implements `EntryCursor.take`; one batch at most."""
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
