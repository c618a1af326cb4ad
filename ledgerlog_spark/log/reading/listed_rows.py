"""Decodes the rows of a listed range, compares them with the list, and selects the wanted rows.

Scans, merging and `ledgerlog logs read` read listed ranges through this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerlog_spark.arrow.leader_batches import decode_record_bodies, decode_row_entries
from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.log.entry_codec import plain_body
from ledgerlog_spark.protocol.log.state.records import Item, LogContent, LogKind

if TYPE_CHECKING:
    import pyarrow as pa


class EntryForm(StrEnum):
    """The form of the entries of a range."""

    ARROW_STREAM = "arrow stream"
    """The entries are record batches of a transactional log.

    The schema is entry 0 of the ledger."""
    LEADER_RECORDS = "leader records"
    LEADER_ROWS = "leader rows"

    @classmethod
    def of(cls, kind: LogKind, content: LogContent) -> EntryForm:
        """Return the form of the entries of a log of this kind and content."""
        if kind is LogKind.TRANSACTIONAL:
            return cls.ARROW_STREAM
        return cls.LEADER_RECORDS if content is LogContent.RECORDS else cls.LEADER_ROWS


class DecodedRows(NamedTuple):
    """The rows of some consecutive entries.

    Attributes:
        batch: The rows.
        first_row: Number of the first row in the listed range, counted from 0. If another program
            wrote the entry, this number can be negative.
        entries: For each entry, the number of its rows and the time of their append, in
            milliseconds since 1970-01-01 UTC. The time is None if the rows have the commit times
            that the list contains.
    """

    batch: pa.RecordBatch
    first_row: int
    entries: Sequence[tuple[int, int | None]]


def decoded_rows(
    form: EntryForm,
    schema: bytes,
    payloads: Iterable[Any],
    *,
    range_offset: int,
    columns: Sequence[str] | None = None,
) -> Iterator[DecodedRows]:
    """Decode the rows of entries of a listed range.

    `payloads` are the payloads of the entries, in order. `range_offset` is the offset of the listed
    range's first row.
    """
    if form is EntryForm.ARROW_STREAM:
        for entry in decode_entries(schema, payloads, columns=columns):
            yield DecodedRows(entry.batch, entry.first_row, ((entry.batch.num_rows, None),))
        return
    decoded = (
        decode_record_bodies(map(plain_body, payloads))
        if form is EntryForm.LEADER_RECORDS
        else decode_row_entries(schema, payloads, columns=columns)
    )
    for each in decoded:
        yield DecodedRows(each.batch, each.first_offset - range_offset, each.entries)


class RowCutter:
    """Selects the wanted rows of a range's entries. The entries must be passed in order."""

    def __init__(
        self,
        log: str,
        ledger_id: int,
        entry_ids: range,
        *,
        range_offset: int,
        rows: tuple[int, int] | None,
        wanted: range,
    ) -> None:
        """Create a cutter before the first row. `entry_ids` does not include the index entry.

        `rows` is the number of the first row in the entries and the number after the last row,
        counted from the first row of the listed range. It is None if these numbers are unknown.
        """
        self.next_entry_id = entry_ids.start
        self._log = log
        self._ledger_id = ledger_id
        self._entry_ids = entry_ids
        self._range_offset = range_offset
        self._next_row: int | None
        self._end_row: int | None
        self._next_row, self._end_row = rows or (None, None)
        self._wanted = wanted

    @classmethod
    def of(cls, log: str, item: Item, wanted: range) -> RowCutter:
        """Create a cutter of a whole listed range."""
        entry_ids = range(item.first_entry_id, item.last_entry_id + 1 - item.has_index)
        rows = 0, item.rows
        offset = item.first_offset
        return cls(log, item.ledger_id, entry_ids, range_offset=offset, rows=rows, wanted=wanted)

    def take(self, first_row: int, rows: int, entries: int = 1) -> range:
        """Return the places of the wanted rows among the next `rows` rows.

        `first_row` is the number of the first of these rows in the listed range. Raises
        WireFormatError if these rows do not directly follow the previous rows.
        """
        if first_row < 0 or self._next_row not in {None, first_row}:
            expected = (
                "this source wrote no such entry"
                if self._next_row is None
                else f"{self._next_row} was expected"
            )
            raise WireFormatError(
                f"entry {self.next_entry_id} of ledger {self._ledger_id} has {first_row} as its "
                f"first row: {expected}. The ledger differs from the list of log {self._log!r}",
                **self._fields,
            )
        self._next_row = first_row + rows
        self.next_entry_id += entries
        first = self._range_offset + first_row
        begin = min(rows, max(0, self._wanted.start - first))
        return range(begin, max(begin, min(rows, self._wanted.stop - first)))

    def finish(self) -> None:
        """Raise WireFormatError unless all listed rows were found."""
        if self._end_row is not None and self._next_row != self._end_row:
            raise WireFormatError(
                f"entries {self._entry_ids.start} to {self._entry_ids.stop - 1} of ledger "
                f"{self._ledger_id} hold rows up to {self._next_row} of their range, but log "
                f"{self._log!r} lists rows up to {self._end_row}",
                **self._fields,
            )

    @property
    def _fields(self) -> dict[str, Any]:
        """The fields of an error about this range."""
        return {
            "log": self._log,
            "ledger_id": self._ledger_id,
            "first_entry_id": self._entry_ids.start,
            "last_entry_id": self._entry_ids.stop - 1,
        }
