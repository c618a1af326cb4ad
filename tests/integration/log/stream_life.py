"""One life of a stream without Spark: begin, register, write, commit, sweep. It may be killed.

`main` goes on where the checkpoint in the directory ends, as Spark does: a batch is checkpointed
after its commit.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerlog_spark.composition import connect
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.log.maintenance.sweeper import Sweeper
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.blocking.logs import BlockingLog
    from ledgerlog_spark.log.committing.job import Job

SCHEMA = b"schema message"
STATISTICS = b"s" * 1_000
"""It is large, so the head of the first batch must spill into pages."""

BATCHES = ((30, WriteMode.APPEND), (2, WriteMode.OVERWRITE), (3, WriteMode.APPEND))
"""The number of ranges of each batch, and its write mode."""

KEPT = [f"{batch} {part}".encode() for batch, parts in ((1, 2), (2, 3)) for part in range(parts)]
"""The rows of the log at the end."""


def live(client: BlockingClient, name: str, checkpoint: Path) -> None:
    properties = {"versionRetentionMs": "1", "deletedRetentionMs": "1"}
    log = BlockingLogs(client).open_or_create(name, schema=SCHEMA, properties=properties)
    run = str(uuid.uuid4())
    next_batch = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for batch_id in range(next_batch, len(BATCHES)):
        parts, mode = BATCHES[batch_id]
        job = log.begin(
            schema=SCHEMA, mode=mode, app="query", batch_id=batch_id, run=run, kind=JobKind.STREAM
        )
        log.commit(job, written(log, job, parts))
        checkpoint.write_text(str(batch_id + 1))
    client.run(lambda inner: sweep(inner, log.log_id))


def written(log: BlockingLog, job: Job, parts: int) -> list[StagedRange]:
    """Write a ledger in which each entry is a range."""
    writer = log.open_range(job)
    for part in range(parts):
        writer.append(b"%d %d" % (job.batch_id, part), 1)
    whole = writer.finish()
    assert whole is not None
    return [
        StagedRange(whole.ledger_id, entry, entry, -1, 1, 3, STATISTICS)
        for entry in range(whole.first_entry_id, whole.last_entry_id + 1)
    ]


async def sweep(client: object, log_id: str) -> None:
    logs = logs_of(client)  # type: ignore[arg-type]
    sweeper = Sweeper(store=logs.store, ledgers=client, pages_grace_ms=0)  # type: ignore[arg-type]
    # Two passes: the second one deletes the ledgers that the first one unlists.
    await sweeper.sweep(log_id)
    await sweeper.sweep(log_id)


def main(uri: str, log_name: str, directory: str) -> None:
    """Live once."""
    with connect(uri) as connected:
        live(connected, log_name, Path(directory) / "checkpoint")
