"""Reads rows of listed ranges and copies them to new ranges, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import TYPE_CHECKING

from ledgerlog_spark.arrow.entry_splitter import EncodedEntry, EntrySplitter
from ledgerlog_spark.arrow.stream_codec import DecodedEntry, decode_entries, decode_schema
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.log.reading.begun_range import BegunRange
from ledgerlog_spark.log.reading.listed_rows import RowCutter
from ledgerlog_spark.protocol.log.state.records import Item, StagedRange
from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    import pyarrow as pa

    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.committing.range_writer import RangeWriter
    from ledgerlog_spark.log.log import Log

COMPUTES = "the thread computes: it waits for nothing"


class RowWriter:
    """Writes one range of rows into a new ledger of a job.

    Encoding runs on another thread, since other coroutines use the client's event loop.
    """

    def __init__(self, writer: RangeWriter, splitter: EntrySplitter) -> None:
        """A writer of the entries that `splitter` makes."""
        self._writer = writer
        self._splitter = splitter

    @classmethod
    async def open(cls, log: Log, job: Job, schema: bytes, *, compression: str) -> RowWriter:
        """A writer on a new ledger, registered for the job."""
        splitter = EntrySplitter(decode_schema(schema), compression=compression)
        return cls(await log.open_range(job, schema), splitter)

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._splitter.rows

    async def add(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch; errors as of `RangeWriter.append`."""
        splitting = asyncio.to_thread(lambda: list(self._splitter.add(batch)))
        await self._append(await forever(splitting, COMPUTES))

    async def finish(self) -> StagedRange | None:
        """The range, on its ack quorum and its ledger closed; None without rows."""
        splitting = asyncio.to_thread(lambda: list(self._splitter.finish()))
        entries = await forever(splitting, COMPUTES)
        await self._append(entries[:-1])
        index = entries[-1].payload if entries else None  # no entry at all without rows
        return await self._writer.finish(index, statistics=self._splitter.statistics)

    def abandon(self) -> None:
        """Stop immediately; the ledger is left to the sweeper."""
        self._writer.abandon()

    async def _append(self, entries: Iterable[EncodedEntry]) -> None:
        for entry in entries:
            await self._writer.append(entry.payload, entry.rows)


async def rows_of(
    item: Item,
    schema: bytes,
    entries: BegunRange,
    *,
    log: str,
    start_offset: int | None = None,
    end_offset: int | None = None,
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The rows of a listed range, or of a part of it, in order.

    Args:
        item: The range.
        schema: Schema of its ledger, as a schema message.
        entries: The range, being read; closed here.
        log: Name, for messages.
        start_offset: First wanted row; None for the first.
        end_offset: The offset after the last wanted row; None for all.
    """
    start = item.first_offset if start_offset is None else start_offset
    end = item.end_offset if end_offset is None else end_offset
    cutter = RowCutter.of(log, item, range(start, end))
    async with contextlib.aclosing(entries):
        while (batch := await entries.following()) is not None:
            payloads = [entry.payload for entry in batch]
            decoding = asyncio.to_thread(_decoded, schema, payloads)
            for decoded in await forever(decoding, COMPUTES):
                with _loss_of_other_rows():
                    kept = cutter.take(decoded.first_row, decoded.batch.num_rows)
                if kept:
                    yield decoded.batch.slice(kept.start, len(kept))
    with _loss_of_other_rows():
        cutter.finish()


@contextlib.contextmanager
def _loss_of_other_rows() -> Iterator[None]:
    """Rows that differ from the list count as lost for the merge: other ranges are still merged."""
    try:
        yield
    except WireFormatError as error:
        raise DataLossError(error.message, **error.fields) from error


def _decoded(schema: bytes, payloads: list[bytes]) -> list[DecodedEntry]:
    return list(decode_entries(schema, payloads))
