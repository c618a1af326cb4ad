"""Filters and statistics: no row that passes is left out (ledgerlog_spark.datasource.skipping)."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.scan import ranges
from ledgerlog_spark.datasource.skipping.facts import Facts, facts_of
from ledgerlog_spark.datasource.skipping.predicates import (
    ANY,
    FALSE,
    NULL,
    TRUE,
    Predicate,
    predicate_of,
)
from ledgerlog_spark.datasource.skipping.row_runs import RowRun, StoredColumns
from ledgerlog_spark.datasource.skipping.spans import PIECES_MAX, spans_of
from ledgerlog_spark.protocol.log.state.statistics import ColumnStatistics, encode_statistics
from tests.fixtures.examples import examples
from tests.unit.datasource.filters import random_columns, random_filter, table_of

RESULTS = {True: TRUE, False: FALSE, None: NULL}


def results_in(
    batch: pa.RecordBatch, predicate: Predicate, *, size_bytes_max: int = 1024, pieces: int = 1
) -> int:
    """The possible results in the rows of a batch, by its statistics alone."""
    union = RangeStatistics()
    for number in range(pieces):
        piece = batch.slice(
            batch.num_rows * number // pieces,
            batch.num_rows * (number + 1) // pieces - batch.num_rows * number // pieces,
        )
        if piece.num_rows:
            union.add(piece.num_rows, batch_statistics(piece))
    encoded = encode_statistics(union.columns, size_bytes_max=size_bytes_max)
    stored = StoredColumns(encode_schema(batch.schema), include_metadata=True)
    return predicate.results(stored.facts(RowRun("events", 7, 3, 5, 100, batch.num_rows, encoded)))


@settings(deadline=None, max_examples=examples(100))
@given(seed=st.integers(0, 2**63), small=st.booleans(), pieces=st.integers(1, 3))
def test_the_result_in_each_row_is_possible_by_the_statistics(
    seed: int, small: bool, pieces: int
) -> None:
    dice = Random(seed)
    columns = random_columns(dice, dice.randint(1, 6))
    batch = table_of(columns)
    for _ in range(20):
        chosen = random_filter(dice, columns)
        possible = results_in(
            batch,
            predicate_of(chosen.expression),
            size_bytes_max=dice.randint(0, 200) if small else 1024,
            pieces=pieces,
        )
        for place in range(batch.num_rows):
            row = {name: column.values[place] for name, column in columns.items()}
            assert RESULTS[chosen.of(row)] & possible, (chosen.expression, row)


def of(operator: str, *operands: Any) -> dict[str, Any]:
    return {"op": operator, "of": list(operands)}


def integer(value: int | None) -> dict[str, Any]:
    return {"type": "integer", "value": value}


X = {"column": "x"}
NUMBERS = pa.record_batch({"x": pa.array([3, 5, 9], pa.int64())})
ONE_VALUE = pa.record_batch({"x": pa.array([5, 5], pa.int64())})
NULLS = pa.record_batch({"x": pa.array([None, None], pa.int64())})


@pytest.mark.parametrize(
    ("batch", "expression", "expected"),
    [
        (NUMBERS, of("<", X, integer(3)), FALSE),
        (NUMBERS, of("<=", X, integer(3)), TRUE | FALSE),
        (NUMBERS, of(">", X, integer(9)), FALSE),
        (NUMBERS, of("<", X, integer(10)), TRUE),
        (NUMBERS, of("=", X, integer(4)), TRUE | FALSE),
        (NUMBERS, of("=", X, integer(None)), NULL),
        (NUMBERS, of("IN", X, integer(1), integer(10)), FALSE),
        (NUMBERS, of("IN", X, integer(1), integer(4)), TRUE | FALSE),
        (NUMBERS, of("IN", X, integer(1), integer(None)), NULL),
        (NUMBERS, of("IS_NULL", X), FALSE),
        (NUMBERS, of("NOT", of("<", X, integer(10))), FALSE),
        (NUMBERS, of("AND", of("<", X, integer(4)), of(">", X, integer(100))), FALSE),
        (NUMBERS, of("OR", of("<", X, integer(0)), of("ENDS_WITH", X)), ANY),
        (ONE_VALUE, of("<>", X, integer(5)), FALSE),
        (ONE_VALUE, of("IN", X, integer(5), integer(None)), TRUE),
        (NULLS, of("IS_NOT_NULL", X), FALSE),
        (NULLS, of("<=>", X, integer(1)), FALSE),
        (NULLS, of("<=>", X, integer(None)), TRUE),
        (NULLS, of("NOT", of("=", X, integer(1))), NULL),
        (NUMBERS, of("<", {"column": "later"}, integer(3)), NULL),
        (NUMBERS, of("IS_NULL", {"column": "LATER"}), TRUE),
        (NUMBERS, of("<", {"column": "X"}, integer(3)), FALSE),
        # The values of another type are not compared.
        (NUMBERS, of("<", X, {"type": "date", "value": 3}), ANY),
        (NUMBERS, of("<", X, {"column": "y"}), ANY),
        (NUMBERS, of("<", X, {}), ANY),
        (NUMBERS, {}, ANY),
        (NUMBERS, of("ALWAYS_FALSE"), FALSE),
        (NUMBERS, of("<", {"column": "_offset"}, integer(100)), FALSE),
        (NUMBERS, of("=", {"column": "_offset"}, integer(102)), TRUE | FALSE),
        (NUMBERS, of("=", {"column": "_ledger"}, integer(7)), TRUE),
        (NUMBERS, of(">", {"column": "_entry"}, integer(5)), FALSE),
        (NUMBERS, of("=", {"column": "_log"}, {"type": "string", "value": "YQ=="}), FALSE),
        (NUMBERS, of("IS_NULL", {"column": "_append_time"}), TRUE | FALSE),
    ],
    ids=str,
)
def test_what_bounds_and_null_counts_show(
    batch: pa.RecordBatch, expression: dict[str, Any], expected: int
) -> None:
    assert results_in(batch, predicate_of(expression)) == expected


def test_decimals_are_compared_as_integers_of_any_scale() -> None:
    close = pa.record_batch({"x": pa.array([10**37 + 1], pa.decimal128(38, 0))})
    for unscaled, scale, expected in ((10**38 + 1, 1, TRUE), (10**38 + 19, 1, FALSE)):
        value = {"type": "decimal", "value": unscaled, "scale": scale}
        assert results_in(close, predicate_of(of(">", X, value))) == expected


def test_nan_is_above_every_number_and_zeros_are_equal() -> None:
    def results(values: list[float], operator: str, literal: str) -> int:
        batch = pa.record_batch({"x": pa.array(values, pa.float64())})
        return results_in(batch, predicate_of(of(operator, X, {"type": "float", "value": literal})))

    assert results([1.0, math.nan], ">", "Infinity") & TRUE
    assert results([1.0, 2.0], "=", "NaN") == FALSE
    assert results([1.0, 2.0], "<", "NaN") == TRUE
    assert results([-0.0], "=", "0.0") == TRUE
    assert results([0.0], "<", "-0.0") == FALSE


def test_without_statistics_everything_may_be() -> None:
    assert results_in(NUMBERS, predicate_of(of("<", X, integer(3))), size_bytes_max=0) == ANY


def test_statistics_with_more_nulls_than_rows_show_nothing() -> None:
    for null_count in (3, -1):
        statistics = ColumnStatistics(0, null_count, 1, 2)
        assert facts_of(pa.int64(), 2, statistics) == Facts("integer")


def test_spans_read_small_gaps_and_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [n * 1000 for n in range(2001)]
    cost = ranges.OPEN_COST_BYTES // 1000
    assert spans_of([1, 2, 3], edges) == [(1, 4)]
    far = 4 + 2 * cost
    assert spans_of([1, 2 + cost, far], edges) == [(1, 3 + cost), (far, far + 1)]
    monkeypatch.setattr("ledgerlog_spark.datasource.skipping.spans.OPEN_COST_BYTES", 0)
    assert spans_of([0, 2, 3, 9], edges) == [(0, 1), (2, 4), (9, 10)]
    many = spans_of(range(0, 2000, 3), [n * n for n in range(2001)])
    assert len(many) == PIECES_MAX
    # The gaps get wider, so the first ones are read.
    assert many[-1] == (1998, 1999)
    assert many[0] == (0, 1 + 3 * (667 - PIECES_MAX))
    assert all(one[1] < other[0] for one, other in pairwise(many))
