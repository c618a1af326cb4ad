"""Which rows a log takes, and how its schema grows: by adding, and in no other way (design 7).

A log's schema is nullable at every level, so that rows written before a column existed read as
nulls. Columns are matched by name, case and all.
"""

from __future__ import annotations

import json
from typing import Any

from ledgerlog_spark.arrow.spark_types import SparkType, arrow_type_of, struct_of
from ledgerlog_spark.errors import SchemaMismatchError

_INTEGERS = ("byte", "short", "integer", "long")
_FRACTIONS = ("float", "double")


def storable(schema_json: str) -> str:
    """The schema of a new log for rows of a Spark schema: nullable everywhere, metadata dropped.

    Raises:
        SchemaMismatchError: It has no columns, two of one name, or a type that cannot be stored.
    """
    struct = struct_of(schema_json)
    if not struct["fields"]:
        raise SchemaMismatchError("a log needs at least one column, and the rows have none.")
    _reject_doubles(struct)
    for field in struct["fields"]:
        arrow_type_of(field["type"], field["name"])
    return _dump(_nullable(struct))


def merge(log_schema: str, rows_schema: str, *, log: str, add_columns: bool) -> str:
    """The log's schema after rows of `rows_schema` were written; the same text when unchanged.

    Columns that the rows lack are stored as nulls. New columns, and new fields of structs, go to
    the end, if `add_columns`.

    Raises:
        SchemaMismatchError: A column's type cannot become the log's, or a column is new and
            `add_columns` is false; names column, expected and got.
    """
    old = struct_of(log_schema)
    new = struct_of(storable(rows_schema))
    merged = _merge_struct(old, new, "", log=log, add_columns=add_columns)
    return log_schema if merged == old else _dump(merged)


def _reject_doubles(struct: dict[str, Any]) -> None:
    seen: dict[str, str] = {}
    for field in struct["fields"]:
        name = field["name"]
        if (other := seen.setdefault(name.lower(), name)) is not name:
            raise SchemaMismatchError(
                f"the columns {other!r} and {name!r} have the same name to Spark. Rename one.",
                column=name,
                expected="names that differ in more than case",
                got=name,
            )


def _merge_struct(
    old: dict[str, Any], new: dict[str, Any], path: str, *, log: str, add_columns: bool
) -> dict[str, Any]:
    fields = [dict(field) for field in old["fields"]]
    place = {field["name"]: at for at, field in enumerate(fields)}
    by_lower = {field["name"].lower(): field["name"] for field in fields}
    for field in new["fields"]:
        name = field["name"]
        column = f"{path}{name}"
        if name in place:
            known = fields[place[name]]
            known["type"] = _merge_type(
                known["type"], field["type"], column, log=log, add_columns=add_columns
            )
        elif (near := by_lower.get(name.lower())) is not None:
            raise _mismatch(log, column, f"a column named {path}{near}", name)
        elif add_columns:
            fields.append(field)
        else:
            raise SchemaMismatchError(
                f"log {log!r} has no column {column!r}. Its columns are {', '.join(place)}. "
                f'Set the option "mergeSchema" to "true" to add it.',
                log=log,
                column=column,
                expected="a column of the log",
                got=_spelled(field["type"]),
            )
    return {"type": "struct", "fields": fields}


def _merge_type(
    old: SparkType, new: SparkType, column: str, *, log: str, add_columns: bool
) -> SparkType:
    if new in (old, "void"):
        return old
    if isinstance(old, dict) and isinstance(new, dict) and old["type"] == new["type"]:
        if old["type"] == "struct":
            return _merge_struct(old, new, f"{column}.", log=log, add_columns=add_columns)
        parts = ("elementType",) if old["type"] == "array" else ("keyType", "valueType")
        merged = dict(old)
        for part in parts:
            merged[part] = _merge_type(
                old[part],
                new[part],
                f"{column}.{part.removesuffix('Type')}",
                log=log,
                add_columns=add_columns,
            )
        return merged
    if isinstance(old, str) and isinstance(new, str) and _widens(new, old):
        return old
    raise _mismatch(log, column, _spelled(old), _spelled(new))


def _widens(narrow: str, wide: str) -> bool:
    """Whether every value of `narrow` is a value of `wide`, the column's type."""
    for ladder in (_INTEGERS, _FRACTIONS):
        if narrow in ladder and wide in ladder:
            return ladder.index(narrow) <= ladder.index(wide)
    if narrow in _INTEGERS[:3] and wide == "double":
        return True
    small, large = _decimal(narrow), _decimal(wide)
    if small is not None and large is not None:
        return large[1] >= small[1] and large[0] - large[1] >= small[0] - small[1]
    texts = ("char(", "varchar(", "string")
    return narrow.startswith(texts) and wide == "string"


def _decimal(name: str) -> tuple[int, int] | None:
    if not name.startswith("decimal("):
        return None
    precision, scale = name[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def _nullable(data_type: Any) -> Any:
    """The same type with nulls allowed at every level, and without metadata."""
    if not isinstance(data_type, dict):
        return data_type
    if data_type["type"] == "struct":
        fields = [
            {"name": f["name"], "type": _nullable(f["type"]), "nullable": True, "metadata": {}}
            for f in data_type["fields"]
        ]
        return {"type": "struct", "fields": fields}
    if data_type["type"] == "array":
        element = _nullable(data_type["elementType"])
        return {"type": "array", "elementType": element, "containsNull": True}
    return {
        "type": "map",
        "keyType": _nullable(data_type["keyType"]),
        "valueType": _nullable(data_type["valueType"]),
        "valueContainsNull": True,
    }


def _mismatch(log: str, column: str, expected: str, got: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {column!r} of log {log!r} is {expected}, and the rows have {got}. "
        f"Cast or rename it before writing.",
        log=log,
        column=column,
        expected=expected,
        got=got,
    )


def _spelled(data_type: SparkType) -> str:
    return data_type if isinstance(data_type, str) else _dump(data_type)


def _dump(struct: Any) -> str:
    return json.dumps(struct, separators=(",", ":"))
