"""Converts Spark's schema JSON to Arrow schemas and to stored schemas, and back, without pyspark.

Spark 4.3 accepts only the Arrow types in this module from a Python source. A test compares the
whole table of types with `pyspark.sql.pandas.types.to_arrow_schema`. By default, Spark does not
distinguish upper and lower case in names. Two columns of a log, or two fields of a struct, never
have names that differ only in upper and lower case. So a name identifies at most one column or
field, even if the case of its letters differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from ledgerlog_spark.arrow.char_types import with_strings
from ledgerlog_spark.arrow.stream_codec import decode_schema, encode_schema
from ledgerlog_spark.errors import SchemaMismatchError

SparkType = str | dict[str, Any]
"""A data type in Spark's JSON: a name, or an object whose `type` is array, map, struct or udt."""

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    ),
}
_NAMES = {arrow: name for name, arrow in _SIMPLE.items() if name != "variant"}
_KINDS = (
    (types.is_large_string, "string"),
    (types.is_string_view, "string"),
    (types.is_large_binary, "binary"),
    (types.is_fixed_size_binary, "binary"),
    (types.is_duration, "interval day to second"),
    (types.is_time64, "time(6)"),
)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_STRING_LIKE = re.compile(r"(?:char|varchar)\(\d+\)|string collate \w+")
_DAY_TIME = re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?")
_TIME = re.compile(r"time\(\d\)")
_SPARK_SCHEMA = b"ledgerlog.spark_schema"
_COMMENT = b"ledgerlog.comment"
_FIELD_METADATA = b"SPARK::metadata::json"
"""Key in the metadata of an Arrow field. Its value is the metadata of Spark's field, as JSON."""


def struct_of(schema_json: str) -> dict[str, Any]:
    """Parse a Spark schema's JSON to its struct."""
    try:
        parsed = json.loads(schema_json)
    except ValueError as error:
        raise SchemaMismatchError(f"the schema is not JSON: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "struct":
        raise SchemaMismatchError("the schema is not the JSON of a Spark struct")
    return parsed


def type_text(data_type: SparkType) -> str:
    """Return the JSON text of a data type, in the form that Spark writes."""
    return json.dumps(data_type, separators=(",", ":"))


def arrow_schema_of(schema_json: str) -> pa.Schema:
    """Return the Arrow schema that Spark uses for a Spark schema in JSON."""
    fields = struct_of(schema_json)["fields"]
    return pa.schema([_field_of(field, field["name"]) for field in fields])


def stored_schema(schema_json: str, *, comment: str = "") -> bytes:
    """Encode a Spark schema as the Arrow schema message that a log stores (LOGS.md#G6).

    Arrow can express neither the metadata of fields (collations, comments) nor the units of an
    interval, such as day to second. A schema with these parts is also stored as Spark's JSON, in
    the schema's metadata. The comment of the log is also in this metadata.
    """
    schema = arrow_schema_of(schema_json)
    metadata = {}
    if json.loads(schema_json_of(schema)) != json.loads(schema_json):
        metadata[_SPARK_SCHEMA] = schema_json.encode()
    if comment:
        metadata[_COMMENT] = comment.encode()
    return encode_schema(schema.with_metadata(metadata) if metadata else schema)


def spark_schema(stored: bytes) -> str:
    """Return the Spark schema of a stored schema, as JSON."""
    schema = decode_schema(stored)
    stored_json = (schema.metadata or {}).get(_SPARK_SCHEMA)
    if stored_json is None:
        return schema_json_of(schema)
    text = str(stored_json.decode())
    # Logs of older releases may have columns of type char and varchar.
    return type_text(with_strings(struct_of(text))) if "char(" in text else text


def comment_of(stored: bytes) -> str:
    """Return the comment of a log, which its stored schema contains.

    The result is an empty text if the log has no comment.
    """
    return bytes((decode_schema(stored).metadata or {}).get(_COMMENT, b"")).decode()


def arrow_type_of(data_type: SparkType, column: str) -> pa.DataType:
    """Return the Arrow type of a Spark type. Errors name the path `column`."""
    if isinstance(data_type, dict):
        return _nested_type_of(data_type, column)
    if (simple := _SIMPLE.get(data_type)) is not None:
        return simple
    if match := _DECIMAL.fullmatch(data_type):
        return pa.decimal128(int(match[1]), int(match[2]))
    if _STRING_LIKE.fullmatch(data_type):
        return pa.string()
    if _DAY_TIME.fullmatch(data_type):
        return pa.duration("us")
    if _TIME.fullmatch(data_type):
        return pa.time64("ns")
    raise _unsupported(column, data_type)


def _nested_type_of(data_type: dict[str, Any], column: str) -> pa.DataType:
    kind = data_type.get("type")
    if kind == "array":
        element = arrow_type_of(data_type["elementType"], f"{column}.element")
        return pa.list_(_field("element", element, nullable=data_type["containsNull"]))
    if kind == "map":
        key = arrow_type_of(data_type["keyType"], f"{column}.key")
        # Spark's empty `map()` has keys of type void, and Arrow does not allow null keys.
        if pa.types.is_null(key):
            raise _unsupported(f"{column}.key", "void")
        value = arrow_type_of(data_type["valueType"], f"{column}.value")
        return pa.map_(
            pa.field("key", key, nullable=False),
            _field("value", value, nullable=data_type["valueContainsNull"]),
        )
    if kind == "struct":
        return pa.struct([_field_of(f, f"{column}.{f['name']}") for f in data_type["fields"]])
    raise _unsupported(column, str(kind))


def _field_of(field: dict[str, Any], column: str) -> pa.Field:
    return _field(field["name"], arrow_type_of(field["type"], column), nullable=field["nullable"])


def _field(name: str, arrow_type: pa.DataType, *, nullable: bool) -> pa.Field:
    # The elements of Spark's `array()` have the type void and are not nullable. Arrow requires that
    # void is nullable.
    return pa.field(name, arrow_type, nullable or pa.types.is_null(arrow_type))


def _unsupported(column: str, got: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {column!r} has the type {got}, which has no Arrow form that Spark can read back. "
        f"Cast the column before writing, for example to string or long.",
        column=column,
        expected="a type that can be stored",
        got=got,
    )


def schema_json_of(schema: pa.Schema) -> str:
    """Convert an Arrow schema to a Spark schema, as JSON."""
    fields = [_spark_field_of(field, field.name) for field in schema]
    return type_text({"type": "struct", "fields": fields})


def spark_type_of(arrow_type: pa.DataType, column: str) -> SparkType:
    """Convert an Arrow type to a Spark type, in its JSON form."""
    if (name := _NAMES.get(arrow_type)) is not None:
        return name
    if types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_timestamp(arrow_type):
        return "timestamp_ntz" if arrow_type.tz is None else "timestamp"
    if types.is_dictionary(arrow_type):
        return spark_type_of(arrow_type.value_type, column)
    for is_kind, name in _KINDS:
        if is_kind(arrow_type):
            return name
    return _nested_spark_type_of(arrow_type, column)


def _nested_spark_type_of(arrow_type: pa.DataType, column: str) -> SparkType:
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        return {
            "type": "array",
            "elementType": spark_type_of(arrow_type.value_type, f"{column}.element"),
            "containsNull": arrow_type.value_field.nullable,
        }
    if types.is_map(arrow_type):
        return {
            "type": "map",
            "keyType": spark_type_of(arrow_type.key_type, f"{column}.key"),
            "valueType": spark_type_of(arrow_type.item_type, f"{column}.value"),
            "valueContainsNull": arrow_type.item_field.nullable,
        }
    if types.is_struct(arrow_type):
        fields = [arrow_type.field(place) for place in range(arrow_type.num_fields)]
        metadata = [(field.metadata or {}).items() for field in fields]
        tags = {key for items in metadata for key, value in items if value == b"true"}
        if b"variant" in tags:
            return "variant"
        for shape in (b"geometry", b"geography"):
            if shape in tags:
                raise _unsupported(column, shape.decode())
        nested = [_spark_field_of(field, f"{column}.{field.name}") for field in fields]
        return {"type": "struct", "fields": nested}
    raise _unsupported(column, str(arrow_type))


def _spark_field_of(field: pa.Field, column: str) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": spark_type_of(field.type, column),
        "nullable": field.nullable,
        "metadata": _metadata_of(field, column),
    }


def _metadata_of(field: pa.Field, column: str) -> Any:
    """Return the metadata of Spark's field, such as a comment.

    An Arrow field has this metadata if `toArrow` made the schema. `toArrow` does not store
    collations.
    """
    stored_json = (field.metadata or {}).get(_FIELD_METADATA)
    try:
        metadata = {} if stored_json is None else json.loads(stored_json)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        raise SchemaMismatchError(
            f"column {column!r} has metadata under {_FIELD_METADATA.decode()!r} that is not a JSON "
            "object: leave this metadata out of the schema",
            column=column,
            expected="a JSON object",
            got=repr(stored_json),
        )
    return metadata


def place_of(name: str, names: Sequence[str]) -> int | None:
    """Return the index of `name`, or of the first name that differs only in case.

    The result is None if no name matches.
    """
    if name in names:
        return names.index(name)
    lower = name.lower()
    return next((place for place, other in enumerate(names) if other.lower() == lower), None)


def first_double(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two names that Spark treats as equal, or None if all names differ."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            return seen[name.lower()], name
        seen[name.lower()] = name
    return None
