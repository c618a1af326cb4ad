"""The state of the driver between micro-batches (ledgerlog_spark.datasource.stream.job)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.stream import job as stream_job
from ledgerlog_spark.datasource.stream.job import StreamPlan, StreamWrite
from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.committing.job import JobPlan


def test_ids_of_logs_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    head = SimpleNamespace(properties={})
    log = SimpleNamespace(log_id="id", state=lambda: SimpleNamespace(head=head))
    monkeypatch.setattr(stream_job, "opened", lambda *_: (log, False))
    for name in ("stored_schema", "storable", "check_bookies", "check_password"):
        monkeypatch.setattr(stream_job, name, lambda *_: None)
    monkeypatch.setattr(stream_job, "_log_ids", {})
    monkeypatch.setattr(stream_job, "LOGS_MAX", 5)
    for number in range(20):
        options = SourceOptions.parse({"log": f"log-{number}"}).for_write()
        client: Any = None
        StreamWrite("uri", options, "{}", overwrite=False)._opened_state(client)
    assert list(stream_job._log_ids) == [("uri", f"log-{number}") for number in range(15, 20)]


def plan_of(planned: StreamPlan, batch_id: int) -> object:
    options = SourceOptions.parse({"log": "a"}).for_write()
    return StreamWrite("uri", options, "{}", overwrite=False).plan_of_batch(planned, batch_id)


def test_a_query_whose_log_was_deleted_does_not_go_on_in_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = cast("JobPlan", object())
    assert plan_of(StreamPlan(plan, is_made_again=False), 7) is plan
    assert plan_of(StreamPlan(plan, is_made_again=True), 0) is plan, "its first batch"
    with pytest.raises(LogNotFoundError, match="was deleted and created again"):
        plan_of(StreamPlan(plan, is_made_again=True), 1)
    made: list[object] = []
    monkeypatch.setattr(stream_job, "client_of", lambda _uri: None)
    monkeypatch.setattr(StreamWrite, "_opened_state", lambda *_: made.append("a log"))
    monkeypatch.setattr(StreamWrite, "_planned", lambda *_: plan)
    with pytest.raises(LogNotFoundError, match="was deleted while the query ran"):
        plan_of(StreamPlan(None, is_made_again=False), 1)
    assert not made
    assert plan_of(StreamPlan(None, is_made_again=False), 0) is plan
    assert made == ["a log"]
