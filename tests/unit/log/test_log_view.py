"""The parts of a log's metadata that a stream reads (ledgerlog_spark.protocol.log.read.view)."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.read.view import VERSIONS_AT_ONCE, LogView, ViewMachine
from ledgerlog_spark.protocol.log.state.records import Operation, WriteMode
from tests.unit.log.log_values import OneLog, new_head, staged, token

if TYPE_CHECKING:
    from typing import Any


class WrittenLog(OneLog):
    """A log with commits of 100 rows each."""

    def __init__(self, commits: int = 0) -> None:
        super().__init__(*new_head())
        self.producer("app", "run")
        self.requests: list[Any] = []
        self.commits = 0
        for _ in range(commits):
            self.commit_one()

    def reply(self, ask: Any) -> Any:
        self.requests.append(ask)
        return super().reply(ask)

    def commit_one(self, mode: WriteMode = WriteMode.APPEND, schema: bytes = b"") -> None:
        self.register("app", self.commits)
        head = self.head.value
        request = CommitRequest(
            app="app",
            run="run",
            batch_id=self.commits,
            ranges=(staged(self.commits),),
            mode=mode,
            schema=schema,
            base_schema_id=head.schema_id,
            planned_version=head.version,
        )
        self.run(CommitMachine("flights", request, token=token(100 + 10 * self.commits)))
        self.registered["app"] = ()
        self.commits += 1

    def view(self, first_offset: int = 0, **how: Any) -> LogView:
        self.requests.clear()
        view = self.run(ViewMachine("flights", first_offset=first_offset, **how))
        assert isinstance(view, LogView)
        return view


def asked(log: WrittenLog) -> list[str]:
    return [type(ask).__name__ for ask in log.requests]


def test_a_view_has_the_items_from_an_offset_on() -> None:
    view = WrittenLog(5).view(250)
    assert [item.first_offset for item in view.items] == [200, 300, 400]
    assert (view.oldest_offset, view.start_offset, view.end_offset) == (0, 0, 500)
    assert view.first_offset == 250


def test_a_view_that_may_be_old_costs_one_request() -> None:
    log = WrittenLog(5)
    log.view(400, known_version=4, is_fresh=False)
    assert asked(log) == ["ReadHead"]
    log.view(400, known_version=4)
    assert asked(log) == ["Sync", "ReadHead"]


def test_versions_that_are_known_are_not_read_again() -> None:
    log = WrittenLog(5)
    assert [v.version for v in log.view(400, known_version=3).versions] == [4, 5]
    assert log.view(500, known_version=5).versions == ()


def test_versions_are_read_back_to_the_one_that_ends_before_the_first_offset() -> None:
    log = WrittenLog(300)
    near = log.view(29_950).versions
    assert len(near) == VERSIONS_AT_ONCE
    far = log.view(10_000).versions
    assert far[-1].version == 300
    assert far[0].end_offset < 10_000
    assert [v.version for v in far] == list(range(far[0].version, 301))
    assert len(log.view(0).versions) == 301


def test_rows_that_were_overwritten_and_are_retained_are_in_the_view() -> None:
    log = WrittenLog(2)
    log.commit_one(WriteMode.OVERWRITE)
    view = log.view(100)
    assert (view.oldest_offset, view.start_offset, view.end_offset) == (0, 200, 300)
    assert [item.first_offset for item in view.items] == [100, 200]
    assert view.versions[-1].operation is Operation.OVERWRITE


def test_schemas_that_are_known_are_not_read_again() -> None:
    log = WrittenLog()
    log.commit_one(schema=b"one")
    log.commit_one(schema=b"two")
    view = log.view()
    assert view.schemas == {0: b"one", 1: b"two"}
    assert view.schema_id == 1
    assert log.view(known_schemas={0}).schemas == {1: b"two"}
    assert log.view(known_schemas={0, 1}).schemas == {}


def test_an_offset_that_is_not_retained_begins_at_the_first_that_is() -> None:
    log = WrittenLog(3)
    head = replace(log.head.value, oldest_version=2, oldest_offset=200, start_offset=200)
    log.head = Versioned(head, log.head.version)
    view = log.view(50)
    assert view.first_offset == view.oldest_offset == 200
    assert [item.first_offset for item in view.items] == [200]


def test_a_deleted_log_has_no_view() -> None:
    log = WrittenLog(1)
    log.head = Versioned(replace(log.head.value, deleted_ms=5), log.head.version)
    with pytest.raises(LogNotFoundError, match="it was deleted"):
        log.view(is_fresh=False)


def test_a_missing_page_makes_a_view_that_may_be_old_synchronise() -> None:
    log = WrittenLog(300)
    machine = ViewMachine("flights", is_fresh=False)
    (ask,) = machine.start()
    assert isinstance(ask, m.ReadHead)
    (ask,) = machine.handle(log.reply(ask))
    assert isinstance(ask, m.ReadPages)
    (ask,) = machine.handle(m.PagesRead(ask.request, MetadataOutcome.GONE, ()))
    assert isinstance(ask, m.Sync)
    effect: Any = ask
    while not isinstance(effect, m.Finished):  # a stale replica: now it has the page
        assert not isinstance(effect, m.Failed), effect.error
        (effect,) = machine.handle(log.reply(effect))
    assert effect.result.end_offset == log.head.value.end_offset


def test_calls_of_the_parts_of_a_log_are_shown_as_calls_of_the_log() -> None:
    for kind in (Log, BlockingLog):
        assert next(iter(inspect.signature(kind.view).parameters)) == "self"
        assert "host" not in inspect.signature(kind.view).parameters
    assert "host" not in inspect.signature(Log.read_range).parameters
