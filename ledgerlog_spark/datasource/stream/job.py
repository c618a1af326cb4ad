"""The driver's part of a micro-batch: plans the input of its tasks, and commits their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledgerlog_spark.arrow.schema_evolution import storable
from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.datasource.cluster import client_of, password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write.job import (
    check_bookies,
    check_head,
    opened,
    schema_after,
)
from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.blocking.stream import BlockingStream
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.committing.job import Job, JobPlan, plan_job
from ledgerlog_spark.log.committing.stream_ledgers import log_deleted, log_made_again
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.password import check_password
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from ledgerlog_spark.upkeep.upkeep import upkeep_after_commit

_log_ids: dict[tuple[str, str], str] = {}
"""Maps URI and name to the ids of logs for which this process planned batches; at most LOGS_MAX."""

LOGS_MAX = 10_000


class StreamPlan(NamedTuple):
    """The input for the tasks of a micro-batch. Spark pickles this object.

    `plan` is None if the log of this process's earlier batches was deleted, and no new log has the
    same name. Then only the first batch of a query may create a new log. `is_made_again` is True if
    this process planned batches for an earlier log of that name.
    """

    plan: JobPlan | None
    is_made_again: bool


class StreamWrite(NamedTuple):
    """The log and the options of a query that writes.

    The methods plan the batches of this query.
    """

    uri: str
    options: SourceOptions
    schema_json: str
    overwrite: bool

    def plan(self) -> StreamPlan:
        """Return the plan for the tasks of the next micro-batch.

        Each call after the first call sends at most two requests. Spark does not pass the id of
        the query to this method. So the tasks determine the id of the producer, and check whether
        their query wrote to an earlier log (`plan_of_batch`). Raises the errors of `begin_job`.
        """
        before = _log_ids.get((self.uri, self.options.target))
        state = self._state(client_of(self.uri))
        if state is None:
            return StreamPlan(None, is_made_again=False)
        plan = self._planned(state)
        return StreamPlan(plan, is_made_again=before not in {None, plan.log_id})

    def plan_of_batch(self, planned: StreamPlan, batch_id: int) -> JobPlan:
        """Return the plan for the tasks of a batch.

        Only a query's first batch may begin in a new log.
        """
        if batch_id > 0 and planned.is_made_again:
            raise log_made_again(self.options.target)
        if planned.plan is not None:
            return planned.plan
        if batch_id > 0:
            raise log_deleted(self.options.target)
        return self._planned(self._opened_state(client_of(self.uri)))

    def _planned(self, state: LogState) -> JobPlan:
        options = self.options
        check_head(options, state.head)
        return plan_job(
            state,
            schema=schema_after(state, self.schema_json, options, overwrite=self.overwrite),
            mode=WriteMode.OVERWRITE if self.overwrite else WriteMode.APPEND,
            overwrite_if_changed=options.overwrite_if_changed,
            password=password_in(options.password_file),
        )

    def _state(self, client: BlockingLogClient) -> LogState | None:
        """Return the log's state.

        For appends, the state may be outdated, because the commit checks the schema again. The
        result is None if the log of earlier batches was deleted, no log has its name, and the
        options allow the query to create the log.
        """
        name = self.options.target
        log_id = _log_ids.get((self.uri, name))
        if log_id is not None:
            try:
                return client.logs.open_by_id(name, log_id).state(is_fresh=self.overwrite)
            except LogNotFoundError:
                del _log_ids[self.uri, name]
            if self.options.create_if_missing:
                try:
                    client.logs.open(name)
                except LogNotFoundError:
                    return None
        return self._opened_state(client)

    def _opened_state(self, client: BlockingLogClient) -> LogState:
        options = self.options
        schema = stored_schema(storable(self.schema_json))
        password = password_in(options.password_file)
        log, _ = opened(client, options, schema)
        state = log.state()
        check_bookies(client, LogProperties.from_mapping(state.head.properties))
        check_password(options.target, state.head, password)
        _log_ids[self.uri, options.target] = log.log_id
        if len(_log_ids) > LOGS_MAX:
            del _log_ids[next(iter(_log_ids))]
        return state


def commit_stream(
    client: BlockingLogClient, job: Job, ranges: Sequence[StagedRange]
) -> CommitResult:
    """Commit the ranges of the tasks, in the order of `ranges`. Raises the errors of `Log.commit`.

    Some commits also start upkeep of the log. The function does not wait for the end of this
    upkeep.
    """
    result = BlockingStream(client, job).commit(ranges)
    upkeep_after_commit(client, job.log, result.version)
    return result
