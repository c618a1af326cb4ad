"""A cluster in memory whose logs hold Arrow rows, in real time because encoding uses threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pyarrow as pa

from ledgerlog_spark.arrow.stream_codec import decode_entries, encode_schema
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs, logs_of
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.testing.memory.tree import MemoryTree
from ledgerlog_spark.upkeep.rows import write_range
from tests.unit.log.log_world import LogWorld

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(first: int, count: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + count), pa.int64())
    columns: list[Any] = [numbers, pa.array([f"row {n}" for n in range(first, first + count)])]
    if "more" in schema.names:
        columns.append(pa.array([1.5] * count))
    return pa.record_batch(columns, schema=schema)


class RowsWorld(LogWorld):
    """Writes and reads rows. The first column is the number of the row."""

    is_virtual = False

    def opened(self) -> tuple[LedgerClient, Logs]:
        client, stores = self.client_and_stores()
        client.services.logs, client.services.leases = stores.logs, stores.leases
        return client, logs_of(client)


class VirtualRowsWorld(RowsWorld):
    """A world in virtual time, for tests without rows."""

    is_virtual = True


def tree_of(client: LedgerClient) -> MemoryTree:
    """The tree of a client, whose session a test can replace."""
    assert client.services.leases is not None
    tree = client.services.leases._tree
    assert isinstance(tree, MemoryTree)
    return tree


async def only(batch: pa.RecordBatch) -> AsyncGenerator[pa.RecordBatch, None]:
    yield batch


async def append(
    log: Log, *counts: int, first: int | None = None, schema: pa.Schema = SCHEMA, **how: Any
) -> CommitResult:
    """Commit one range for each count. By default, the row numbers continue at the log's end."""
    next_row = (await log.snapshot()).interval.end_offset if first is None else first
    message = encode_schema(schema)
    job = await log.begin(schema=message, **how)
    ranges = []
    for count in counts:
        writer = await log.open_range(job, message)
        batches = only(rows(next_row, count, schema))
        ranges.append(await write_range(writer, message, batches, compression="none"))
        next_row += count
    return await log.commit(job, ranges)


async def numbers(log: Log, version: int | None = None) -> list[int]:
    """The first column of a version, in order."""
    snapshot = await log.snapshot(version)
    found: list[int] = []
    for item in snapshot.items:
        payloads: list[bytes] = []
        async for batch in log.read_range(item.ledger_id, item.first_entry_id, item.last_entry_id):
            payloads += [entry.payload for entry in batch]
        at = item.first_offset
        for decoded in decode_entries(snapshot.schemas[item.schema_id], payloads):
            for number in decoded.batch.column("n").to_pylist():
                if snapshot.interval.start_offset <= at < snapshot.interval.end_offset:
                    found.append(number)
                at += 1
    return found
