"""Cuts batches of any size into entries of about one size, with an index (LOGS.md#G5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ledgerlog_spark.arrow.entry_cutter import CutEntry, EntryCutter
from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.arrow.stream_codec import (
    TARGET_ENTRY_BYTES_DEFAULT,
    BatchEncoder,
    IndexedEntry,
)
from ledgerlog_spark.protocol.log.state.records import STATISTICS_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.log.state.statistics import encode_statistics

if TYPE_CHECKING:
    import pyarrow as pa


class EncodedEntry(NamedTuple):
    """One entry, ready to append: its payload and number of rows, which is 0 in the index entry."""

    payload: bytes
    rows: int


class EntrySplitter:
    """Encodes the batches of one task as the entries of one range, cut by an `EntryCutter`.

    Attributes:
        rows: Number of rows encoded so far.
        size_bytes: Payload bytes of the entries so far, with the index entry once it is made.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        compression: str = "zstd",
        target_entry_bytes: int = TARGET_ENTRY_BYTES_DEFAULT,
    ) -> None:
        self._encoder = encoder = BatchEncoder(schema, compression)
        self._cutter = EntryCutter(
            lambda batch: encoder.encode(batch, self.rows), target_entry_bytes=target_entry_bytes
        )
        self._index: list[IndexedEntry] = []
        self._statistics = RangeStatistics()
        self.rows = 0
        self.size_bytes = 0

    @property
    def statistics(self) -> bytes:
        """Statistics of all rows so far, encoded for the log's list: at most 1 KiB."""
        return encode_statistics(self._statistics.columns, size_bytes_max=STATISTICS_SIZE_BYTES_MAX)

    def add(self, batch: pa.RecordBatch) -> Iterator[EncodedEntry]:
        """Adds a batch of the schema; returns the entries that are now full."""
        return map(self._indexed, self._cutter.add(batch))

    def finish(self) -> Iterator[EncodedEntry]:
        """Returns the remaining entries, then the index entry; nothing for a range without rows."""
        yield from map(self._indexed, self._cutter.finish())
        if self.rows:
            payload = self._encoder.encode_index(self._index)
            self.size_bytes += len(payload)
            yield EncodedEntry(payload, 0)

    def release(self) -> list[pa.RecordBatch]:
        """Removes and returns the rows that were added and not encoded yet."""
        return self._cutter.release()

    def _indexed(self, cut: CutEntry) -> EncodedEntry:
        """Adds the entry to the counts and the index."""
        batch, payload = cut
        columns = batch_statistics(batch)
        self._statistics.add(batch.num_rows, columns)
        encoded = encode_statistics(columns, size_bytes_max=STATISTICS_SIZE_BYTES_MAX)
        self._index.append(IndexedEntry(batch.num_rows, len(payload), encoded))
        self.rows += batch.num_rows
        self.size_bytes += len(payload)
        return EncodedEntry(payload, batch.num_rows)
