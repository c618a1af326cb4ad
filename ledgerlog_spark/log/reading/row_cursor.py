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
        offset: Of the first row; the others follow without a gap. Dense, never reused.
        rows: As they were appended, with the columns of the log.
        append_time_ms: When their leader took them, by the store's clock, ms since the epoch;
            never falls from one batch to the next.
        ledger_id: That they are stored in.
        entry_id: That they are stored in, perhaps with others.
        log_id: Of the log.
    """

    offset: int
    rows: pa.RecordBatch
    append_time_ms: int
    ledger_id: int
    entry_id: int
    log_id: str

    @property
    def end_offset(self) -> int:
        """Behind the last row (exclusive): where reading on begins."""
        return self.offset + int(self.rows.num_rows)

    @property
    def position(self) -> Position:
        """Where the first row is."""
        return Position(self.log_id, self.offset, self.ledger_id, self.entry_id)


class RowCursor(EntryCursor[RowBatch]):
    """Turns entries into batches of rows; see `EntryCursor`."""

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
        # One stream for all entries: to begin one for each costs three times the decoding.
        self._payloads: list[Any] = []
        self._decoded = decode_row_entries(schema, iter(self._payloads.pop, None))

    def take(self, ledger_id: int, entry: Any) -> list[RowBatch]:
        """See `EntryCursor`; one batch at most."""
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
