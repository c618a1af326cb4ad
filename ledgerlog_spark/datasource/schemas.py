"""The schema that a scan shows: all or some columns of the logs, and metadata columns.

Spark passes its setting `spark.sql.caseSensitive` to tasks but not to the planner. So the planner
accepts a name in any case. But if the query is case-sensitive and the name in the log has another
case, a task fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import types

from ledgerlog_spark.arrow.leader_batches import RECORDS_SCHEMA
from ledgerlog_spark.arrow.schema_evolution import merge, reject_collations
from ledgerlog_spark.arrow.spark_types import place_of, spark_schema, struct_of, type_text
from ledgerlog_spark.arrow.stream_codec import decode_schema, encode_schema
from ledgerlog_spark.errors import ConfigurationError, SchemaMismatchError
from ledgerlog_spark.protocol.log.state.records import LogContent, LogSnapshot

METADATA_COLUMNS = {
    "_log": "string",
    "_ledger": "long",
    "_entry": "long",
    "_offset": "long",
    "_append_time": "timestamp",
}
RAW_COLUMNS = {"ledger_id": "long", "entry_id": "long", "payload": "binary"}


def records_schema() -> bytes:
    """Return the encoded schema of a log of records: one column of bytes."""
    return encode_schema(RECORDS_SCHEMA)


def with_records_schema(snapshot: LogSnapshot) -> LogSnapshot:
    """Return the snapshot with the schema of its rows.

    A log of records stores no schema, so this function adds the schema of records.
    """
    if snapshot.content is not LogContent.RECORDS:
        return snapshot
    ids = {item.schema_id for item in snapshot.items} | {snapshot.interval.schema_id}
    return replace(snapshot, schemas=dict.fromkeys(ids, records_schema()))


def scan_schema(
    logs: Sequence[tuple[str, bytes | None]],
    *,
    columns: Sequence[str] | None,
    include_metadata: bool,
) -> str:
    """Return the schema of a scan, as JSON.

    `logs` contains the name and the encoded schema of each log. For a log without rows, it contains
    None instead of the schema.
    """
    schemas = [(name, spark_schema(stored)) for name, stored in logs if stored is not None]
    if not schemas:
        names = ", ".join(name for name, _ in logs)
        raise SchemaMismatchError(
            f"log {names} has no rows yet, so it has no columns. Write to the log first, or "
            f'set its columns with .schema("...").',
            log=names,
        )
    merged = schemas[0][1]
    for name, schema in schemas[1:]:
        try:
            reject_collations(merged, schema, log=name)
            merged = merge(merged, schema, log=name, add_columns=True)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(
                f"column {error.column!r} is {error.got} in log {name!r}, but {error.expected} in "
                f"the logs read with it: read log {name!r} with a separate query",
                **error.fields,
            ) from error
    fields = _pick(struct_of(merged)["fields"], columns)
    if include_metadata:
        _reject_names(fields)
        fields += [_field(name, kind) for name, kind in METADATA_COLUMNS.items()]
    return type_text({"type": "struct", "fields": fields})


def raw_schema(columns: Sequence[str] | None = None) -> str:
    """Return the schema of a scan of a ledger's entries, as JSON.

    `columns` is the value of the option `columns`.
    """
    fields = _pick([_field(name, kind) for name, kind in RAW_COLUMNS.items()], columns)
    return type_text({"type": "struct", "fields": fields})


def _pick(fields: list[dict[str, Any]], columns: Sequence[str] | None) -> list[dict[str, Any]]:
    if columns is None:
        return list(fields)
    names = [field["name"] for field in fields]
    chosen: dict[int, None] = {}
    for column in columns:
        if (place := place_of(column, names)) is None:
            raise ConfigurationError(
                f'option "columns" names {column!r}, which does not exist; the columns are '
                f"{', '.join(names)}",
                option="columns",
                got=column,
            )
        chosen[place] = None
    return [fields[place] for place in chosen]


def _reject_names(fields: Sequence[dict[str, Any]]) -> None:
    for field in fields:
        if field["name"].lower() in METADATA_COLUMNS:
            raise ConfigurationError(
                f'the log has a column {field["name"]!r}, so "includeMetadata" cannot add one of '
                f'that name. Leave the log\'s column out with the option "columns".',
                option="includeMetadata",
            )


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


CASE_SETTING = "spark.sql.caseSensitive"


def task_ignores_case() -> bool:
    """Whether names that differ only in case are the same name in the query of this task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is None or str(context.getLocalProperty(CASE_SETTING)).lower() != "true"


def reject_unknown_columns(
    schema: pa.Schema, logs: Iterable[LogSnapshot], *, include_metadata: bool
) -> None:
    """Raise an error if a column or field of a scan exists in no log.

    The case of names does not matter. If a log has no columns yet, every name is accepted, because
    this log may get any column.
    """
    known: dict[str, str] = dict.fromkeys(METADATA_COLUMNS, "") if include_metadata else {}
    columns: dict[str, None] = {}
    names = []
    for snapshot in logs:
        names.append(snapshot.name)
        if not snapshot.schemas:
            return
        for stored in snapshot.schemas.values():
            fields = decode_schema(stored)
            columns |= dict.fromkeys(fields.names)
            known |= {path.lower(): path for path in _paths(fields, "")}
    if not names:
        return
    for path in _paths(schema, ""):
        if path.lower() not in known:
            raise SchemaMismatchError(
                f"no log that is read ({', '.join(names)}) has a column {path!r}. Columns are "
                f'{", ".join(columns)}. Leave this column out of .schema("..."), or correct it. To '
                "repair a SQL table with altered columns: CREATE OR REPLACE TABLE t USING ledger "
                "OPTIONS (log 'name').",
                column=path,
                expected="a column of the log",
                got=path,
            )


def reject_unknown_raw_columns(schema: pa.Schema) -> None:
    """Raise an error if a column does not exist in a scan of a ledger's entries."""
    for name in schema.names:
        if name.lower() not in RAW_COLUMNS:
            raise SchemaMismatchError(
                f"entries of a ledger have no column {name!r}. Columns are "
                f'{", ".join(RAW_COLUMNS)}. Leave this column out of .schema("..."), or correct '
                f"its name.",
                column=name,
                expected="a column of an entry",
                got=name,
            )


def _paths(fields: Iterable[pa.Field], prefix: str) -> Iterator[str]:
    """Yield the names of all fields, including nested fields, in the form that errors use."""
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path
        yield from _paths_below(field.type, path)


def _paths_below(data_type: pa.DataType, path: str) -> Iterator[str]:
    if types.is_struct(data_type):
        yield from _paths(data_type, f"{path}.")
    elif types.is_list(data_type) or types.is_large_list(data_type):
        yield from _paths_below(data_type.value_type, f"{path}.element")
    elif types.is_map(data_type):
        yield from _paths_below(data_type.key_type, f"{path}.key")
        yield from _paths_below(data_type.item_type, f"{path}.value")
