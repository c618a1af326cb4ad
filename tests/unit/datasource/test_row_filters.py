"""The filters of tasks (ledgerlog_spark.datasource.skipping.row_filters)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.skipping.row_filters import row_filter
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns
from tests.golden.filters.write import FILE, written

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("list", pa.list_(pa.int32())),
    ]
)
STORED = StoredColumns(encode_schema(SCHEMA), include_metadata=True)
X = {"column": "X"}
FIVE = {"type": "integer", "value": 5}
NO_NUMBER = {"type": "integer", "value": None}
IS_FIVE = {"op": "=", "place": 1, "family": "integer", "values": [5]}


def of(operator: str, *operands: Any) -> dict[str, Any]:
    return {"op": operator, "of": list(operands)}


def resolved(*expressions: Any) -> Any:
    """The parts of the filter. All of them must be true."""
    found = row_filter(expressions, STORED)
    assert found is None or found["op"] == "AND"
    return None if found is None else found["of"]


def test_the_golden_filters_are_those_of_the_writer() -> None:
    assert FILE.read_text() == written()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (of("=", X, FIVE), IS_FIVE),
        (of("<", FIVE, X), {**IS_FIVE, "op": ">"}),
        (of("NOT", of("=", X, FIVE)), of("NOT", IS_FIVE)),
        (of("IN", X, FIVE, NO_NUMBER), {**IS_FIVE, "op": "IN", "values": [5, None]}),
        (of("IS_NULL", {"column": "list"}), {"op": "IS_NULL", "place": 7}),
        (of("NOT", of("IS_NOT_NULL", X)), of("NOT", {"op": "IS_NOT_NULL", "place": 1})),
        (
            of(">", {"column": "f"}, {"type": "float", "value": "-Infinity"}),
            {"op": ">", "place": 3, "family": "float", "values": ["-Infinity"]},
        ),
        (
            of("=", {"column": "f"}, {"type": "float", "value": "NaN"}),
            {"op": "=", "place": 3, "family": "float", "values": ["NaN"]},
        ),
        (
            of("=", {"column": "d"}, {"type": "decimal", "value": 15, "scale": 1}),
            {"op": "=", "place": 4, "family": "decimal", "values": [str(15 * 10**37)]},
        ),
        (
            of("=", {"column": "b"}, {"type": "boolean", "value": True}),
            {"op": "=", "place": 5, "family": "boolean", "values": [1]},
        ),
        (
            of("STARTS_WITH", {"column": "s"}, {"type": "string", "value": "YQ=="}),
            {"op": "STARTS_WITH", "place": 2, "family": "string", "values": ["YQ=="]},
        ),
    ],
    ids=str,
)
def test_names_types_and_literals_are_those_of_the_stored_rows(
    expression: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert resolved(expression) == [expected]


@pytest.mark.parametrize(
    "expression",
    [
        {},
        of("=", X, {"type": "date", "value": 5}),
        of("=", X, X),
        of("=", {"column": "later"}, FIVE),
        of("=", {"column": "_offset"}, FIVE),
        of("ENDS_WITH", {"column": "s"}, {"type": "string", "value": "YQ=="}),
        of("STARTS_WITH", X, FIVE),
        of("=", {"column": "list"}, FIVE),
        of("=", {"column": "d"}, {"type": "decimal", "value": 1, "scale": 40}),
        of("IS_NOT_NULL", X),
        of("AND", of("IS_NOT_NULL", X), of("IS_NOT_NULL", {"column": "s"})),
        of("OR", of("=", X, FIVE), {}),
        of("NOT", of("AND", of("=", X, FIVE), {})),
        of("NOT", {}),
    ],
    ids=str,
)
def test_a_filter_that_excludes_no_entry_is_left_out(expression: dict[str, Any]) -> None:
    assert resolved(expression) is None
    # Together with others, it excludes nothing either.
    assert resolved(expression, of("=", X, FIVE)) == [IS_FIVE]


def test_names_of_metadata_columns_mean_stored_ones_only_without_metadata() -> None:
    schema = encode_schema(pa.schema([("_offset", pa.int64())]))
    expressions = [of("=", {"column": "_offset"}, FIVE)]
    assert row_filter(expressions, StoredColumns(schema, include_metadata=True)) is None
    found = row_filter(expressions, StoredColumns(schema, include_metadata=False))
    assert found == {"op": "AND", "of": [{**IS_FIVE, "place": 0}]}


def test_unknown_parts_stay_in_filters_that_exclude_entries() -> None:
    assert resolved(of("AND", of("=", X, FIVE), {})) == [of("AND", IS_FIVE, {})]
    negated = of("NOT", of("OR", of("=", X, FIVE), {}))
    assert resolved(negated) == [of("NOT", of("OR", IS_FIVE, {}))]
