"""Batches of any size into entries of about one size, with the index of their range (design 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.arrow.stream_codec import (
    ENTRY_ROWS_MAX,
    ENTRY_SIZE_BYTES_MAX,
    TARGET_ENTRY_BYTES_DEFAULT,
    BatchEncoder,
    IndexedEntry,
)
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.protocol.log_records import STATISTICS_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.log_statistics import encode_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_GUESS_RATIO = 1.0
_OVERSHOOT = 1.25


class EncodedEntry(NamedTuple):
    """One entry, ready to append.

    Attributes:
        payload: The record batch message.
        rows: In it; 0 in the index entry.
    """

    payload: bytes
    rows: int


class EntrySplitter:
    """Makes the entries of one range out of the batches of one task.

    Batches are joined and cut so that an entry has at most 65,536 rows and about
    `target_entry_bytes` encoded; how many rows that is follows from the entries before.

    Attributes:
        rows: Encoded so far.
        size_bytes: Payload bytes of the entries so far, the index entry included once made.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        compression: str = "zstd",
        target_entry_bytes: int = TARGET_ENTRY_BYTES_DEFAULT,
    ) -> None:
        self._encoder = BatchEncoder(schema, compression)
        self._target_bytes = target_entry_bytes
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._encoded_ratio = _FIRST_GUESS_RATIO
        self._index: list[IndexedEntry] = []
        self._statistics = RangeStatistics()
        self.rows = 0
        self.size_bytes = 0

    @property
    def statistics(self) -> bytes:
        """Of all rows so far, encoded for the log's list: at most 1 KiB."""
        return encode_statistics(self._statistics.columns, size_bytes_max=STATISTICS_SIZE_BYTES_MAX)

    def add(self, batch: pa.RecordBatch) -> Iterator[EncodedEntry]:
        """Take in a batch of the schema; the entries that are full with it.

        Raises:
            LocalProtocolError: A row is larger than an entry can be; names its size.
        """
        if batch.num_rows:
            self._pending.append(batch)
            self._pending_rows += batch.num_rows
            self._pending_bytes += batch.nbytes
        while self._pending_rows >= ENTRY_ROWS_MAX or self._pending_encoded >= self._target_bytes:
            yield from self._cut()

    def finish(self) -> Iterator[EncodedEntry]:
        """What is left, then the index entry; nothing at all for a range without rows.

        Raises:
            LocalProtocolError: A row is larger than an entry can be; names its size.
        """
        while self._pending_rows:
            yield from self._cut()
        if self.rows:
            payload = self._encoder.encode_index(self._index)
            self.size_bytes += len(payload)
            yield EncodedEntry(payload, 0)

    def release(self) -> list[pa.RecordBatch]:
        """The rows taken in and not encoded yet, which it forgets."""
        released, self._pending = self._pending, []
        self._pending_rows = self._pending_bytes = 0
        return released

    @property
    def _pending_encoded(self) -> float:
        """About how many bytes the pending rows have encoded."""
        return self._pending_bytes * self._encoded_ratio

    def _cut(self) -> Iterator[EncodedEntry]:
        """Encode about one entry's worth from the front of what is pending."""
        rows = self._pending_rows
        if self._pending_encoded > self._target_bytes * _OVERSHOOT:
            rows = int(rows * self._target_bytes / self._pending_encoded)
        rows = max(1, min(rows, ENTRY_ROWS_MAX))
        yield from self._encode(self._take(rows))

    def _take(self, rows: int) -> pa.RecordBatch:
        """The first `rows` pending rows as one batch."""
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

    def _encode(self, batch: pa.RecordBatch) -> Iterator[EncodedEntry]:
        payload = self._encoder.encode(batch, self.rows)
        if len(payload) > ENTRY_SIZE_BYTES_MAX:
            if batch.num_rows == 1:
                raise _row_too_large(len(payload))
            half = batch.num_rows // 2
            yield from self._encode(batch.slice(0, half))
            yield from self._encode(batch.slice(half))
            return
        self._encoded_ratio = len(payload) / max(1, batch.nbytes)
        columns = batch_statistics(batch)
        self._statistics.add(batch.num_rows, columns)
        encoded = encode_statistics(columns, size_bytes_max=STATISTICS_SIZE_BYTES_MAX)
        self._index.append(IndexedEntry(batch.num_rows, len(payload), encoded))
        self.rows += batch.num_rows
        self.size_bytes += len(payload)
        yield EncodedEntry(payload, batch.num_rows)


def _row_too_large(size_bytes: int) -> LocalProtocolError:
    return LocalProtocolError(
        f"one row has {size_bytes} bytes encoded, and an entry holds at most "
        f"{ENTRY_SIZE_BYTES_MAX}. Store the large value elsewhere, or split it over rows.",
        size_bytes=size_bytes,
        size_bytes_max=ENTRY_SIZE_BYTES_MAX,
    )
