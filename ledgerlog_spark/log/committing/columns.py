"""Computes the schema of a log to which columns are added without rows (LOGS.md#K8)."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.errors import LogKindError, SchemaMismatchError
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogKind


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A new schema for a log, as `LogCommits` commits it.

    Attributes:
        schema: The schema, as an Arrow schema message.
        is_exact: Whether the schema is valid only for the version of the log from which it was
            computed.
    """

    schema: bytes
    is_exact: bool = False


def check_is_transactional(state: LogState) -> None:
    """Raise LogKindError if the log is a leader log."""
    head = state.head
    if head.kind is not LogKind.TRANSACTIONAL:
        raise LogKindError(
            f"log {head.name!r} is a leader log, whose columns are fixed: create another log, and "
            "read both logs together",
            log=head.name,
        )


def with_columns(state: LogState, schema: bytes) -> bytes:
    """Return the schema of a transactional log, with the columns of `schema` added at its end.

    If the log has all these columns, the stored bytes of its schema are returned unchanged.
    SchemaMismatchError is raised if a column cannot be added, or has a default that the existing
    rows would need.
    """
    # Imported here because most programs add no columns.
    from ledgerlog_spark.arrow.schema_evolution import existence_defaults, merge, storable
    from ledgerlog_spark.arrow.spark_types import comment_of, spark_schema, stored_schema

    head, current, given = state.head, state.schema, spark_schema(schema)
    before = None if current is None else spark_schema(current)
    if head.start_offset != head.end_offset:
        _reject_existence_defaults(head.name, existence_defaults(before, given))
    if current is None or before is None:
        return stored_schema(storable(given), comment=comment_of(schema))
    merged = merge(before, given, log=head.name, add_columns=True)
    return current if merged == before else stored_schema(merged, comment=comment_of(current))


def has_defaults(schema: bytes) -> bool:
    """Whether a column of `schema` has a default that rows older than the column would need."""
    from ledgerlog_spark.arrow.schema_evolution import existence_defaults
    from ledgerlog_spark.arrow.spark_types import spark_schema

    return bool(existence_defaults(None, spark_schema(schema)))


def _reject_existence_defaults(log: str, defaults: dict[str, str]) -> None:
    for column, default in defaults.items():
        raise SchemaMismatchError(
            f"column {column!r} has the default {default} for the rows that log {log!r} already "
            "has, but the column can only be null in these rows: add it without a default",
            log=log,
            column=column,
            expected="no default, or NULL",
            got=default,
        )
