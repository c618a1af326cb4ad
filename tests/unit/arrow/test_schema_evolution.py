"""How a log's schema grows (ledgerlog_spark.arrow.schema_evolution)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import StructType

from ledgerlog_spark.arrow.schema_evolution import merge, reject_collations, storable
from ledgerlog_spark.errors import SchemaMismatchError


def type_of(spec: Any) -> Any:
    """A Spark type: a name, {field: spec}, [element spec] or (key spec, value spec)."""
    if isinstance(spec, dict):
        fields = [
            {"name": name.rstrip("!"), "type": type_of(inner), "nullable": not name.endswith("!"),
             "metadata": {"comment": name}}
            for name, inner in spec.items()
        ]  # fmt: skip
        return {"type": "struct", "fields": fields}
    if isinstance(spec, list):
        return {"type": "array", "elementType": type_of(spec[0]), "containsNull": False}
    if isinstance(spec, tuple):
        key, value = map(type_of, spec)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": False}
    return spec


def json_of(spec: Any) -> str:
    return json.dumps(type_of(spec))


def merged(old: Any, new: Any, *, add_columns: bool = True) -> str:
    text = merge(storable(json_of(old)), json_of(new), log="flights", add_columns=add_columns)
    return StructType.fromJson(json.loads(text)).simpleString()


def test_a_new_log_stores_nulls_everywhere() -> None:
    text = storable(json_of({"a!": "long", "b!": {"c!": ["integer"]}}))
    schema = StructType.fromJson(json.loads(text))
    assert schema["a"].nullable
    assert schema["a"].metadata == {"comment": "a!"}
    assert schema["b"].dataType["c"].metadata == {"comment": "c!"}
    assert schema["b"].dataType["c"].dataType.containsNull


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": "long"}, {"a": "long"}, "struct<a:bigint>"),
        ({"a": "long", "b": "integer"}, {"b": "integer"}, "struct<a:bigint,b:int>"),
        ({"a": "long"}, {"b": "integer", "a": "long"}, "struct<a:bigint,b:int>"),
        ({"a": "long"}, {"a": "integer"}, "struct<a:bigint>"),
        ({"a": "double"}, {"a": "float"}, "struct<a:double>"),
        ({"a": "double"}, {"a": "integer"}, "struct<a:double>"),
        ({"a": "decimal(12,2)"}, {"a": "decimal(10,1)"}, "struct<a:decimal(12,2)>"),
        ({"a": "string"}, {"a": "varchar(4)"}, "struct<a:string>"),
        ({"a": "integer"}, {"a": "void"}, "struct<a:int>"),
        ({"s": {"a": "integer"}}, {"s": {"b": "integer"}}, "struct<s:struct<a:int,b:int>>"),
        ({"l": [{"a": "integer"}]}, {"l": [{"a": "integer", "b": "string"}]},
         "struct<l:array<struct<a:int,b:string>>>"),
        ({"m": ("string", "long")}, {"m": ("string", "integer")}, "struct<m:map<string,bigint>>"),
        ({"Carrier": "string"}, {"carrier": "string"}, "struct<Carrier:string>"),
        ({"s": {"A": "long"}}, {"S": {"a": "integer", "b": "integer"}},
         "struct<s:struct<A:bigint,b:int>>"),
    ],
)  # fmt: skip
def test_schemas_grow_by_adding_only(old: Any, new: Any, expected: str) -> None:
    assert merged(old, new) == expected


def test_rows_of_the_same_schema_leave_the_text_of_the_schema_alone() -> None:
    old = storable(json_of({"a": "long", "b": ["integer"]}))
    new = json_of({"a!": "long", "b": ["integer"]})
    assert merge(old, new, log="flights", add_columns=False) == old


def test_a_new_column_without_merge_schema_is_an_error_that_names_the_option() -> None:
    with pytest.raises(SchemaMismatchError, match=r"no column 'c'.*\"mergeSchema\""):
        merged({"a": "long", "b": "integer"}, {"a": "long", "c": "integer"}, add_columns=False)


def test_a_new_field_of_a_struct_without_merge_schema_is_named_by_its_path() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'s\.b'"):
        merged({"s": {"a": "byte"}}, {"s": {"a": "byte", "b": "byte"}}, add_columns=False)


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [
        ({"a": "integer"}, {"a": "long"}, "a"),
        ({"a": "long"}, {"a": "double"}, "a"),
        ({"a": "double"}, {"a": "long"}, "a"),
        ({"a": "string"}, {"a": "integer"}, "a"),
        ({"a": "decimal(10,2)"}, {"a": "decimal(10,3)"}, "a"),
        ({"a": "decimal(10,2)"}, {"a": "decimal(11,2)"}, "a"),
        ({"a": "decimal(10,4)"}, {"a": "decimal(10,2)"}, "a"),
        ({"a": "double"}, {"a": "decimal(5,2)"}, "a"),
        ({"a": "float"}, {"a": "short"}, "a"),
        ({"a": ["integer"]}, {"a": "integer"}, "a"),
        ({"a": ["integer"]}, {"a": ["string"]}, "a.element"),
        ({"a": "timestamp"}, {"a": "timestamp_ntz"}, "a"),
    ],
)
def test_a_column_whose_values_would_change_is_an_error(old: Any, new: Any, column: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        merged(old, new)
    assert (caught.value.column, caught.value.log) == (column, "flights")
    assert caught.value.expected
    assert caught.value.got


@pytest.mark.parametrize(
    ("doubles", "named"),
    [
        ({"a": "integer", "A": "integer"}, "A"),
        ({"s": {"a": "integer", "A": "integer"}}, "s.A"),
        ({"l": [{"a": "integer", "A": "integer"}]}, "l.element.A"),
        ({"m": ("string", {"a": "integer", "A": "integer"})}, "m.value.A"),
    ],
)
def test_two_columns_that_spark_cannot_tell_apart_are_refused(doubles: Any, named: str) -> None:
    with pytest.raises(SchemaMismatchError, match="Rename one") as caught:
        storable(json_of(doubles))
    assert caught.value.column == named


def test_known_columns_keep_their_metadata_and_new_ones_bring_theirs() -> None:
    old = storable(json_of({"a": "long"}))
    new = json.loads(json_of({"A": "long", "b": "string"}))
    new["fields"][1]["metadata"] = {"__COLLATIONS": {"b": "spark.UTF8_LCASE"}}
    fields = json.loads(merge(old, json.dumps(new), log="flights", add_columns=True))["fields"]
    assert [field["metadata"] for field in fields] == [
        {"comment": "a"},
        {"__COLLATIONS": {"b": "spark.UTF8_LCASE"}},
    ]


def test_metadata_of_one_query_is_not_stored() -> None:
    rows = json.loads(json_of({"a": {"b": "long"}}))
    for field in (rows["fields"][0], rows["fields"][0]["type"]["fields"][0]):
        field["metadata"] = {
            "ledgerlog.options": "{}", "spark.watermarkDelayMs": 5, "__metadata_col": True, "x": [1]
        }  # fmt: skip
    (field,) = json.loads(storable(json.dumps(rows)))["fields"]
    assert (field["metadata"], field["type"]["fields"][0]["metadata"]) == ({"x": [1]}, {"x": [1]})


def collated(places: dict[str, str], data_type: Any = "string") -> str:
    metadata = {"__COLLATIONS": places} if places else {}
    field = {"name": "c", "type": type_of(data_type), "nullable": True, "metadata": metadata}
    return json.dumps({"type": "struct", "fields": [field]})


def test_logs_whose_strings_are_compared_otherwise_are_not_read_together() -> None:
    lower, plain = collated({"c": "spark.UTF8_LCASE"}), collated({})
    reject_collations(lower, lower, log="b")
    for one, other in ((lower, plain), (plain, lower)):
        with pytest.raises(SchemaMismatchError, match="UTF8_LCASE") as caught:
            reject_collations(one, other, log="b")
        assert (caught.value.column, caught.value.log) == ("c", "b")
    nested = [
        collated({"c.element": name}, ["string"]) for name in ("spark.UTF8_LCASE", "icu.UNICODE")
    ]
    with pytest.raises(SchemaMismatchError, match=r"of collation UNICODE.*of collation UTF8_LCASE"):
        reject_collations(nested[1], nested[0], log="b")


def array_of(inner: Any) -> Any:
    return {"type": "array", "elementType": inner, "containsNull": True}


def map_of(key: Any, value: Any) -> Any:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("wrapped", "column"),
    [
        (lambda inner: inner, "s.c"),
        (array_of, "s.element.c"),
        (lambda inner: map_of(inner, "long"), "s.key.c"),
        (lambda inner: map_of("long", inner), "s.value.c"),
    ],
)
def test_so_are_logs_whose_strings_are_compared_otherwise_deep_within(
    wrapped: Any, column: str
) -> None:
    def schema(places: dict[str, str], name: str) -> str:
        inner = json.loads(collated(places))
        field = {"name": name, "type": wrapped(inner), "nullable": True, "metadata": {}}
        return json.dumps({"type": "struct", "fields": [field]})

    lower, plain = schema({"c": "spark.UTF8_LCASE"}, "s"), schema({}, "S")
    reject_collations(lower, schema({"c": "spark.UTF8_LCASE"}, "S"), log="b")
    for one, other in ((lower, plain), (plain, lower)):
        with pytest.raises(SchemaMismatchError, match="UTF8_LCASE") as caught:
            reject_collations(one, other, log="b")
        assert caught.value.column == column


def test_rows_without_columns_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="at least one column"):
        storable('{"type":"struct","fields":[]}')
