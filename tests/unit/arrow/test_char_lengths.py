"""Columns of char and varchar: how a log stores them, and the check of their lengths."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.char_lengths import LengthCheck
from ledgerlog_spark.arrow.char_types import TYPE_KEY
from ledgerlog_spark.arrow.schema_evolution import merge, storable
from ledgerlog_spark.arrow.spark_types import arrow_schema_of, spark_schema, stored_schema
from ledgerlog_spark.errors import SchemaMismatchError


def schema(kind: Any, text: str | None = None) -> str:
    metadata = {} if text is None else {TYPE_KEY: text}
    field = {"name": "c", "type": kind, "nullable": True, "metadata": metadata}
    return json.dumps({"type": "struct", "fields": [field]})


def struct(**types: Any) -> dict[str, Any]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    return {"type": "struct", "fields": fields}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


TYPES = [
    ("varchar(5)", "string", "varchar(5)"),
    ("char(3)", "string", "char(3)"),
    (array("varchar(4)"), array("string"), "array<varchar(4)>"),
    (mapped("char(2)", "long"), mapped("string", "long"), "map<char(2),bigint>"),
    (
        struct(x="char(2)", y=array(struct(z="varchar(1)", d="decimal(9,2)"))),
        struct(x="string", y=array(struct(z="string", d="decimal(9,2)"))),
        "struct<x:char(2),y:array<struct<z:varchar(1),d:decimal(9,2)>>>",
    ),
    (
        struct(b="byte", s="short", i="integer", t="timestamp_ntz", c="char(1)"),
        struct(b="byte", s="short", i="integer", t="timestamp_ntz", c="string"),
        "struct<b:tinyint,s:smallint,i:int,t:timestamp_ntz,c:char(1)>",
    ),
]
"""A type, the stored type of a log, and its text in the form of Spark 4.3."""


@pytest.mark.parametrize(("kind", "stored", "text"), TYPES)
def test_a_column_is_stored_as_strings_and_its_type_in_its_metadata(
    kind: Any, stored: Any, text: str
) -> None:
    (field,) = json.loads(storable(schema(kind)))["fields"]
    assert (field["type"], field["metadata"]) == (stored, {TYPE_KEY: text})
    assert storable(schema(stored, text)) == storable(schema(kind)), "as Spark's own tables have it"
    assert spark_schema(stored_schema(storable(schema(kind)))) == storable(schema(kind))


def test_columns_of_older_releases_are_read_as_strings() -> None:
    """They stored the type itself, so no row of strings fitted."""
    older = stored_schema(schema("varchar(5)"))
    assert json.loads(spark_schema(older)) == json.loads(schema("string", "varchar(5)"))


def test_rows_of_strings_fit_and_keep_the_length() -> None:
    log = storable(schema("varchar(5)"))
    assert merge(log, schema("string"), log="flights", add_columns=False) == log
    assert merge(log, schema("varchar(9)"), log="flights", add_columns=False) == log
    plain = storable(schema("string"))
    assert merge(plain, schema("varchar(9)"), log="flights", add_columns=False) == plain


def test_a_name_that_spark_cannot_read_in_a_type_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'c\.a b' is in a struct with a char"):
        storable(schema(struct(**{"a b": "char(1)"})))
    storable(schema(struct(**{"a b": "string"})))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("long", "varchar(5)"),
        (array("string"), "array<varchar(4)"),
        (array("string"), "map<varchar(4),int>"),
        (mapped("string", "long"), "map<char(2)>"),
        (struct(x="string"), "struct<y:char(2)>"),
        (struct(x="string"), "struct<x>"),
        ("string", 5),
    ],
)
def test_a_type_that_does_not_fit_its_column_is_refused(kind: Any, text: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="does not fit the column"):
        storable(schema(kind, text))
    assert checked(schema(kind, text), [None]) == [None], "as an older release may have stored it"


@pytest.mark.parametrize("text", ["string", "int", "string collate UTF8_LCASE"])
def test_a_type_without_a_length_is_no_limit(text: str) -> None:
    assert checked(schema("string", text), ["any length"]) == ["any length"]


def checked(of: str, values: list[Any]) -> list[Any]:
    target = arrow_schema_of(of)
    batch = pa.RecordBatch.from_arrays([pa.array(values, target.field(0).type)], schema=target)
    # A slice has its own offsets.
    padded = pa.concat_arrays([batch.column(0), batch.column(0)]).slice(len(values))
    sliced = pa.RecordBatch.from_arrays([padded], schema=target)
    found = LengthCheck(of).checked(sliced)
    assert found.schema == target
    found.validate(full=True)
    values_found: list[Any] = found.column(0).to_pylist()
    return values_found


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        ("varchar(3)", ["", "abc", None, "äöü", "😀😀😀"], ["", "abc", None, "äöü", "😀😀😀"]),
        ("varchar(3)", ["abc  ", "ab   ", "   "], ["abc", "ab ", "   "]),
        (
            "char(3)",
            ["", "ab", None, "abc", "abc  ", "ä"],
            ["   ", "ab ", None, "abc", "abc", "ä  "],
        ),
        (array("varchar(2)"), [["ab", None], None, ["ab "]], [["ab", None], None, ["ab"]]),
        (
            mapped("char(2)", "varchar(1)"),
            [[("a", "b ")], None, []],
            [[("a ", "b")], None, []],
        ),
        (mapped("long", "char(2)"), [[(1, "b")]], [[(1, "b ")]]),
        (
            struct(x="char(2)", n="long", y=array("varchar(1)")),
            [{"x": "a", "n": 1, "y": ["b  "]}, None, {"x": None, "n": 2, "y": None}],
            [{"x": "a ", "n": 1, "y": ["b"]}, None, {"x": None, "n": 2, "y": None}],
        ),
    ],
)
def test_texts_are_stored_as_spark_stores_them(
    kind: Any, given: list[Any], stored: list[Any]
) -> None:
    assert checked(storable(schema(kind)), given) == stored


@pytest.mark.parametrize(
    ("kind", "given", "column"),
    [
        ("varchar(3)", ["abcd"], "c"),
        ("char(3)", ["ab", "abc  d"], "c"),
        ("varchar(3)", ["abc\t"], "c"),
        (array("varchar(2)"), [["ab", "abc"]], "c.element"),
        (mapped("char(1)", "long"), [[("ab", 1)]], "c.key"),
        (mapped("long", "char(1)"), [[(1, "ab")]], "c.value"),
        (struct(x=array("char(1)")), [{"x": ["ab"]}], "c.x.element"),
    ],
)
def test_a_text_that_is_too_long_is_an_error_with_its_column(
    kind: Any, given: list[Any], column: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=r"has at most . characters") as raised:
        checked(storable(schema(kind)), given)
    assert raised.value.fields["column"] == column


def test_a_field_that_was_added_to_a_struct_later_has_no_length() -> None:
    log = storable(schema(struct(x="char(2)")))
    wider = merge(log, schema(struct(x="string", z="string")), log="flights", add_columns=True)
    given = {"x": "a", "z": "any length"}
    assert checked(wider, [given]) == [{"x": "a ", "z": "any length"}]


def test_columns_without_lengths_are_not_copied() -> None:
    target = arrow_schema_of(schema("string"))
    batch = pa.RecordBatch.from_arrays([pa.array(["a"])], schema=target)
    assert LengthCheck(schema("string")).checked(batch) is batch
