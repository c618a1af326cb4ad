"""The schema of a log to which columns are added without rows (LOGS.md#K8)."""

from __future__ import annotations

from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogKind


def with_columns(state: LogState, schema: bytes) -> bytes:
    """The schema of a transactional log, with the columns of `schema` at its end.

    If the log has all these columns, its own bytes are returned.
    """
    # Imported here because most programs add no columns.
    from ledgerlog_spark.arrow.schema_evolution import merge, storable
    from ledgerlog_spark.arrow.spark_types import spark_schema, stored_schema

    head = state.head
    if head.kind is not LogKind.TRANSACTIONAL:
        raise LogKindError(
            f"log {head.name!r} is a leader log, whose columns are fixed: create another log, and "
            "read both logs together",
            log=head.name,
        )
    current, given = state.schema, spark_schema(schema)
    if current is None:
        return stored_schema(storable(given))
    before = spark_schema(current)
    merged = merge(before, given, log=head.name, add_columns=True)
    return current if merged == before else stored_schema(merged)
