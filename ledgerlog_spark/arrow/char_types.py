"""Converts columns of the types `char(n)` and `varchar(n)` to the form in which a log stores them.

A log stores such a column as Spark does: as a string, with the whole type in the metadata of the
column, such as `array<varchar(4)>` (LOGS.md#G13). So rows with plain strings also fit the schema.
"""

from __future__ import annotations

import re
from typing import Any

from ledgerlog_spark.errors import SchemaMismatchError

TYPE_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's key in the metadata of a column. Its value is the column's type, if the type contains a
`char` or a `varchar`."""

TEXT_TYPE = re.compile(r"(char|varchar)\((\d+)\)")
_NAME = re.compile(r"\w+")
_SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def with_strings(struct: dict[str, Any]) -> dict[str, Any]:
    """Return the struct of a Spark schema with the type string instead of `char` and `varchar`.

    The whole type of such a column moves to its metadata, as in a table of Spark. Raises
    SchemaMismatchError if a field of a struct has a name that Spark cannot read in a type.
    """
    return {**struct, "fields": [_with_strings(field) for field in struct["fields"]]}


def _with_strings(field: dict[str, Any]) -> dict[str, Any]:
    plain = _without_lengths(field["type"])
    if plain == field["type"]:
        return field
    metadata = {TYPE_KEY: _type_text(field["type"], field["name"]), **field.get("metadata", {})}
    return {**field, "type": plain, "metadata": metadata}


def _without_lengths(data_type: Any) -> Any:
    if isinstance(data_type, str):
        return "string" if TEXT_TYPE.fullmatch(data_type) else data_type
    changed = dict(data_type)
    for part in ("elementType", "keyType", "valueType"):
        if part in changed:
            changed[part] = _without_lengths(changed[part])
    if "fields" in changed:
        changed["fields"] = [
            {**field, "type": _without_lengths(field["type"])} for field in changed["fields"]
        ]
    return changed


def _type_text(data_type: Any, column: str) -> str:
    """Return the text of a type, as Spark writes it into metadata."""
    if isinstance(data_type, str):
        return _SQL_NAMES.get(data_type, data_type)
    if data_type["type"] == "array":
        return f"array<{_type_text(data_type['elementType'], f'{column}.element')}>"
    if data_type["type"] == "map":
        key = _type_text(data_type["keyType"], f"{column}.key")
        return f"map<{key},{_type_text(data_type['valueType'], f'{column}.value')}>"
    parts = []
    for field in data_type.get("fields", []):
        path = f"{column}.{field['name']}"
        if not _NAME.fullmatch(field["name"]):
            raise SchemaMismatchError(
                f"column {path!r} is in a struct with a char or a varchar, and Spark cannot read "
                "this name in such a type: rename it, with letters, digits and underscores only",
                column=path,
                expected="letters, digits and underscores",
                got=field["name"],
            )
        parts.append(f"{field['name']}:{_type_text(field['type'], path)}")
    return f"struct<{','.join(parts)}>"
