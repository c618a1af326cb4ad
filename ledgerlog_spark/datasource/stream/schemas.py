"""Compares a stream's columns, fixed at its start, with its logs' columns, which can be added."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import pyarrow as pa

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.datasource.case_rule import reject_unknown_columns
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.errors import SchemaMismatchError
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import LogContent, LogSnapshot

_logger = logging.getLogger(__name__)


class StreamSchemas:
    """The columns of a stream's logs, for a query that reads the columns in `schema_json`."""

    def __init__(self, schema_json: str, options: SourceOptions) -> None:
        self._target = arrow_schema_of(schema_json)
        self._options = options
        self._checked: dict[str, int] = {}
        self._known: dict[str, set[str]] = {}
        self._new: dict[str, tuple[str, ...]] = {}

    def check(self, view: LogView) -> None:
        """Check the log's columns if they changed since the last check.

        New columns are reported once in the log file of the source process, and by `new_columns`.
        """
        if view.content is not LogContent.ROWS or view.schema_id not in view.schemas:
            return
        if self._checked.get(view.log_id) == view.schema_id:
            return
        schema = decode_schema(view.schemas[view.schema_id])
        try:
            Conformer(self._target, ignores_case=True).conform(
                pa.RecordBatch.from_pylist([], schema=schema)
            )
        except SchemaMismatchError as error:
            reason = error.message.rstrip(".")
            raise SchemaMismatchError(
                f"log {view.name!r} does not fit the columns of the query: {reason}. "
                f"An overwrite replaced the log's columns (overwriteSchema), or this is another "
                f"log than those that the query began with, or the query's own schema: leave the "
                f"log out, or read it by a separate query.",
                **{**error.fields, "log": view.name},
            ) from error
        known = self._known.setdefault(view.log_id, {*schema.names, *self._target.names})
        new = tuple(name for name in schema.names if name not in known)
        if new and self._options.columns is None:
            self._new[view.name] = new
            _logger.warning("%s", new_columns_notice(view.name, new))
        self._checked[view.log_id] = view.schema_id

    def reject_unknown(self, logs: Iterable[LogSnapshot]) -> None:
        """Raise the errors of `reject_unknown_columns` for the logs with which the query begins."""
        reject_unknown_columns(self._target, logs, include_metadata=self._options.include_metadata)

    def new_columns(self, name: str) -> tuple[str, ...]:
        """The columns that a log got after the query began."""
        return self._new.get(name, ())

    def forget_others(self, names: set[str], log_ids: set[str]) -> None:
        """Forget the columns of all logs except those in `names` and `log_ids`."""
        for of_log in (self._checked, self._known):
            for log_id in of_log.keys() - log_ids:
                del of_log[log_id]
        for name in self._new.keys() - names:
            del self._new[name]


def new_columns_notice(name: str, columns: Sequence[str]) -> str:
    """Advice about columns that were added after the query began."""
    return (
        f"log {name!r} has new columns: {', '.join(columns)}. The query continues without them, as "
        f"its columns are fixed while it runs; restart it to read them (older rows read as null)."
    )
