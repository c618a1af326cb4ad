"""Checks that logs have the columns of a scan, by Spark's rule `spark.sql.caseSensitive`.

Spark shows its settings to tasks but not to the planner. So planning accepts names in any case,
and a task of a case-sensitive query fails if the log has a name only in another case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyarrow import types

from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS, RAW_COLUMNS
from ledgerlog_spark.errors import SchemaMismatchError
from ledgerlog_spark.protocol.log.state.records import LogSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

CASE_SETTING = "spark.sql.caseSensitive"


def task_ignores_case() -> bool:
    """Whether names that differ only in case are the same name in the query of this task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is None or str(context.getLocalProperty(CASE_SETTING)).lower() != "true"


def reject_unknown_columns(
    schema: pa.Schema, logs: Iterable[LogSnapshot], *, include_metadata: bool
) -> None:
    """Raise an error if a column or field of a scan exists in no log. The case is ignored.

    A log without columns may get any column. So if a log has no columns, every name is accepted.
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
                f'{", ".join(columns)}. Leave it out of .schema("..."), or correct its name. To '
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
                f'{", ".join(RAW_COLUMNS)}. Leave it out of .schema("..."), or correct its name.',
                column=name,
                expected="a column of an entry",
                got=name,
            )


def _paths(fields: Iterable[pa.Field], prefix: str) -> Iterator[str]:
    """Yield the names of all fields, also of nested fields, in the form that errors use."""
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
