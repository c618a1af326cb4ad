"""The log of a write, and the end of a log that was created for a failed write."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write import job as write_job
from ledgerlog_spark.datasource.write.job import begin_job, delete_log_of
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LogExistsError,
    LogNotFoundError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.testing import connect_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.log.clients import BlockingLogClient
    from ledgerlog_spark.log.committing.job import Job

FIELD = {"name": "k", "type": "long", "nullable": True, "metadata": {}}
ROWS = json.dumps({"type": "struct", "fields": [FIELD]})


@pytest.fixture
def client() -> Iterator[BlockingLogClient]:
    with connect_in_memory() as connected:
        yield connected


def begin(client: BlockingLogClient, **options: str) -> Job:
    parsed = SourceOptions.parse({"path": "flights", **options}).for_write()
    return begin_job(client, parsed, ROWS, overwrite=False)


def log_of(client: BlockingLogClient) -> BlockingLog:
    return client.logs.open("flights")


def test_the_first_write_creates_its_log_and_later_ones_do_not(client: BlockingLogClient) -> None:
    assert begin(client).is_log_new
    assert not begin(client).is_log_new


def test_a_job_that_cannot_begin_leaves_no_log(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotEnoughBookiesError):
        begin(client, ensembleSize="9")
    for name in ("check_head", "schema_after"):
        with monkeypatch.context() as patch:

            def fails(*_: Any, **__: Any) -> Any:
                raise MetadataUnavailableError("by design")

            patch.setattr(write_job, name, fails)
            with pytest.raises(MetadataUnavailableError):
                begin(client)
        assert not client.logs.names()


def test_a_job_that_begins_when_bookies_are_lost_leaves_no_log_and_no_producer(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has already begun, so its producer is deleted first."""
    check, calls = write_job.check_bookies, []

    def second_fails(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise NotEnoughBookiesError("by design")
        check(*arguments)

    monkeypatch.setattr(write_job, "check_bookies", second_fails)
    with pytest.raises(NotEnoughBookiesError):
        begin(client)
    assert not client.logs.names()


def test_an_existing_log_outlives_a_job_that_cannot_begin(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(client)

    def fails(*_: Any, **__: Any) -> Any:
        raise MetadataUnavailableError("by design")

    monkeypatch.setattr(write_job, "schema_after", fails)
    with pytest.raises(MetadataUnavailableError):
        begin(client)
    assert client.logs.names() == ["flights"]


def test_a_log_that_its_creator_deletes_meanwhile_is_created_anew(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(client)
    check = write_job.check_head

    def after_the_abort(*arguments: Any) -> None:
        monkeypatch.setattr(write_job, "check_head", check)
        log_of(client).abort(first)
        check(*arguments)

    monkeypatch.setattr(write_job, "check_head", after_the_abort)
    second = begin(client)
    assert second.is_log_new
    assert second.log_id != first.log_id
    assert log_of(client).log_id == second.log_id


@pytest.mark.parametrize("options", [{"expectedVersion": "0"}, {"createIfMissing": "false"}])
def test_a_write_that_needs_a_log_does_not_create_it_anew(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    first = begin(client)
    check = write_job.check_head

    def after_the_abort(*arguments: Any) -> None:
        log_of(client).abort(first)
        check(*arguments)

    monkeypatch.setattr(write_job, "check_head", after_the_abort)
    with pytest.raises(LogNotFoundError):
        begin(client, **options)
    assert not client.logs.names()


def test_a_write_that_must_create_its_log_is_the_first_commit_of_it(
    client: BlockingLogClient,
) -> None:
    creator = begin(client, errorIfExists="true")
    with pytest.raises(LogExistsError) as raised:
        begin(client, errorIfExists="true")
    assert raised.value.definite
    log = log_of(client)
    log.commit(begin(client), [])
    with pytest.raises(ConcurrentCommitError):
        log.commit(creator, [])
    log.abort(creator)
    assert log.state().head.version == 1


def test_a_creation_that_was_committed_is_recognised_and_another_batch_is_not(
    client: BlockingLogClient,
) -> None:
    how = {"errorIfExists": "true", "txnAppId": "daily", "txnVersion": "3"}
    log_of_first = begin(client, **how)
    log = log_of(client)
    log.commit(log_of_first, [])
    again = begin(client, **how)
    assert (again.is_replay, again.is_log_new) == (True, False)
    assert log.commit(again, []).status is CommitStatus.ALREADY_COMMITTED
    with pytest.raises(LogExistsError):
        begin(client, **(how | {"txnVersion": "4"}))


def test_the_error_of_a_write_is_not_hidden_by_a_store_that_fails(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = begin(client)

    def fails(*_: Any) -> None:
        raise MetadataUnavailableError("by design")

    monkeypatch.setattr(BlockingLog, "abort", fails)
    monkeypatch.setattr(BlockingLog, "delete_if_unused", fails)
    for each in (job, None):
        with caplog.at_level(logging.WARNING, logger=write_job.__name__):
            delete_log_of(log_of(client), each)
    messages = [
        record.getMessage() for record in caplog.records if record.name == write_job.__name__
    ]
    assert len(messages) == 2
    assert all("the empty log flights could not be deleted: by design" in m for m in messages)
