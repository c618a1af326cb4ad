"""Reads and changes logs for the catalog, which shows each log as a table.

Each change is one transaction of the log, or one commit of a job. The exception is CREATE TABLE,
which creates a log and then commits its columns. If that commit fails, the log is deleted again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ledgerlog_spark.arrow.schema_evolution import storable
from ledgerlog_spark.arrow.spark_types import comment_of, spark_schema, stored_schema, type_text
from ledgerlog_spark.datasource.catalog.definitions import COMMENT, Definition, added_columns
from ledgerlog_spark.datasource.catalog.details import DETAILS, rows_of, schema_json_of
from ledgerlog_spark.datasource.catalog.names import SEPARATOR
from ledgerlog_spark.datasource.cluster import password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.time_travel import requested_version
from ledgerlog_spark.datasource.schemas import records_schema
from ledgerlog_spark.datasource.write.job import begin_job, check_bookies, delete_log_of
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LedgerLogError,
    LogExistsError,
    LogKindError,
    LogNotFoundError,
    SchemaMismatchError,
)
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.committing.columns import SchemaChange, has_defaults, with_columns
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.protocol.log.properties import (
    LogProperties,
    check_log_name,
    user_properties,
)
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

_NO_COLUMNS = type_text({"type": "struct", "fields": []})


class Tables:
    """The logs of one cluster, as tables."""

    def __init__(self, client: BlockingLogClient, options: Mapping[str, str]) -> None:
        """Make an object for the logs of the client's cluster.

        `options` are the catalog's options.
        """
        self._client = client
        self._options = options
        self._password = password_in(SourceOptions.parse(options).password_file)

    def names(self) -> Sequence[str]:
        """Return the names of all logs, sorted."""
        return self._client.logs.names()

    def load(self, name: str, travel: Mapping[str, str]) -> dict[str, Any]:
        """Return the columns, comment and properties of a log, or of a metadata table of a log.

        Args:
            name: The name of the log. For a metadata table, a dot and the table's name follow it.
            travel: The option `versionAsOf` or `timestampAsOf`; empty to load the newest version.

        Raises:
            LogNotFoundError: There is no such log.
            VersionNotAvailableError: The version does not exist, or has expired.
            LogKindError: A version of a leader log is requested.
            ConfigurationError: The version is not a number, or a metadata table was requested at a
                version.
        """
        try:
            log = self._opened(name)
        except LogNotFoundError:
            return self._detail(name, travel)
        state = log.state()
        version, schema = self._version_of(log, state, travel)
        return {
            "log": name,
            "log_id": log.log_id,
            "version": version,
            "schema": _NO_COLUMNS if schema is None else spark_schema(schema),
            "comment": "" if schema is None else comment_of(schema),
            "properties": user_properties(state.head.properties),
            "detail": "",
        }

    def _version_of(
        self, log: BlockingLog, state: LogState, travel: Mapping[str, str]
    ) -> tuple[int | None, bytes | None]:
        """Return the number of the version that is selected, and its stored schema."""
        head = state.head
        newest = records_schema() if head.content is LogContent.RECORDS else state.schema
        options = SourceOptions.parse({"log": log.name, **travel})
        version = requested_version(self._client.logs, log, options)
        if version is None:
            return (head.version if head.kind is LogKind.TRANSACTIONAL else None), newest
        return version, log.snapshot(version).schema or newest

    def _detail(self, name: str, travel: Mapping[str, str]) -> dict[str, Any]:
        log, detail = self._log_of_detail(name)
        if travel:
            raise ConfigurationError(
                f"{name} is a metadata table, which shows the newest version only: leave VERSION "
                "AS OF and TIMESTAMP AS OF out",
                log=log.name,
            )
        return {
            "log": log.name,
            "log_id": log.log_id,
            "version": None,
            "schema": schema_json_of(detail),
            "comment": "",
            "properties": {},
            "detail": detail,
        }

    def rows(self, name: str, detail: str) -> list[list[Any]]:
        """Return the rows of a metadata table. Raises the errors of `rows_of`."""
        return rows_of(self._client, self._opened(name), detail)

    def create(self, name: str, definition: Definition) -> None:
        """Create a log, and commit its columns as version 1.

        Raises:
            LogExistsError: A log or a metadata table with this name exists.
            SchemaMismatchError: A column cannot be stored.
            ConfigurationError: The name is not valid.
            NotEnoughBookiesError: The cluster has too few bookies for a ledger of the log.
        """
        schema = stored_schema(storable(definition.schema_json), comment=definition.comment)
        self._check_free(name)
        check_bookies(self._client, LogProperties.from_mapping(definition.properties))
        log = self._client.logs.create(name, schema=schema, properties=dict(definition.properties))
        job: Job | None = None
        try:
            job = log.begin(
                schema=schema, password=self._password, expected_version=0, is_log_new=True
            )
            log.commit(job, (), is_last=True)
        except BaseException:
            delete_log_of(log, job)
            raise

    def staged(self, name: str, definition: Definition, mode: str) -> dict[str, Any]:
        """Determine how Spark writes a table that it creates or replaces together with its rows.

        This method changes nothing. `mode` is `create`, `replace` or `create_or_replace`. The
        result contains the options of the write, and whether the write is an overwrite.

        Raises:
            LogExistsError: `mode` is `create`, and the log exists.
            LogNotFoundError: `mode` is `replace`, and the log does not exist.
            LogKindError: The log is a leader log.
            ConfigurationError: The definition has a property that no option of a write can set.
        """
        common = {"path": name, **definition.options()}
        storable(definition.schema_json)
        try:
            log = self._opened(name)
        except LogNotFoundError:
            if mode == "replace":
                raise
            log = None
        if log is None:
            self._check_free(name)
            return {"options": {**common, "errorIfExists": "true"}, "is_overwrite": False}
        if mode == "create":
            raise LogExistsError(f"log {name!r} already exists", log=name)
        head = log.state().head
        if head.kind is not LogKind.TRANSACTIONAL:
            raise LogKindError(
                f"log {name!r} is a leader log, whose rows and columns cannot be replaced", log=name
            )
        options = {
            **common,
            "logComment": definition.comment,
            "overwriteSchema": "true",
            "expectedVersion": str(head.version),
            "expectedLogId": log.log_id,
        }
        return {"options": options, "is_overwrite": True}

    def replace(self, definition: Definition, options: Mapping[str, str]) -> None:
        """Replace the columns and the comment of a log, and delete its rows, in one commit.

        `options` are part of the result of `staged`. Raises the errors of `begin_job` and of a
        commit.
        """
        self._overwrite(options, definition.schema_json)

    def truncate(self, name: str, log_id: str) -> None:
        """If the log has rows, create a version without rows.

        Raises the errors of `begin_job` and of a commit.
        """
        state = self._client.logs.open_by_id(name, log_id).state()
        if state.schema is None or state.head.start_offset == state.head.end_offset:
            return
        options = {"path": name, "expectedLogId": log_id}
        self._overwrite(options, spark_schema(state.schema))

    def drop(self, name: str) -> bool:
        """Delete a log, and return whether it existed. The sweeper deletes its ledgers later.

        Raises:
            ConfigurationError: The name belongs to a metadata table.
        """
        try:
            log = self._opened(name)
        except LogNotFoundError:
            with contextlib.suppress(LogNotFoundError):
                log, detail = self._log_of_detail(name)
                raise ConfigurationError(
                    f"{detail} cannot be dropped: {name} is a metadata table of log {log.name!r}, "
                    f"and exists as long as the log",
                    log=log.name,
                ) from None
            return False
        try:
            log.delete()
        except LogNotFoundError:
            return False
        return True

    def set_properties(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set properties of a log, or its comment. If a value is None, the default is restored.

        Raises:
            ConfigurationError: A property does not exist, the value of a property is wrong, or
                `changes` has both the comment and properties. Nothing was changed.
            LogNotFoundError: The log does not exist.
        """
        log = self._opened(name)
        others = {key: value for key, value in changes.items() if key != COMMENT}
        if not others:
            self._set_comment(log, changes.get(COMMENT) or "")
            return
        if COMMENT in changes:
            raise ConfigurationError(
                "a statement cannot set the comment of a log together with its properties: set the "
                f"comment with COMMENT ON TABLE {name} IS '..', in another statement",
                key=COMMENT,
            )
        log.set_properties(others)

    def add_columns(
        self, name: str, additions: Sequence[tuple[Sequence[str], Mapping[str, Any]]]
    ) -> None:
        """Add columns at the end of the schema, and fields at the end of structs.

        In older rows, the values of these columns and fields are null.

        Raises:
            SchemaMismatchError: A column cannot be stored, is NOT NULL, or has a default value that
                older rows would get. Nothing was changed.
            LogKindError: The log is a leader log.
            LogNotFoundError: The log does not exist.
        """
        log = self._opened(name)

        def added(state: LogState) -> SchemaChange:
            current = _NO_COLUMNS if state.schema is None else spark_schema(state.schema)
            columns = stored_schema(storable(added_columns(name, current, additions)))
            return SchemaChange(with_columns(state, columns), is_exact=has_defaults(columns))

        log.change_schema(added, password=self._password)

    def _set_comment(self, log: BlockingLog, comment: str) -> None:
        def commented(state: LogState) -> SchemaChange:
            if state.schema is None:
                raise SchemaMismatchError(
                    f"log {log.name!r} has no columns yet, so it cannot store a comment: write "
                    "to the log first",
                    log=log.name,
                )
            return SchemaChange(stored_schema(spark_schema(state.schema), comment=comment))

        log.change_schema(commented, password=self._password)

    def _overwrite(self, options: Mapping[str, str], schema_json: str) -> None:
        parsed = SourceOptions.parse({**self._options, **options})
        parsed.check_mode(overwrite=True)
        job = begin_job(self._client, parsed.for_write(), schema_json, overwrite=True)
        log = self._client.logs.open_by_id(job.log, job.log_id)
        try:
            log.commit(job, (), is_last=True)
        except ConcurrentCommitError:
            with contextlib.suppress(LedgerLogError):
                log.release(job)
            raise

    def _check_free(self, name: str) -> None:
        """Raise LogExistsError if a log of this name would hide a metadata table."""
        try:
            log, detail = self._log_of_detail(name)
        except LogNotFoundError:
            return
        raise LogExistsError(
            f"{name} is the metadata table {detail} of log {log.name!r}: choose another name",
            log=name,
        )

    def _log_of_detail(self, name: str) -> tuple[BlockingLog, str]:
        owner, _, detail = name.rpartition(SEPARATOR)
        if not owner or detail not in DETAILS:
            raise LogNotFoundError(f"log {name!r} does not exist", log=name)
        return self._opened(owner), detail

    def _opened(self, name: str) -> BlockingLog:
        """Open the log. An invalid name also causes a LogNotFoundError."""
        try:
            check_log_name(name)
        except ConfigurationError as error:
            raise LogNotFoundError(error.message, log=name) from error
        return self._client.logs.open(name)
