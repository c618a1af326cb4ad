"""Checks the lengths of `char(n)` and `varchar(n)` in the rows of a write.

Spark checks these lengths only in writes to a table of a catalog, but not in `save` and `start`. So
the tasks of a write check the lengths, by Spark's rules. If a text has more than n characters,
spaces at its end are removed; if the text is still too long, the write fails. Texts of a `char(n)`
are padded with spaces to n characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledgerlog_spark.arrow.char_types import TEXT_TYPE, TYPE_KEY
from ledgerlog_spark.arrow.conform import list_array, map_array, struct_array
from ledgerlog_spark.arrow.spark_types import place_of, struct_of
from ledgerlog_spark.errors import SchemaMismatchError

Check = Callable[[pa.Array], pa.Array]


def checked_types(struct: dict[str, Any]) -> None:
    """Raise SchemaMismatchError if the type in the metadata of a column does not fit the column."""
    for field in struct["fields"]:
        text = field.get("metadata", {}).get(TYPE_KEY)
        try:
            _check_of(text, field["type"], field["name"])
        except ValueError:
            raise SchemaMismatchError(
                f"column {field['name']!r} has the type {text!r} in its metadata {TYPE_KEY!r}, "
                "which does not fit the column: leave the metadata out",
                column=field["name"],
                expected="the type of the column",
                got=repr(text),
            ) from None


class LengthCheck:
    """Checks the lengths of texts in batches of one schema."""

    def __init__(self, schema_json: str) -> None:
        """Prepare the checks for all columns of a log.

        `schema_json` is its schema as Spark's JSON.
        """
        self._checks = dict(_checks(struct_of(schema_json)))

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with each text padded or shortened to the form that its column stores.

        Raises:
            SchemaMismatchError: A text is too long. The message names the column.
        """
        if not self._checks:
            return batch
        columns = list(batch.columns)
        for place, check in self._checks.items():
            columns[place] = check(columns[place])
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _checks(struct: dict[str, Any]) -> Iterator[tuple[int, Check]]:
    for place, field in enumerate(struct["fields"]):
        text = field.get("metadata", {}).get(TYPE_KEY)
        try:
            check = _check_of(text, field["type"], field["name"])
        except ValueError:
            continue  # older releases stored types that do not fit the column
        if check is not None:
            yield place, check


def _check_of(text: Any, data_type: Any, column: str) -> Check | None:
    """Return the function that checks a column, or None if no part of its type has a length.

    Raises ValueError if the type in the metadata does not fit the column.
    `text` is the type in the metadata, and `data_type` the type of the column in Spark's JSON.
    """
    if text is None:
        return None
    if match := TEXT_TYPE.fullmatch(str(text)):
        if data_type not in ("string", text):
            raise ValueError(text)
        check = _checked_char if match[1] == "char" else _checked_varchar
        return partial(check, length=int(match[2]), column=column)
    if isinstance(data_type, dict):
        return _nested_check(str(text), data_type, column)
    if "char(" in str(text) or not isinstance(text, str):
        raise ValueError(text)
    return None


def _nested_check(text: str, data_type: dict[str, Any], column: str) -> Check | None:
    kind = data_type["type"]
    if not (text.startswith(f"{kind}<") and text.endswith(">")):
        raise ValueError(text)
    parts = list(_split(text[len(kind) + 1 : -1]))
    if kind == "struct":
        return _struct_check(parts, data_type["fields"], column)
    names = ("element",) if kind == "array" else ("key", "value")
    checks = [
        _check_of(part, data_type[f"{name}Type"], f"{column}.{name}")
        for part, name in zip(parts, names, strict=True)
    ]
    if not any(checks):
        return None
    checked = _checked_list if kind == "array" else _checked_map
    return partial(checked, *(check or _unchanged for check in checks))


def _struct_check(parts: list[str], fields: list[dict[str, Any]], column: str) -> Check | None:
    """Return the function that checks a struct, or None if no field has a length.

    The type in the metadata does not have the fields that were added to the struct later. These
    fields are not checked.
    """
    checks: dict[int, Check] = {}
    names = [field["name"] for field in fields]
    for part in parts:
        name, is_typed, text = part.partition(":")
        place = place_of(name, names)
        if not is_typed or place is None:
            raise ValueError(part)
        check = _check_of(text, fields[place]["type"], f"{column}.{names[place]}")
        if check is not None:
            checks[place] = check
    return partial(_checked_struct, checks) if checks else None


def _split(text: str) -> Iterator[str]:
    """Split the text of a type at the commas that are not in brackets, and yield the parts."""
    depth = begin = 0
    for place, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _checked_varchar(array: pa.Array, *, length: int, column: str) -> pa.Array:
    longest = pc.max(pc.utf8_length(array)).as_py()
    if longest is None or longest <= length:
        return array
    if pc.any(pc.not_equal(_trimmed(pc.utf8_slice_codeunits(array, length)), "")).as_py():
        raise SchemaMismatchError(
            f"column {column!r} has at most {length} characters, but a row has a text of "
            f"{longest} characters. Shorten the text before writing.",
            column=column,
            expected=f"at most {length} characters",
            got=f"{longest} characters",
        )
    return pc.utf8_slice_codeunits(array, 0, length)


def _trimmed(array: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(array, characters=" ")


def _checked_char(array: pa.Array, *, length: int, column: str) -> pa.Array:
    return pc.utf8_rpad(_checked_varchar(array, length=length, column=column), length, " ")


def _checked_list(check: Check, array: pa.Array) -> pa.Array:
    return list_array(array, wanted=array.type, convert=check)


def _checked_map(key: Check, value: Check, array: pa.Array) -> pa.Array:
    return map_array(array, wanted=array.type, key=key, value=value)


def _checked_struct(checks: dict[int, Check], array: pa.Array) -> pa.Array:
    children = [(place, checks.get(place, _unchanged)) for place in range(array.type.num_fields)]
    return struct_array(array, wanted=array.type, children=children)
