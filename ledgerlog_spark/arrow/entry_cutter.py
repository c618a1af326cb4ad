"""Cuts batches of any size into entries of about the same size, with an index (LOGS.md#G5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from ledgerlog_spark.arrow.batch_message import buffer_counts
from ledgerlog_spark.arrow.column_slices import slices_of
from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.arrow.stream_codec import (
    ENTRY_ROWS_MAX,
    ENTRY_SIZE_BYTES_MAX,
    TARGET_ENTRY_BYTES_DEFAULT,
    BatchEncoder,
    IndexedEntry,
)
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.protocol.log.state.records import STATISTICS_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.log.state.statistics import encode_statistics

Encode = Callable[[pa.RecordBatch], bytes]

_OVERSHOOT = 1.25


class CutEntry(NamedTuple):
    """One entry: a batch with at least one row, and the encoded form of the same rows."""

    batch: pa.RecordBatch
    payload: bytes


class EntryCutter:
    """Joins and cuts batches of one schema.

    An entry has at most 65,536 rows, and its encoded form has about `target_entry_bytes` bytes. The
    number of rows for this size is estimated from the entries that were encoded before.
    """

    def __init__(
        self,
        encode: Encode,
        *,
        target_entry_bytes: int = TARGET_ENTRY_BYTES_DEFAULT,
        size_bytes_max: int = ENTRY_SIZE_BYTES_MAX,
    ) -> None:
        """Make a cutter. `encode` is called in the order of the entries.

        An entry's payload has at most `size_bytes_max` bytes.
        """
        self._encode_batch = encode
        self._target_bytes = target_entry_bytes
        self._size_bytes_max = size_bytes_max
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._encoded_ratio = 1.0  # this value is only an estimate until the first entry is encoded

    def add(self, batch: pa.RecordBatch) -> Iterator[CutEntry]:
        """Add a batch, and yield the entries that are full after this batch."""
        if batch.num_rows:
            self._pending.append(batch)
            self._pending_rows += batch.num_rows
            self._pending_bytes += batch.nbytes
        while self._pending_rows >= ENTRY_ROWS_MAX or self._pending_encoded >= self._target_bytes:
            yield from self._cut()

    def finish(self) -> Iterator[CutEntry]:
        """Yield the remaining entries. Raises the errors of `add`."""
        while self._pending_rows:
            yield from self._cut()

    def release(self) -> list[pa.RecordBatch]:
        """Remove and return the rows that were added but are not encoded yet."""
        released, self._pending = self._pending, []
        self._pending_rows = self._pending_bytes = 0
        return released

    @property
    def _pending_encoded(self) -> float:
        """Estimated number of bytes of the pending rows after encoding."""
        return self._pending_bytes * self._encoded_ratio

    def _cut(self) -> Iterator[CutEntry]:
        """Encode the first pending rows, about as many as fit into one entry."""
        rows = self._pending_rows
        if self._pending_encoded > self._target_bytes * _OVERSHOOT:
            rows = int(rows * self._target_bytes / self._pending_encoded)
        rows = max(1, min(rows, ENTRY_ROWS_MAX))
        yield from self._encode(self._take(rows))

    def _take(self, rows: int) -> pa.RecordBatch:
        """Remove the first `rows` pending rows, and return them as one batch."""
        taken: list[pa.RecordBatch] = []
        missing = rows
        while missing:
            batch = self._pending[0]
            if batch.num_rows <= missing:
                taken.append(self._pending.pop(0))
            else:
                taken.append(batch.slice(0, missing))
                self._pending[0] = batch.slice(missing)
            missing -= taken[-1].num_rows
        joined = taken[0] if len(taken) == 1 else pa.concat_batches(taken)
        self._pending_rows -= rows
        self._pending_bytes = max(0, self._pending_bytes - joined.nbytes)
        if not self._pending:
            self._pending_bytes = 0
        return joined

    def _encode(self, batch: pa.RecordBatch) -> Iterator[CutEntry]:
        payload = self._encode_batch(batch)
        if len(payload) > self._size_bytes_max:
            if batch.num_rows == 1:
                raise LocalProtocolError(
                    f"one row has {len(payload)} bytes when encoded, but an entry holds at most "
                    f"{self._size_bytes_max}. Store the large value elsewhere, or split it over "
                    "rows.",
                    size_bytes=len(payload),
                    size_bytes_max=self._size_bytes_max,
                )
            half = batch.num_rows // 2
            yield from self._encode(batch.slice(0, half))
            yield from self._encode(batch.slice(half))
            return
        self._encoded_ratio = len(payload) / max(1, batch.nbytes)
        yield CutEntry(batch, payload)


class EncodedEntry(NamedTuple):
    """One entry that is ready to be appended. In the index entry, `rows` is 0."""

    payload: bytes
    rows: int


class EntrySplitter:
    """Encodes the batches of one task as the entries of one range.

    An `EntryCutter` cuts the batches.
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
        self._buffer_counts = buffer_counts(schema)
        self._index: list[IndexedEntry] = []
        self._statistics = RangeStatistics()
        self.rows = 0

    @property
    def statistics(self) -> bytes:
        """Statistics of all rows up to now, encoded for the log's list in at most 1 KiB."""
        return encode_statistics(self._statistics.columns, size_bytes_max=STATISTICS_SIZE_BYTES_MAX)

    def add(self, batch: pa.RecordBatch) -> Iterator[EncodedEntry]:
        """Add a batch, and return the entries that are full after this batch."""
        return map(self._indexed, self._cutter.add(batch))

    def finish(self) -> Iterator[EncodedEntry]:
        """Yield the remaining entries and then the index entry.

        If there are no rows, yield nothing.
        """
        yield from map(self._indexed, self._cutter.finish())
        if self.rows:
            yield EncodedEntry(self._encoder.encode_index(self._index), 0)

    def release(self) -> list[pa.RecordBatch]:
        """Remove and return the rows that were added but are not encoded yet."""
        return self._cutter.release()

    def _indexed(self, cut: CutEntry) -> EncodedEntry:
        """Count the rows of the entry, and add the entry to the statistics and to the index."""
        batch, payload = cut
        columns = batch_statistics(batch)
        self._statistics.add(batch.num_rows, columns)
        encoded = encode_statistics(columns, size_bytes_max=STATISTICS_SIZE_BYTES_MAX)
        slices = slices_of(payload, self._buffer_counts)
        self._index.append(IndexedEntry(batch.num_rows, len(payload), encoded, slices))
        self.rows += batch.num_rows
        return EncodedEntry(payload, batch.num_rows)
