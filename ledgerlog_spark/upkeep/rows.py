"""Reads rows of listed ranges and copies them to new ranges, without Spark (LOGS.md#U11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.arrow.entry_cutter import EncodedEntry, EntrySplitter
from ledgerlog_spark.arrow.stream_codec import decode_entries, decode_schema
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.reading.committed_range import BegunRange
from ledgerlog_spark.log.reading.listed_rows import RowCutter
from ledgerlog_spark.protocol.log.commit.restore import CutRange
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.state.records import Item, StagedRange
from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    import pyarrow as pa

COMPUTES = "the thread computes: it waits for nothing"
"""Text that states why the wait for the thread has no time limit."""


async def write_range(
    writer: RangeWriter,
    schema: bytes,
    batches: AsyncGenerator[pa.RecordBatch, None],
    *,
    compression: str = "zstd",
) -> StagedRange:
    """Write the rows of `batches`, close the ledger, and return the new range.

    There must be at least one row. The rows are encoded on another thread, because other coroutines
    use the client's event loop. If an error occurs, the sweeper deletes the ledger later.
    """
    splitter = EntrySplitter(decode_schema(schema), compression=compression)

    async def append(encode: Callable[[], Iterator[EncodedEntry]]) -> bytes | None:
        """Append the entries that have rows, and return the index entry."""
        for entry in await forever(asyncio.to_thread(lambda: list(encode())), COMPUTES):
            if not entry.rows:
                return entry.payload
            await writer.append(entry.payload, entry.rows)
        return None

    try:
        async with contextlib.aclosing(batches):
            async for batch in batches:
                await append(partial(splitter.add, batch))
        index = await append(splitter.finish)
        staged = await writer.finish(index, statistics=splitter.statistics)
    except BaseException:
        writer.abandon()
        raise
    assert staged is not None
    return staged


async def rows_of(
    item: Item,
    schema: bytes,
    entries: BegunRange,
    *,
    log: str,
    start_offset: int | None = None,
    end_offset: int | None = None,
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the rows of a listed range, in order.

    If offsets are given, yield only the rows from `start_offset` to before `end_offset`. `entries`
    yields the entries of the range. The function closes it at the end.
    """
    start = item.first_offset if start_offset is None else start_offset
    end = item.end_offset if end_offset is None else end_offset
    cutter = RowCutter.of(log, item, range(start, end))
    async with contextlib.aclosing(entries):
        while (batch := await entries.following()) is not None:
            payloads = [entry.payload for entry in batch]
            decoding = asyncio.to_thread(lambda each: list(decode_entries(schema, each)), payloads)
            for decoded in await forever(decoding, COMPUTES):
                with _loss_of_other_rows():
                    kept = cutter.take(decoded.first_row, decoded.batch.num_rows)
                if kept:
                    yield decoded.batch.slice(kept.start, len(kept))
    with _loss_of_other_rows():
        cutter.finish()


@contextlib.contextmanager
def _loss_of_other_rows() -> Iterator[None]:
    """If rows differ from the list, raise DataLossError, so that other runs are still merged."""
    try:
        yield
    except WireFormatError as error:
        raise DataLossError(error.message, **error.fields) from error


def begun(log: Log, item: Item, password: bytes) -> BegunRange:
    """Return the entries of a listed range. The first request for entries is sent immediately."""
    first, last = item.first_entry_id, item.last_entry_id
    return BegunRange(log.read_range(item.ledger_id, first, last, password=password))


async def restore(
    log: Log, client: LedgerClient, version: int, *, overwrite_if_changed: bool = False
) -> CommitResult:
    """Create a new version with the rows of an older version. Raises the errors of `Log.restore`.

    If `overwrite_if_changed` is True, rows that other jobs commit during this call are also
    replaced.
    """
    schemas = (await log.snapshot(version)).schemas

    async def copy(job: Job, part: CutRange) -> StagedRange:
        item, schema = part.item, schemas[part.item.schema_id]
        password = (await client.ledger_metadata(item.ledger_id)).password
        writer = await log.open_range(replace(job, password=password), schema)
        rows = rows_of(
            item,
            schema,
            begun(log, item, password),
            log=log.name,
            start_offset=part.start_offset,
            end_offset=part.end_offset,
        )
        return await write_range(writer, schema, rows)

    return await log.restore(version, copy=copy, overwrite_if_changed=overwrite_if_changed)
