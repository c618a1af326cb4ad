"""The reads and changes of the catalog, over a cluster in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.datasource.catalog import answers
from ledgerlog_spark.datasource.catalog.answers import answer_of, answer_to, error_to_json
from ledgerlog_spark.datasource.catalog.details import MISSING
from ledgerlog_spark.datasource.catalog.tables import Tables
from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LogExistsError,
    LogKindError,
    LogNotFoundError,
    NotEnoughBookiesError,
    SchemaMismatchError,
    UnauthorizedError,
    VersionNotAvailableError,
    WireFormatError,
)
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.committing.commits import LogCommits
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.protocol.log.state.records import LogKind
from ledgerlog_spark.testing import connect_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledgerlog_spark.log.clients import BlockingLogClient

FIELD: dict[str, Any] = {"name": "k", "type": "long", "nullable": True, "metadata": {}}


def columns(*names: str, **metadata: str) -> str:
    fields = [{**FIELD, "name": name, "metadata": metadata} for name in names]
    return json.dumps({"type": "struct", "fields": fields})


def defined(*names: str, **properties: str) -> dict[str, Any]:
    return {"schema": columns(*names), "partitions": [], "properties": properties}


@pytest.fixture
def client() -> Iterator[BlockingLogClient]:
    with connect_in_memory() as connected:
        yield connected


@pytest.fixture
def tables(client: BlockingLogClient) -> Tables:
    return Tables(client, {})


def ask(tables: Tables, kind: str, name: str = "flights", **arguments: Any) -> dict[str, Any]:
    return answer_of(tables, {"catalog": kind, "name": name, **arguments})


def create(tables: Tables, name: str = "flights", **properties: str) -> None:
    ask(tables, "create", name, **defined("k", **properties))


def load(tables: Tables, name: str = "flights", **travel: str) -> dict[str, Any]:
    return ask(tables, "load", name, travel=travel)


def write(client: BlockingLogClient, password: bytes = b"") -> BlockingLog:
    """Commit a range with one entry, as a job does."""
    log = client.logs.open("flights")
    job = log.begin(schema=log.state().schema or b"", password=password)
    writer = log.open_range(job)
    writer.append(b"not decoded here", rows=2)
    staged = writer.finish()
    assert staged is not None
    log.commit(job, [staged], is_last=True)
    return log


def test_a_new_table_has_its_columns_comment_and_properties_in_version_1(
    tables: Tables, client: BlockingLogClient
) -> None:
    create(tables, comment="all flights", retentionMs="5000", rollbytes="1000")
    table = load(tables)
    assert table["log_id"] == client.logs.open("flights").log_id
    assert (table["version"], table["comment"]) == (1, "all flights")
    assert table["properties"] == {"retentionMs": "5000", "rollBytes": "1000"}
    assert json.loads(table["schema"]) == json.loads(columns("k"))


def test_a_table_is_created_once_and_a_failed_creation_leaves_no_log(
    tables: Tables, client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotEnoughBookiesError):
        create(tables, ensembleSize="9")
    with monkeypatch.context() as patch:

        def fails(*_: Any, **__: Any) -> Any:
            raise ConcurrentCommitError("by design")

        patch.setattr(BlockingLog, "commit", fails)
        with pytest.raises(ConcurrentCommitError):
            create(tables)
    assert not client.logs.names()
    create(tables)
    with pytest.raises(LogExistsError):
        create(tables)
    with pytest.raises(ConfigurationError, match="cannot be the name of a log"):
        create(tables, "a b")


def test_names_are_listed_by_namespace(tables: Tables) -> None:
    for name in ("flights", "sales.orders", "sales.eu.orders"):
        create(tables, name)
    assert answer_of(tables, {"catalog": "names", "namespace": ["sales"]}) == {
        "tables": ["orders"],
        "namespaces": ["eu"],
        "exists": True,
    }


def test_a_missing_log_and_a_name_that_no_log_can_have_are_no_tables(tables: Tables) -> None:
    for name in ("flights", "a b", "flights.history", ".history"):
        with pytest.raises(LogNotFoundError):
            load(tables, name)
        assert ask(tables, "drop", name) == {"dropped": False}


def test_older_versions_have_their_columns(tables: Tables, client: BlockingLogClient) -> None:
    create(tables)
    ask(tables, "add_columns", columns=[{"path": ["z"], "field": {**FIELD, "name": "z"}}])
    created_ms = client.logs.open("flights").history()[1].commit_time_ms
    assert json.loads(load(tables)["schema"]) == json.loads(columns("k", "z"))
    for travel in ({"versionAsOf": "1"}, {"timestampAsOf": str(created_ms)}):
        old = load(tables, **travel)
        assert (old["version"], json.loads(old["schema"])) == (1, json.loads(columns("k")))
    with pytest.raises(VersionNotAvailableError):
        load(tables, versionAsOf="7")
    with pytest.raises(ConfigurationError, match="must be a whole number"):
        load(tables, versionAsOf="main")


def test_columns_are_added_once_and_only_with_defaults_that_no_row_needs(
    tables: Tables, client: BlockingLogClient
) -> None:
    create(tables)
    add = [{"path": ["z"], "field": {**FIELD, "name": "z"}}]
    for _ in range(2):
        ask(tables, "add_columns", columns=add)
    assert load(tables)["version"] == 2
    default = {"CURRENT_DEFAULT": "7", "EXISTS_DEFAULT": "7"}
    with_default = [{"path": ["d"], "field": {**FIELD, "name": "d", "metadata": default}}]
    write(client)
    with pytest.raises(SchemaMismatchError, match="has the default 7"):
        ask(tables, "add_columns", columns=with_default)
    assert load(tables)["version"] == 3


def test_another_commit_between_the_plan_and_the_commit_of_columns_is_no_error(
    tables: Tables, client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tables)
    begin = LogCommits.begin
    others = [stored_schema(columns("k", "y"))]

    async def begins_late(commits: LogCommits, **arguments: Any) -> Any:
        if others:
            schema = others.pop()
            job = await begin(commits, schema=schema)
            await commits.commit(job, (), is_last=True)
        return await begin(commits, **arguments)

    monkeypatch.setattr(LogCommits, "begin", begins_late)
    ask(tables, "add_columns", columns=[{"path": ["z"], "field": {**FIELD, "name": "z"}}])
    assert json.loads(load(tables)["schema"]) == json.loads(columns("k", "y", "z"))


def test_properties_and_the_comment_are_set_and_unset(tables: Tables) -> None:
    create(tables, retentionMs="5000")
    changes = {"retentionBytes": "9", "retentionMs": None}
    ask(tables, "set_properties", changes=changes)
    assert load(tables)["properties"] == {"retentionBytes": "9"}
    ask(tables, "set_properties", changes={"comment": "new"})
    assert (load(tables)["comment"], load(tables)["version"]) == ("new", 2)
    ask(tables, "set_properties", changes={"comment": None})
    assert load(tables)["comment"] == ""
    for wrong in ({"colour": "red"}, {"comment": "x", "retentionMs": "1"}, {"retentionMs": "x"}):
        with pytest.raises(ConfigurationError):
            ask(tables, "set_properties", changes=wrong)
    assert load(tables)["properties"] == {"retentionBytes": "9"}


def test_a_table_is_truncated_if_it_has_rows(tables: Tables, client: BlockingLogClient) -> None:
    create(tables)
    log = write(client)
    for _ in range(2):
        ask(tables, "truncate", log_id=log.log_id)
        interval = log.snapshot().interval
        assert (interval.version, interval.rows) == (3, 0)
    assert log.snapshot(2).interval.rows == 2


def test_a_dropped_log_keeps_its_ledgers_and_is_not_truncated(
    tables: Tables, client: BlockingLogClient
) -> None:
    create(tables)
    log = write(client)
    (item,) = log.snapshot().items
    assert ask(tables, "drop") == {"dropped": True}
    assert client.ledger_metadata(item.ledger_id).is_closed
    create(tables)
    with pytest.raises(LogNotFoundError):
        ask(tables, "truncate", log_id=log.log_id)


def test_staging_changes_nothing_and_the_write_gets_what_protects_it(
    tables: Tables, client: BlockingLogClient
) -> None:
    staged = defined("z", comment="new", retentionMs="5000")
    new = ask(tables, "stage", mode="create_or_replace", **staged)
    assert new == {
        "is_overwrite": False,
        "options": {
            "path": "flights",
            "errorIfExists": "true",
            "logComment": "new",
            "retentionMs": "5000",
        },
    }
    with pytest.raises(LogNotFoundError):
        ask(tables, "stage", mode="replace", **staged)
    assert not client.logs.names()
    create(tables)
    with pytest.raises(LogExistsError):
        ask(tables, "stage", mode="create", **staged)
    old = ask(tables, "stage", mode="replace", **defined("z"))
    assert old == {
        "is_overwrite": True,
        "options": {
            "path": "flights",
            "logComment": "",
            "overwriteSchema": "true",
            "expectedVersion": "1",
            "expectedLogId": client.logs.open("flights").log_id,
        },
    }


def test_a_replacement_without_rows_is_one_commit_on_the_staged_version(
    tables: Tables, client: BlockingLogClient
) -> None:
    create(tables, comment="old")
    write(client)
    options = ask(tables, "stage", mode="replace", **defined("z"))["options"]
    ask(tables, "replace", write=options, **defined("z"))
    table = load(tables)
    assert (table["version"], table["comment"]) == (3, "")
    assert json.loads(table["schema"]) == json.loads(columns("z"))
    with pytest.raises(ConcurrentCommitError):
        ask(tables, "replace", write=options, **defined("y"))
    assert load(tables)["version"] == 3


def test_a_replacement_that_fails_leaves_nothing_behind(
    tables: Tables, client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tables)
    options = ask(tables, "stage", mode="replace", **defined("z"))["options"]

    def fails(*_: Any, **__: Any) -> Any:
        raise ConcurrentCommitError("by design")

    with monkeypatch.context() as patch:
        patch.setattr(BlockingLog, "commit", fails)
        with pytest.raises(ConcurrentCommitError, match="by design"):
            ask(tables, "replace", write=options, **defined("z"))
    assert json.loads(load(tables)["schema"]) == json.loads(columns("k"))
    log_id = client.logs.open("flights").log_id
    assert not client.run(lambda connected: logs_of(connected).store.producers.names(log_id))


def test_metadata_tables_show_versions_ranges_and_ledgers(
    tables: Tables, client: BlockingLogClient
) -> None:
    create(tables)
    log = write(client)
    (item,) = log.snapshot().items
    found = {}
    for detail in ("history", "ranges", "ledgers"):
        table = load(tables, f"flights.{detail}")
        assert (table["log"], table["detail"]) == ("flights", detail)
        rows = ask(tables, "rows", detail=detail)["rows"]
        width = len(json.loads(table["schema"])["fields"])
        assert all(len(row) == width for row in rows)
        found[detail] = rows
    operations = [row[:2] for row in found["history"]]
    assert operations == [[0, "CREATE"], [1, "APPEND"], [2, "APPEND"]]
    assert found["history"][-1][3:] == [0, 2, 2]
    assert found["ranges"][0][:5] == [
        item.ledger_id, item.first_entry_id, item.last_entry_id, 0, 2
    ]  # fmt: skip
    assert found["ledgers"][0][:2] == [item.ledger_id, "CLOSED"]
    client.delete_ledger(item.ledger_id)
    assert ask(tables, "rows", detail="ledgers")["rows"][0][:3] == [item.ledger_id, MISSING, None]
    with pytest.raises(ConfigurationError, match="newest version only"):
        load(tables, "flights.history", versionAsOf="1")
    with pytest.raises(ConfigurationError, match="cannot be dropped"):
        ask(tables, "drop", "flights.history")
    for statement in ("create", "stage"):
        with pytest.raises(LogExistsError, match="metadata table history"):
            ask(tables, statement, "flights.history", mode="create", **defined("k"))


def test_a_metadata_table_has_a_limit(
    tables: Tables, client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tables)
    write(client)
    write(client)
    monkeypatch.setattr("ledgerlog_spark.datasource.catalog.details.ROWS_MAX", 1)
    for detail in ("history", "ranges", "ledgers"):
        with pytest.raises(ConfigurationError, match="shows at most 1"):
            ask(tables, "rows", detail=detail)


def test_a_leader_log_is_a_table_that_keeps_its_rows(
    tables: Tables, client: BlockingLogClient
) -> None:
    client.logs.create("flights", kind=LogKind.LEADER)
    table = load(tables)
    assert (table["version"], json.loads(table["schema"])["fields"]) == (None, [])
    with pytest.raises(LogKindError):
        load(tables, versionAsOf="1")
    with pytest.raises(LogKindError):
        ask(tables, "stage", mode="replace", **defined("k"))
    with pytest.raises(LogKindError):
        ask(tables, "add_columns", columns=[{"path": ["z"], "field": {**FIELD, "name": "z"}}])
    with pytest.raises(LogKindError):
        ask(tables, "rows", detail="history")
    assert ask(tables, "drop") == {"dropped": True}


def test_a_log_with_a_password_is_changed_by_a_catalog_with_this_password(
    client: BlockingLogClient, tables: Tables, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    protected = Tables(client, {"passwordFile": str(file)})
    create(protected)
    write(client, b"secret")
    add = [{"path": ["z"], "field": {**FIELD, "name": "z"}}]
    with pytest.raises(UnauthorizedError):
        ask(tables, "add_columns", columns=add)
    ask(protected, "add_columns", columns=add)
    assert load(tables)["version"] == 3


def test_an_error_is_an_answer_and_not_an_exception(
    client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "client_of", lambda _: client)
    request = {"format": 1, "catalog": "load", "options": {}, "name": "flights", "travel": {}}
    error = answer_to(LedgerDataSource, request)["error"]
    assert error["kind"] == "LogNotFoundError"
    assert error["fields"] == {"log": "flights"}
    wrong = answer_to(LedgerDataSource, {**request, "options": {"colour": "red"}})["error"]
    assert (wrong["kind"], "unknown option" in wrong["message"]) == ("ConfigurationError", True)
    with pytest.raises(WireFormatError, match="the same release"):
        answer_to(LedgerDataSource, {**request, "format": 2})


def test_the_fields_of_an_error_are_texts() -> None:
    error = ConfigurationError("no", key="k", rows=5)
    assert error_to_json(error)["fields"] == {"key": "k", "rows": "5"}
