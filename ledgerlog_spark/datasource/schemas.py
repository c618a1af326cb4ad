"""The schema that a scan shows: all or some columns of the log, and metadata columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledgerlog_spark.arrow.leader_batches import RECORDS_SCHEMA
from ledgerlog_spark.arrow.schema_evolution import merge, reject_collations
from ledgerlog_spark.arrow.spark_types import place_of, spark_schema, struct_of, type_text
from ledgerlog_spark.arrow.stream_codec import encode_schema
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
    """The encoded schema of a log of records: one column of bytes."""
    return encode_schema(RECORDS_SCHEMA)


def with_records_schema(snapshot: LogSnapshot) -> LogSnapshot:
    """The snapshot. A snapshot of a log of records gets the schema of scans."""
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
    """The schema of a scan, as JSON.

    `logs` has the name and the encoded schema of each log. A log without rows has None instead.
    """
    schemas = [(name, spark_schema(stored)) for name, stored in logs if stored is not None]
    if not schemas:
        names = ", ".join(name for name, _ in logs)
        raise SchemaMismatchError(
            f"log {names} has no rows yet, so it has no columns to show. Write to it first, or "
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
                f"column {error.column!r} is {error.got} in log {name!r}, and {error.expected} in "
                "the logs read with it: read it by a separate query",
                **error.fields,
            ) from error
    fields = _pick(struct_of(merged)["fields"], columns)
    if include_metadata:
        _reject_names(fields)
        fields += [_field(name, kind) for name, kind in METADATA_COLUMNS.items()]
    return type_text({"type": "struct", "fields": fields})


def raw_schema(columns: Sequence[str] | None = None) -> str:
    """The schema of a scan of a ledger's entries, as JSON. `columns` is the value of the option."""
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
                f'option "columns" names {column!r}, which does not exist; columns are '
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
                f'that name. Leave that column out by "columns".',
                option="includeMetadata",
            )


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
