"""Deletes the log that a failed job created, unless the log is in use (LOGS.md#K19).

One transaction deletes the log. It compares the version of the head, and deletes the job's own
producer and the parent node of all producers. The store deletes the parent node only if no other
producer exists. Therefore the transaction fails if the log got a commit, or another producer began
a job, after these nodes were read.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from ledgerlog_spark.errors import LogNotFoundError, MetadataUnknownError, MetadataVersionError
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.read.versions import StateMachine
from ledgerlog_spark.protocol.log.state.records import NO_BATCH, LogHead
from ledgerlog_spark.protocol.log.sweep import StagedSweep

ATTEMPTS_MAX = 20


async def delete_new_log(host: LogHost, job: Job | None) -> bool:
    """Delete the log of a failed job, and return whether the log no longer exists.

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
                producers = await _producers_of(host, job) if job is not None else {}
                if producers is None:
                    return False
                if job is not None and await _mark_ledgers(host, job, producers):
                    continue  # the version of the producer has changed
            except LogNotFoundError:
                return True
            deleted = replace(
                state.head,
                token=uuid.uuid4().hex,
                deleted_ms=await host.store.recent_ms(),
            )
            try:
                await host.store.delete_log(deleted, state.version, producers=producers)
            except MetadataVersionError:
                if {*await host.store.producers.names(host.log_id)} - {*producers}:
                    return False
                await retries.after(MetadataOutcome.CONFLICT, is_of_head=True)
            except MetadataUnknownError:
                await retries.after(MetadataOutcome.UNKNOWN, is_of_head=True)
            else:
                return True
    return False


def is_unchanged(head: LogHead) -> bool:
    """Whether a log has no commit, and its head has not changed since the log was created.

    Version 0 stores the token of the creation, and each later change gives the head another token.
    """
    created = head.history.recent[0] if head.history.recent else None
    return head.version == 0 and created is not None and created.token == head.token


async def _producers_of(host: LogHost, job: Job) -> dict[str, Version] | None:
    """Return the name and the version of the job's producer; an empty dict if it does not exist.

    The result is None if the log must stay, because the producer has committed a batch, or another
    run of the producer has begun. If the log stays, the producer also stays, because the version of
    its node makes the writes of this job's tasks fail. If the node were deleted and created again,
    its versions would start from 0 again, and these writes could succeed.
    """
    await host.store.sync()
    found = await host.store.producers.read(host.log_id, job.app)
    if found is None:
        return {}
    if found.value.runs != (job.run,) or found.value.last_batch_id != NO_BATCH:
        return None
    return {job.app: found.version}


async def _mark_ledgers(host: LogHost, job: Job, producers: dict[str, Version]) -> bool:
    """Mark the registered ledgers of the job's producer. Return whether the producer had any."""
    if not producers or not await host.store.producers.registered(host.log_id, job.app):
        return False
    await host.run(StagedSweep(host.name, app=job.app, staging_ttl_ms=-1))
    return True
