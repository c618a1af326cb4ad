"""Decides from bounds and null counts whether a row of a range or entry may pass a filter of Spark.

The JVM engine sends each filter as JSON. An expression has one of the following forms:

    {"column": "a"}                                    a column at the top level
    {"type": "decimal", "value": 150, "scale": 2}      a literal, see `literal_of`
    {"op": "<=", "of": [...]}                          an operator

All other expressions are unknown expressions. The result of a filter for one row is true, false or
null. `results` computes the set of results that the filter may have in some rows, from the `Facts`
about the columns in these rows. This set may contain results that do not occur in the rows, but it
must contain all results that occur. So the set of an unknown expression contains all three results.
"""

from __future__ import annotations

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.datasource.skipping.facts import Facts, key_of

TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL

FactsOf = Callable[[str], Facts]
"""Returns the `Facts` about a column in some rows. The argument is the name of the column."""

_BELOW, _EQUAL, _ABOVE = 1, 2, 4
_TRUE_WHERE = {
    "=": _EQUAL,
    "<>": _BELOW | _ABOVE,
    "<": _BELOW,
    "<=": _BELOW | _EQUAL,
    ">": _ABOVE,
    ">=": _ABOVE | _EQUAL,
}
"""Maps operators to flags: whether they are true for values below, equal to, or above the literal.
"""
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_NOT = {0: 0, TRUE: FALSE, FALSE: TRUE, TRUE | FALSE: TRUE | FALSE}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. If the literal is null, `key` is None."""

    family: str
    key: Any


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """An operator whose first operand is a column.

    The other operands are literals of the column's family. The operator is IN, STARTS_WITH or a
    comparison. If there are no literals, the operator is IS_NULL or IS_NOT_NULL.
    """

    operator: str
    column: str
    literals: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A filter of Spark.

    Attributes:
        columns: Names of the columns from which the filter computes its result.
        results: Computes the results that the filter may have in some rows, from the `Facts` about
            the columns in these rows. The set of results is a sum of `TRUE`, `FALSE` and `NULL`.
    """

    columns: frozenset[str]
    results: Callable[[FactsOf], int]

    def may_pass(self, facts_of: FactsOf) -> bool:
        """Whether the filter may be true for at least one of the rows that the `Facts` describe."""
        return bool(self.results(facts_of) & TRUE)


_UNKNOWN = Predicate(frozenset(), lambda _: ANY)


def predicate_of(expression: Any) -> Predicate:
    """Convert an expression of the JVM engine to a filter."""
    if not isinstance(expression, Mapping) or "op" not in expression:
        return _UNKNOWN
    operator, operands = expression["op"], expression.get("of", [])
    if operator in {"AND", "OR", "NOT"}:
        return _combined(operator, [predicate_of(operand) for operand in operands])
    if operator in {"ALWAYS_TRUE", "ALWAYS_FALSE"}:
        result = TRUE if operator == "ALWAYS_TRUE" else FALSE
        return Predicate(frozenset(), lambda _: result)
    return _of_column(operator, operands)


def literal_of(expression: Any) -> Literal | None:
    """Return the constant in an expression.

    The result is None if the expression is not a constant, or if its type has no bounds. The
    `value` is true or false for booleans. It is a number for integers, for dates, times and
    intervals (in the units of stored columns), and for decimals (the unscaled integer). It is text
    for floats, and base64 for text and bytes. If `value` is missing or null, the constant is null.
    """
    if not isinstance(expression, Mapping) or "type" not in expression:
        return None
    family, value = str(expression["type"]), expression.get("value")
    if value is None:
        return Literal(family, None)
    if family == "float":
        value = float(value)
    elif family in {"string", "binary"}:
        value = base64.b64decode(value)
    key = key_of(family, value, expression.get("scale", 0))
    return None if key is None else Literal(family, key)


def _combined(operator: str, parts: Sequence[Predicate]) -> Predicate:
    columns = frozenset[str]().union(*(part.columns for part in parts))
    if operator == "NOT" and len(parts) == 1:
        (part,) = parts
        return Predicate(columns, lambda facts_of: _negated(part.results(facts_of)))
    if operator == "NOT" or len(parts) != 2:  # noqa: PLR2004 - both sides
        return _UNKNOWN
    one, other = parts
    join = _both if operator == "AND" else _either
    return Predicate(columns, lambda facts_of: join(one.results(facts_of), other.results(facts_of)))


def _negated(results: int) -> int:
    return _NOT[results & ~NULL] | (results & NULL)


def _both(one: int, other: int) -> int:
    found = (one & other & TRUE) | ((one | other) & FALSE)
    if (one & NULL and other & ~FALSE) or (other & NULL and one & ~FALSE):
        found |= NULL
    return found


def _either(one: int, other: int) -> int:
    return _negated(_both(_negated(one), _negated(other)))


def column_test(operator: str, operands: Sequence[Any]) -> ColumnTest | None:
    """Convert an operator and its operands to a test of a column.

    The result is None if the operator tests no column or is unknown.
    """
    if operator in _FLIPPED and len(operands) == 2 and "column" in operands[1]:  # noqa: PLR2004
        operator, operands = _FLIPPED[operator], operands[::-1]
    column = operands[0].get("column") if operands and isinstance(operands[0], Mapping) else None
    if not isinstance(column, str):
        return None
    if operator in {"IS_NULL", "IS_NOT_NULL"}:
        return ColumnTest(operator, column)
    found = [literal_of(operand) for operand in operands[1:]]
    literals = tuple(literal for literal in found if literal is not None)
    families = {literal.family for literal in literals}
    if len(literals) != len(found) or len(families) != 1:
        return None
    is_known = (
        operator == "IN"
        or (operator in _FLIPPED and len(literals) == 1)
        or (operator == "STARTS_WITH" and len(literals) == 1 and families == {"string"})
    )
    return ColumnTest(operator, column, literals) if is_known else None


def _of_column(operator: str, operands: Sequence[Any]) -> Predicate:
    """Return the filter for an operator whose operands are a column and literals."""
    test = column_test(operator, operands)
    if test is None:
        return _UNKNOWN
    column = test.column
    if not test.literals:
        where_null, where_value = (TRUE, FALSE) if operator == "IS_NULL" else (FALSE, TRUE)
        return Predicate(
            frozenset({column}),
            lambda facts_of: _split(facts_of(column), where_null, where_value),
        )
    results = _comparison(test.operator, test.literals)

    def of_column(facts_of: FactsOf) -> int:
        facts = facts_of(column)
        if facts.has_values and facts.family != test.literals[0].family:
            return ANY
        return results(facts)

    return Predicate(frozenset({column}), of_column)


def _split(facts: Facts, where_null: int, where_value: int) -> int:
    return where_null * facts.has_nulls | where_value * facts.has_values


def _comparison(operator: str, literals: Sequence[Literal]) -> Callable[[Facts], int]:
    """Return the function that computes the possible results of a `ColumnTest`."""
    key = literals[0].key
    if operator == "IN":
        keys = sorted({literal.key for literal in literals if literal.key is not None})
        otherwise = NULL if any(literal.key is None for literal in literals) else FALSE
        return lambda facts: _in(facts, keys, otherwise)
    if operator == "<=>":
        return lambda facts: _same(facts, key)
    if operator == "STARTS_WITH":
        return lambda facts: _starts_with(facts, key)
    where = _TRUE_WHERE[operator]
    return lambda facts: _compared(facts, key, where)


def _places(facts: Facts, key: Any) -> int:
    """Return flags for whether values may be below, equal to, and above `key`."""
    low, high = facts.low, facts.high
    found = _EQUAL if (low is None or low <= key) and (high is None or key <= high) else 0
    found |= _BELOW if low is None or low < key else 0
    return found | (_ABOVE if high is None or key < high else 0)


def _compared(facts: Facts, key: Any, where: int) -> int:
    if key is None:
        return NULL
    found = NULL if facts.has_nulls else 0
    if facts.has_values:
        places = _places(facts, key)
        found |= (TRUE if places & where else 0) | (FALSE if places & ~where else 0)
    return found


def _same(facts: Facts, key: Any) -> int:
    """Return the possible results of `<=>`.

    It treats two nulls as equal, and is never null itself.
    """
    if key is None:
        return _split(facts, TRUE, FALSE)
    of_values = _compared(facts, key, _EQUAL) & ~NULL if facts.has_values else 0
    return of_values | (FALSE if facts.has_nulls else 0)


def _in(facts: Facts, keys: Sequence[Any], otherwise: int) -> int:
    """Return the possible results of `IN`.

    `keys` are the keys of the list. `otherwise` is the result for a value that is not in the list.
    """
    found = NULL if facts.has_nulls else 0
    if not facts.has_values:
        return found
    low, high = facts.low, facts.high
    first = 0 if low is None else bisect_left(keys, low)
    end = len(keys) if high is None else bisect_right(keys, high)
    is_one_value = low is not None and low == high and first < end
    return found | (TRUE if first < end else 0) | (0 if is_one_value else otherwise)


def _starts_with(facts: Facts, prefix: bytes | None) -> int:
    if prefix is None:
        return NULL
    found = NULL if facts.has_nulls else 0
    if facts.has_values:
        is_high = facts.high is None or facts.high >= prefix
        is_low = facts.low is None or facts.low[: len(prefix)] <= prefix
        found |= FALSE | (TRUE if is_low and is_high else 0)
    return found
