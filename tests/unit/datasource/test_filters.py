"""Ranges that no row can pass (ledgerlog_spark.datasource.filters)."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.statistics import batch_statistics
from ledgerlog_spark.datasource.filters import COMPARISONS, Predicate, may_match
from ledgerlog_spark.protocol.log_statistics import (
    ColumnStatistics,
    decode_statistics,
    encode_statistics,
)

TENS = ColumnStatistics(0, 2, 10, 20)


def may(comparison: str, value: Any = None, known: ColumnStatistics = TENS, rows: int = 9) -> bool:
    return may_match([Predicate("n", comparison, value)], [known], {"n": 0}, rows)


@pytest.mark.parametrize(
    ("comparison", "value", "expected"),
    [
        ("=", 9, False), ("=", 10, True), ("=", 20, True), ("=", 21, False),
        ("<=>", 9, False), ("<=>", 15, True), ("<=>", None, True),
        ("<", 10, False), ("<", 11, True), ("<=", 9, False), ("<=", 10, True),
        (">", 20, False), (">", 19, True), (">=", 21, False), (">=", 20, True),
        ("in", (1, 2), False), ("in", (1, 12), True), ("in", (None,), False),
        ("is null", None, True), ("is not null", None, True),
        ("<>", 15, True), ("contains", "x", True), ("=", "text", True),
    ],
)  # fmt: skip
def test_bounds_decide(comparison: str, value: Any, expected: bool) -> None:
    assert may(comparison, value) is expected


def test_null_counts_decide() -> None:
    assert not may("is null", known=ColumnStatistics(0, 0, 1, 2))
    assert not may("is not null", known=ColumnStatistics(0, 9))
    assert not may("=", 1, known=ColumnStatistics(0, 9))
    assert may("<=>", known=ColumnStatistics(0, 9))


def test_unknown_bounds_and_columns_without_statistics_may_hold_anything() -> None:
    assert may("=", 5, known=ColumnStatistics(0, 0))
    assert may_match([Predicate("m", "=", 5)], [TENS], {"n": 0, "m": 33}, 9)


def test_a_column_that_the_rows_lack_is_null_in_all_of_them() -> None:
    assert not may_match([Predicate("later", "=", 5)], [TENS], {"n": 0}, 9)
    assert may_match([Predicate("later", "is null")], [TENS], {"n": 0}, 9)


def test_all_predicates_have_to_be_possible() -> None:
    both = [Predicate("n", ">", 5), Predicate("n", ">", 50)]
    assert not may_match(both, [TENS], {"n": 0}, 9)


def test_unequal_is_impossible_only_for_one_exact_value() -> None:
    assert not may("<>", 7, known=ColumnStatistics(0, 0, 7, 7))
    assert may("<>", 7, known=ColumnStatistics(0, 0, 7, 7, is_maximum_exact=False))


VALUES = st.none() | st.floats(width=64)
SPARK_ORDER = {
    "=": lambda v, w: key(v) == key(w),
    "<=>": lambda v, w: key(v) == key(w),
    "<": lambda v, w: key(v) < key(w),
    "<=": lambda v, w: key(v) <= key(w),
    ">": lambda v, w: key(v) > key(w),
    ">=": lambda v, w: key(v) >= key(w),
    "<>": lambda v, w: key(v) != key(w),
}


def key(value: float) -> tuple[bool, float]:
    """Spark's order of doubles: NaN equals itself and is above everything; -0.0 is 0.0."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from(sorted(SPARK_ORDER)), st.floats())
def test_a_range_of_doubles_with_a_row_that_passes_is_never_left_out(
    values: list[float | None], comparison: str, literal: float
) -> None:
    passes = any(v is not None and SPARK_ORDER[comparison](v, literal) for v in values)
    known = stored(pa.array(values, pa.float64()))
    if passes:
        assert may_match([Predicate("n", comparison, literal)], known, {"n": 0}, len(values))


TEXTS = st.text(alphabet="ab\u00e9\U0010ffff", max_size=40)


@settings(deadline=None)
@given(st.lists(st.none() | TEXTS, min_size=1, max_size=5), TEXTS)
def test_a_range_of_texts_with_a_row_that_passes_is_never_left_out(
    values: list[str | None], literal: str
) -> None:
    known = stored(pa.array(values, pa.string()))
    present = [value for value in values if value is not None]
    passing = {
        "=": literal in present,
        "in": literal in present,
        "starts with": any(value.startswith(literal) for value in present),
        "<": any(value.encode() < literal.encode() for value in present),
        ">=": any(value.encode() >= literal.encode() for value in present),
        "<>": any(value != literal for value in present),
        "is null": len(present) < len(values),
        "is not null": bool(present),
    }
    for comparison, passes in passing.items():
        assert comparison in COMPARISONS
        predicate = Predicate("n", comparison, (literal,) if comparison == "in" else literal)
        if passes:
            assert may_match([predicate], known, {"n": 0}, len(values)), comparison


def stored(array: pa.Array) -> tuple[ColumnStatistics, ...]:
    """Statistics as a log's list has them, cut to 32 bytes."""
    statistics = batch_statistics(pa.record_batch([array], names=["n"]))
    return decode_statistics(encode_statistics(statistics, size_bytes_max=1024))
