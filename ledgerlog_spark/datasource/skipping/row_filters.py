"""The filters of a query in the form that a task of the JVM engine applies to stored rows.

A task may first read the columns of the filter. Then it reads the other columns of an entry only if
a row of the entry may pass. A filter has one of the following forms:

    {"op": "AND", "of": [...]}                                also OR and NOT
    {"op": "<=", "place": 3, "family": "integer", "values": [5]}
    {"op": "IS_NULL", "place": 3}                             also IS_NOT_NULL
    {}                                                        true or false for any row

`place` is the place of the column in the stored rows. A filter contains no names and no types,
because this module has already interpreted them, and the literals. In `values`, a literal is a
number for booleans (0 or 1) and for all families of integers. It is text for floats (as Java writes
them) and for decimals (an integer in units of 10^-38). It is base64 for text and bytes. The value
null stands for a null literal.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledgerlog_spark.arrow.spark_types import place_of
from ledgerlog_spark.datasource.skipping.facts import family_of
from ledgerlog_spark.datasource.skipping.predicates import ColumnTest, Literal, column_test
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns


def row_filter(expressions: Sequence[Any], stored: StoredColumns) -> dict[str, Any] | None:
    """Return the filter for rows of one stored schema.

    The result is None if no filter is worth a separate read. `expressions` are the filters of a
    request. A row passes if all filters are true. A filter that only excludes nulls is not worth a
    separate read: Spark adds such a filter for the keys of a join, and the planner already leaves
    out the entries that have only nulls.
    """
    parts = [_resolved(expression, stored) for expression in expressions]
    useful = [
        part
        for part in parts
        if _may_exclude(part) and not set(_operators_of(part)) <= {"IS_NOT_NULL", "AND", "OR"}
    ]
    return {"op": "AND", "of": useful} if useful else None


def places_in(part: Mapping[str, Any]) -> frozenset[int]:
    """Return the places of the columns that a filter of `row_filter` tests."""
    own = {part["place"]} if "place" in part else set()
    return frozenset(own).union(*map(places_in, part.get("of", [])))


def _resolved(expression: Any, stored: StoredColumns) -> Mapping[str, Any]:
    if not isinstance(expression, Mapping) or "op" not in expression:
        return {}
    operator, operands = expression["op"], expression.get("of", [])
    if operator in {"AND", "OR", "NOT"}:
        if len(operands) != (1 if operator == "NOT" else 2):
            return {}
        return {"op": operator, "of": [_resolved(operand, stored) for operand in operands]}
    test = column_test(operator, operands)
    return {} if test is None else _placed(test, stored)


def _placed(test: ColumnTest, stored: StoredColumns) -> Mapping[str, Any]:
    place = None if stored.is_metadata(test.column) else place_of(test.column, stored.schema.names)
    if place is None:
        return {}
    if not test.literals:
        return {"op": test.operator, "place": place}
    family = family_of(stored.schema.field(place).type)
    if family != test.literals[0].family:
        return {}
    values = [_value(literal) for literal in test.literals]
    return {"op": test.operator, "place": place, "family": family, "values": values}


def _value(literal: Literal) -> Any:
    key = literal.key
    if key is None:
        return None
    if literal.family == "float":
        is_nan, number = key
        return "NaN" if is_nan else repr(number).replace("inf", "Infinity")
    if literal.family in {"string", "binary"}:
        return base64.b64encode(key).decode("ascii")
    # A boolean becomes 0 or 1.
    return str(key) if literal.family == "decimal" else int(key)


def _operators_of(part: Mapping[str, Any]) -> Iterator[str]:
    if "op" in part:
        yield part["op"]
    for each in part.get("of", []):
        yield from _operators_of(each)


def _may_exclude(part: Mapping[str, Any], *, result: bool = True) -> bool:
    """Whether there may be rows for which the result of `part` is certainly not `result`."""
    operator = part.get("op")
    if operator == "NOT":
        return _may_exclude(part["of"][0], result=not result)
    if operator in {"AND", "OR"}:
        of_parts = [_may_exclude(each, result=result) for each in part["of"]]
        return any(of_parts) if (operator == "AND") is result else all(of_parts)
    return operator is not None
