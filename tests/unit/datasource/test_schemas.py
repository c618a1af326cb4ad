"""Schemas of scans (ledgerlog_spark.datasource.schemas)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerlog_spark.arrow.spark_types import spark_schema, stored_schema, struct_of
from ledgerlog_spark.datasource.schemas import (
    METADATA_COLUMNS,
    scan_schema,
)
from ledgerlog_spark.errors import ConfigurationError, SchemaMismatchError, WireFormatError


def schema(**columns: Any) -> str:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def names(schema_json: str) -> list[str]:
    return [field["name"] for field in struct_of(schema_json)["fields"]]


def scanned(*schemas: str, columns: Any = None, include_metadata: bool = False) -> str:
    logs = [(f"log{place}", stored_schema(text)) for place, text in enumerate(schemas)]
    return scan_schema(logs, columns=columns, include_metadata=include_metadata)


@pytest.mark.parametrize(
    "kind",
    ["long", "string", "time(6)", "time(3)", "interval hour", "interval day to second",
     "string collate UNICODE_CI", {"type": "array", "elementType": "date", "containsNull": True}],
    ids=str,
)  # fmt: skip
def test_a_stored_schema_keeps_what_arrow_has_no_word_for(kind: Any) -> None:
    text = schema(x=kind)
    assert json.loads(spark_schema(stored_schema(text))) == json.loads(text)


def test_a_schema_record_of_other_bytes_is_a_format_error() -> None:
    with pytest.raises(WireFormatError):
        spark_schema(b"something else")


def test_columns_are_picked_in_the_order_given() -> None:
    text = schema(a="long", b="string", c="date")
    assert names(scanned(text, columns=("c", "a", "c"))) == ["c", "a"]


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="'z', which does not exist; the columns are a, b"):
        scanned(schema(a="long", b="long"), columns=("z",))


def test_metadata_columns_come_last() -> None:
    text = scanned(schema(a="long"), include_metadata=True)
    assert names(text) == ["a", *METADATA_COLUMNS]


def test_a_column_named_like_a_metadata_column_is_refused_or_left_out() -> None:
    text = schema(a="long", _offset="string")
    with pytest.raises(ConfigurationError, match="has a column '_offset'"):
        scanned(text, include_metadata=True)
    assert names(scanned(text, columns=("a",), include_metadata=True)) == ["a", *METADATA_COLUMNS]
    assert names(scanned(text)) == ["a", "_offset"]


def test_several_logs_show_the_columns_of_all() -> None:
    text = scanned(schema(a="long"), schema(a="long", b="date"), schema(c="long"))
    assert names(text) == ["a", "b", "c"]


def test_logs_whose_columns_contradict_each_other_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="'a' is string in log 'log1', but long in"):
        scanned(schema(a="long"), schema(a="string"))


def test_a_log_without_rows_has_no_columns_to_show() -> None:
    with pytest.raises(SchemaMismatchError, match="log flights has no rows yet"):
        scan_schema([("flights", None)], columns=None, include_metadata=False)


def test_a_log_without_rows_beside_one_with_rows_adds_nothing() -> None:
    logs = [("new", None), ("old", stored_schema(schema(a="long")))]
    assert names(scan_schema(logs, columns=None, include_metadata=False)) == ["a"]
