"""Comments, defaults and lengths survive writes of plain rows (LOGS.md#G13)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.arrow.spark_types import comment_of, spark_schema, stored_schema
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write.job import begin_job
from ledgerlog_spark.errors import ConcurrentCommitError, ConfigurationError, SchemaMismatchError
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.testing import connect_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.log.blocking.logs import BlockingLog
    from ledgerlog_spark.log.clients import BlockingLogClient
    from ledgerlog_spark.log.committing.job import Job

LENGTH = "__CHAR_VARCHAR_TYPE_STRING"


def field(name: str, kind: str, **metadata: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def rows(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


TABLE = (
    field("k", "long", comment="the key"),
    field("v", "string", **{LENGTH: "varchar(5)"}),
    field("d", "integer", CURRENT_DEFAULT="41 + 1", EXISTS_DEFAULT="42"),
    field("n", "integer", CURRENT_DEFAULT="null", EXISTS_DEFAULT="NULL"),
)
PLAIN = (field("k", "long"), field("v", "string"), field("d", "integer"))


@pytest.fixture
def client() -> Iterator[BlockingLogClient]:
    with connect_in_memory() as connected:
        yield connected


@pytest.fixture
def log(client: BlockingLogClient) -> BlockingLog:
    """A table that a catalog has created: its columns are committed, without rows."""
    created = client.logs.create("flights", schema=stored_schema(rows(*TABLE), comment="of days"))
    created.commit(created.begin(schema=created.state().schema or b""), [])
    return created


def begin(
    client: BlockingLogClient, *fields: dict[str, Any], overwrite: bool = False, **options: str
) -> Job:
    parsed = SourceOptions.parse({"path": "flights", **options}).for_write()
    return begin_job(client, parsed, rows(*fields), overwrite=overwrite)


def fields_of(schema: bytes) -> list[dict[str, Any]]:
    return list(json.loads(spark_schema(schema))["fields"])


@pytest.mark.parametrize("overwrite", [False, True])
def test_plain_rows_change_no_definition(
    client: BlockingLogClient, log: BlockingLog, overwrite: bool
) -> None:
    schema = log.state().schema
    job = begin(client, *PLAIN, overwrite=overwrite)
    assert job.schema == schema
    assert fields_of(job.schema) == list(TABLE)
    assert comment_of(job.schema) == "of days"


def test_new_columns_keep_the_definitions_and_the_comment(
    client: BlockingLogClient, log: BlockingLog
) -> None:
    job = begin(client, *PLAIN, field("x", "char(2)", comment="more"), mergeSchema="true")
    log.commit(job, [])
    added = field("x", "string", **{LENGTH: "char(2)", "comment": "more"})
    after = log.state().schema or b""
    assert fields_of(after) == [*TABLE, added]
    assert comment_of(after) == "of days"


def test_rows_without_a_column_that_has_a_default_are_refused(
    client: BlockingLogClient, log: BlockingLog
) -> None:
    for overwrite in (False, True):
        with pytest.raises(SchemaMismatchError, match=r"'d' of log 'flights' has the default 41"):
            begin(client, *PLAIN[:2], overwrite=overwrite)
    begin(client, field("K", "long"), field("D", "integer"))  # `n` has the default NULL
    begin(client, *PLAIN[:2], overwrite=True, overwriteSchema="true")
    assert log.state().head.version == 1


def test_a_default_for_existing_rows_is_not_kept_by_a_write(
    client: BlockingLogClient, log: BlockingLog
) -> None:
    """The rows may come from a table that has a default. The log's older rows read null."""
    new = field("x", "integer", CURRENT_DEFAULT="7", EXISTS_DEFAULT="7")
    job = begin(client, *PLAIN, new, mergeSchema="true")
    assert fields_of(job.schema)[-1] == field("x", "integer", CURRENT_DEFAULT="7")


def test_a_column_with_a_default_is_added_only_to_a_log_without_rows(
    client: BlockingLogClient, log: BlockingLog
) -> None:
    def added(name: str, default: str) -> bytes:
        return stored_schema(
            rows(field(name, "integer", CURRENT_DEFAULT=default, EXISTS_DEFAULT=default))
        )

    assert log.add_columns(added("x", "7")).status is CommitStatus.COMMITTED
    assert fields_of(log.state().schema or b"")[-1] == field("x", "integer", CURRENT_DEFAULT="7")
    _append(log)
    with pytest.raises(SchemaMismatchError, match="'y' has the default 8 for the rows that log"):
        log.add_columns(added("y", "8"))
    assert log.add_columns(added("y", "NULL")).status is CommitStatus.COMMITTED
    assert log.add_columns(added("x", "7")).status is CommitStatus.NOTHING_TO_COMMIT


def test_rows_that_come_before_a_column_with_a_default_refuse_it(
    client: BlockingLogClient, log: BlockingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledgerlog_spark.log.committing.commits import LogCommits

    begin_of = LogCommits.begin
    overtaken: list[Any] = []

    async def after_an_append(commits: LogCommits, **how: Any) -> Any:
        job = await begin_of(commits, **how)
        if not overtaken:
            overtaken.append(job)
            head = await begin_of(commits, schema=how["planned"].schema)
            writer = await commits.open_range(head)
            await writer.append(b"batch", rows=1)
            staged = await writer.finish(b"", statistics=b"")
            assert staged is not None
            await commits.commit(head, [staged])
        return job

    monkeypatch.setattr(LogCommits, "begin", after_an_append)
    new = stored_schema(rows(field("x", "integer", CURRENT_DEFAULT="7", EXISTS_DEFAULT="7")))
    with pytest.raises((SchemaMismatchError, ConcurrentCommitError)):
        log.add_columns(new)
    assert overtaken
    assert len(fields_of(log.state().schema or b"")) == len(TABLE)


def _append(log: BlockingLog) -> None:
    job = log.begin(schema=log.state().schema or b"")
    writer = log.open_range(job)
    writer.append(b"batch", rows=1)
    staged = writer.finish(b"", statistics=b"")
    assert staged is not None
    log.commit(job, [staged])


def test_the_comment_is_an_option_of_a_new_log(client: BlockingLogClient) -> None:
    log_of = client.logs.open
    first = begin(client, *PLAIN, logComment="of days")
    assert comment_of(first.schema) == "of days"
    log_of("flights").commit(first, [])
    assert comment_of(begin(client, *PLAIN).schema) == "of days"
    assert comment_of(begin(client, *PLAIN, logComment="of days").schema) == "of days"
    with pytest.raises(
        ConfigurationError, match="\"logComment\" is 'other', and log 'flights' has"
    ):
        begin(client, *PLAIN, logComment="other")


@pytest.mark.parametrize(("given", "kept"), [({}, "of days"), ({"logComment": ""}, "")])
def test_an_overwrite_of_the_columns_may_replace_the_comment(
    client: BlockingLogClient, log: BlockingLog, given: dict[str, str], kept: str
) -> None:
    how = {"overwriteSchema": "true", **given}
    assert comment_of(begin(client, *PLAIN, overwrite=True, **how).schema) == kept
    assert log.state().head.version == 1


def test_added_columns_keep_the_comment(log: BlockingLog) -> None:
    log.add_columns(stored_schema(rows(field("x", "integer"))))
    assert comment_of(log.state().schema or b"") == "of days"


def test_a_comment_alone_needs_no_json_of_spark() -> None:
    stored = stored_schema(rows(field("k", "long")), comment="of days")
    assert comment_of(stored) == "of days"
    assert json.loads(spark_schema(stored)) == json.loads(rows(field("k", "long")))
    assert comment_of(stored_schema(rows(field("k", "long")))) == ""
