"""The decisions of a batch write about the log before its job begins."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest

from ledgerlog_spark.arrow.schema_evolution import storable
from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write import job as write_job
from ledgerlog_spark.errors import SchemaMismatchError
from ledgerlog_spark.log.committing.job import Job, plan_job
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogContent, LogHead, LogKind, WriteMode


def rows_of(kind: str) -> str:
    field = {"name": "k", "type": kind, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [field]})


def state_at(version: int, schema: bytes) -> LogState:
    head = LogHead(
        log_id="id",
        name="flights",
        kind=LogKind.TRANSACTIONAL,
        content=LogContent.ROWS,
        version=version,
        start_offset=0,
        end_offset=10 * version,
        schema_id=0,
        commit_time_ms=1_000,
        token="0" * 32,
        properties={},
    )
    return LogState(head, Version(version, 0), {0: schema})


class ChangingLog:
    """A log that others change: each read of its state returns the next state, or the last."""

    def __init__(self, *states: LogState) -> None:
        self._states = deque(states)

    def state(self) -> LogState:
        return self._states.popleft() if len(self._states) > 1 else self._states[0]

    def begin(
        self, *, schema: bytes, mode: WriteMode, batch_id: int, planned: LogState, **_: Any
    ) -> Job:
        plan = plan_job(planned, schema=schema, mode=mode)
        return plan.job(app="a", run="r", batch_id=batch_id, kind=JobKind.BATCH)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(write_job, "check_bookies", lambda _client, _properties: None)

    def begun(log: ChangingLog, kind: str) -> Job:
        monkeypatch.setattr(write_job, "opened", lambda _client, _options, _schema: (log, False))
        options = SourceOptions.parse({"path": "flights"}).for_write()
        client: Any = None
        return write_job.begin_job(client, options, rows_of(kind), overwrite=False)

    return begun


def test_a_first_commit_just_before_the_job_begins_is_left_to_the_commit(begin: Any) -> None:
    """The commit sees that its job was planned on version 0, whose columns were not fixed."""
    longs, strings = (stored_schema(storable(rows_of(kind))) for kind in ("long", "string"))
    log = ChangingLog(state_at(0, longs), state_at(1, longs))
    job = begin(log, "string")
    assert (job.schema, job.schema_id, job.base_schema_id) == (strings, None, 0)
    assert job.planned_version == 0


def test_rows_that_fit_the_columns_of_the_log_have_its_schema(begin: Any) -> None:
    longs = stored_schema(storable(rows_of("long")))
    job = begin(ChangingLog(state_at(1, longs)), "integer")
    assert (job.schema, job.schema_id, job.planned_version) == (longs, 0, 1)


def test_rows_that_do_not_fit_the_columns_of_the_log_are_refused(begin: Any) -> None:
    longs = stored_schema(storable(rows_of("long")))
    with pytest.raises(SchemaMismatchError, match="column 'k' of log 'flights' is long"):
        begin(ChangingLog(state_at(1, longs)), "string")


def test_a_job_on_a_log_without_a_commit_has_the_columns_of_its_rows(begin: Any) -> None:
    longs, strings = (stored_schema(storable(rows_of(kind))) for kind in ("long", "string"))
    job = begin(ChangingLog(state_at(0, longs)), "string")
    assert (job.schema, job.schema_id, job.planned_version) == (strings, None, 0)
