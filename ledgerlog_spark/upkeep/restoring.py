"""Copies the parts of merged ranges that a restored version needs (LOGS.md#U11)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.log.reading.begun_range import BegunRange

if TYPE_CHECKING:
    from ledgerlog_spark.client.client import LedgerClient
    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log.commit.restore import CutRange
    from ledgerlog_spark.protocol.log.commit.result import CommitResult
    from ledgerlog_spark.protocol.log.state.records import StagedRange


async def restore(
    log: Log,
    client: LedgerClient,
    version: int,
    *,
    compression: str = "zstd",
    overwrite_if_changed: bool = False,
) -> CommitResult:
    """Make the rows of an older version the newest again; errors as of `Log.restore`.

    `overwrite_if_changed` also replaces rows that others commit during this call.
    """
    # Imported here: a restore that copies nothing does not need Arrow.
    from ledgerlog_spark.upkeep.rows import RowWriter, rows_of

    schemas = (await log.snapshot(version)).schemas

    async def copy(job: Job, part: CutRange) -> StagedRange:
        item = part.item
        password = (await client.ledger_metadata(item.ledger_id)).password
        schema = schemas[item.schema_id]
        kept = replace(job, password=password)
        writer = await RowWriter.open(log, kept, schema, compression=compression)
        entries = BegunRange(
            log.read_range(
                item.ledger_id, item.first_entry_id, item.last_entry_id, password=password
            )
        )
        wanted = rows_of(
            item,
            schema,
            entries,
            log=log.name,
            start_offset=part.start_offset,
            end_offset=part.end_offset,
        )
        try:
            async with contextlib.aclosing(wanted):
                async for batch in wanted:
                    await writer.add(batch)
            staged = await writer.finish()
        except BaseException:
            writer.abandon()
            raise
        assert staged is not None
        return staged

    return await log.restore(version, copy=copy, overwrite_if_changed=overwrite_if_changed)
