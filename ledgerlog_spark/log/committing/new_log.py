"""Deletes a log that a job created, if the job failed and nothing else uses the log.

LOGS.md#K19. One transaction deletes the log. It compares the version of the head, and deletes the
node above the producers, which the store allows only if no producer exists. So neither a commit nor
a running job of another producer is lost, whatever happens between the reads and the transaction.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from ledgerlog_spark.errors import LogNotFoundError, MetadataUnknownError, MetadataVersionError
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.read.versions import StateMachine
from ledgerlog_spark.protocol.log.state.records import NO_BATCH, LogHead
from ledgerlog_spark.protocol.log.sweep import StagedSweep

ATTEMPTS_MAX = 20


async def delete_new_log(host: LogHost, job: Job | None) -> bool:
    """Delete the log of a failed job; returns whether the log does not exist any more.

    `job` is None if no job has begun.

    The log stays if its head was changed since the log was created, or if another run or another
    producer has begun a job. Raises the errors of the store. A retry is safe.
    """
    async with host.retries() as retries:
        for _ in range(ATTEMPTS_MAX):
            try:
                state = await host.run(StateMachine(host.name))
                if not is_unchanged(state.head):
                    return False
                if job is not None and not await _leave(host, job):
                    return False
            except LogNotFoundError:
                return True
            deleted = replace(
                state.head,
                token=uuid.uuid4().hex,
                deleted_ms=await host.store.recent_ms(),
            )
            try:
                await host.store.delete_log(deleted, state.version, if_no_producers=True)
            except MetadataVersionError:
                if await host.store.producers.names(host.log_id):
                    return False
                await retries.after(MetadataOutcome.CONFLICT, is_of_head=True)
            except MetadataUnknownError:
                await retries.after(MetadataOutcome.UNKNOWN, is_of_head=True)
            else:
                return True
    return False


def is_unchanged(head: LogHead) -> bool:
    """Whether a log has no commit, and its head is as it was when the log was created.

    Each change of a head gives it another token. Version 0 has the token of the creation.
    """
    created = head.history.recent[0] if head.history.recent else None
    return head.version == 0 and created is not None and created.token == head.token


async def _leave(host: LogHost, job: Job) -> bool:
    """Delete the producer of the job, and mark its ledgers. Returns whether it is deleted.

    The producer stays if it has committed a batch, or if another run of it has begun.
    """
    producers = host.store.producers
    for _ in range(ATTEMPTS_MAX):
        await host.store.sync()
        found = await producers.read(host.log_id, job.app)
        if found is None:
            return True
        if found.value.runs != (job.run,) or found.value.last_batch_id != NO_BATCH:
            return False
        if await producers.registered(host.log_id, job.app):
            await host.run(StagedSweep(host.name, app=job.app, staging_ttl_ms=-1))
            continue
        try:
            await producers.delete(host.log_id, job.app, found.version)
        except MetadataVersionError:
            continue
        return True
    return False
