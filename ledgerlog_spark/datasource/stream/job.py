"""The driver's part of a micro-batch: what its tasks need, and the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ledgerlog_spark.arrow.schema_evolution import storable
from ledgerlog_spark.arrow.schema_records import stored_schema
from ledgerlog_spark.datasource.cluster import client_of, logs_at, password_in
from ledgerlog_spark.datasource.write.job import (
    check_bookies,
    check_head,
    opened,
    schema_after,
)
from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.blocking.stream import BlockingStream
from ledgerlog_spark.log.committing.job import plan_job
from ledgerlog_spark.log.committing.stream_ledgers import log_deleted, log_made_again
from ledgerlog_spark.protocol.log.password import check_password
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import WriteMode
from ledgerlog_spark.upkeep.background import upkeep_after_commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.datasource.options.values import WriteOptions
    from ledgerlog_spark.log.committing.job import Job, JobPlan
    from ledgerlog_spark.protocol.log.commit.result import CommitResult
    from ledgerlog_spark.protocol.log.read.versions import LogState
    from ledgerlog_spark.protocol.log.state.records import StagedRange

_log_ids: dict[tuple[str, str], str] = {}
"""Of logs that this process planned batches for, by service URI and name; the latest LOGS_MAX."""

LOGS_MAX = 10_000


class StreamPlan(NamedTuple):
    """What the tasks of a micro-batch need; pickles.

    Attributes:
        plan: Of the batch. None when this process planned batches for a log that is deleted, and
            there is none of its name: whether one is made depends on the query.
        is_made_again: This process planned batches for another log of that name before.
    """

    plan: JobPlan | None
    is_made_again: bool


def plan_stream(
    uri: str, options: WriteOptions, schema_json: str, *, overwrite: bool
) -> StreamPlan:
    """What the tasks of the next micro-batch need; at most two requests, but for the first.

    Spark does not say here which query it plans for, so the producer is the tasks' to find out,
    and whether that query wrote the log before (`plan_of_batch`).

    Raises:
        LogNotFoundError: No such log, and `createIfMissing` is false.
        LogKindError: A leader appends to the log.
        SchemaMismatchError: Rows of this schema cannot be stored in the log.
        ConfigurationError: Options that do not fit the log as it is.
        UnauthorizedError: The log has another password.
        NotEnoughBookiesError: Fewer writable bookies than the log's ensemble; names both numbers.
    """
    before = _log_ids.get((uri, options.log))
    state = _state(uri, options, schema_json, overwrite=overwrite)
    if state is None:
        return StreamPlan(None, is_made_again=False)
    plan = _planned(state, options, schema_json, overwrite=overwrite)
    return StreamPlan(plan, is_made_again=before not in {None, plan.log_id})


def plan_of_batch(
    uri: str,
    options: WriteOptions,
    schema_json: str,
    *,
    overwrite: bool,
    planned: StreamPlan,
    batch_id: int,
) -> JobPlan:
    """What a task of that batch goes by. The first batch of a query begins in a new log.

    Raises:
        LogNotFoundError: The log was deleted while the query ran, or deleted and made again.
        LedgerLogError: As of `plan_stream`, in the first batch.
    """
    if batch_id > 0 and planned.is_made_again:
        raise log_made_again(options.log)
    if planned.plan is not None:
        return planned.plan
    if batch_id > 0:
        raise log_deleted(options.log)
    state = _opened_state(uri, options, schema_json)
    return _planned(state, options, schema_json, overwrite=overwrite)


def commit_stream(uri: str, job: Job, ranges: Sequence[StagedRange]) -> CommitResult:
    """Commit what the tasks wrote, in the order of `ranges`; errors as `Log.commit`.

    Now and then this also begins upkeep of the log, and does not wait for it.
    """
    client = client_of(uri)
    result = BlockingStream(client, job).commit(ranges)
    upkeep_after_commit(client, job.log, result.version)
    return result


def _planned(
    state: LogState, options: WriteOptions, schema_json: str, *, overwrite: bool
) -> JobPlan:
    check_head(options, state.head)
    return plan_job(
        state,
        schema=schema_after(state, schema_json, options, overwrite=overwrite),
        mode=WriteMode.OVERWRITE if overwrite else WriteMode.APPEND,
        overwrite_if_changed=options.overwrite_if_changed,
        password=password_in(options.password_file),
    )


def _state(
    uri: str, options: WriteOptions, schema_json: str, *, overwrite: bool
) -> LogState | None:
    """The log's state; an append needs its schema alone, which the commit looks at again.

    None when the log that is known was deleted, and none of its name is there but could be made.
    """
    key = (uri, options.log)
    log_id = _log_ids.get(key)
    if log_id is not None:
        try:
            return logs_at(uri).open_by_id(options.log, log_id).state(is_fresh=overwrite)
        except LogNotFoundError:
            del _log_ids[key]
        if options.create_if_missing and _is_missing(uri, options.log):
            return None
    return _opened_state(uri, options, schema_json)


def _is_missing(uri: str, log: str) -> bool:
    try:
        logs_at(uri).open(log)
    except LogNotFoundError:
        return True
    return False


def _opened_state(uri: str, options: WriteOptions, schema_json: str) -> LogState:
    schema, password = stored_schema(storable(schema_json)), password_in(options.password_file)
    log = opened(uri, options, schema)
    state = log.state()
    check_bookies(uri, LogProperties.from_mapping(state.head.properties))
    check_password(options.log, state.head, password)
    _log_ids[uri, options.log] = log.log_id
    if len(_log_ids) > LOGS_MAX:
        del _log_ids[next(iter(_log_ids))]
    return state
