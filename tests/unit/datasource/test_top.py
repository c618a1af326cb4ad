"""The first rows of an order come from parts that are kept (datasource.skipping.top)."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.statistics import batch_statistics
from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.skipping.row_runs import RowRun, StoredColumns
from ledgerlog_spark.datasource.skipping.top import Part, Top
from ledgerlog_spark.protocol.log.state.statistics import encode_statistics
from tests.differential.kinds import KINDS
from tests.fixtures.examples import examples
from tests.unit.datasource.filters import order_of


def part_of(
    values: list[Any], kind: pa.DataType, *, is_whole: bool = True, known: bool = True
) -> Part:
    """A part with these values, in the form of a log's statistics."""
    batch = pa.record_batch({"x": pa.array(values, kind)})
    encoded = encode_statistics(batch_statistics(batch), size_bytes_max=1024 if known else 0)
    stored = StoredColumns(encode_schema(batch.schema), include_metadata=False)
    run = RowRun("events", 1, 1, 1, 0, len(values), encoded)
    return Part(stored.facts(run)("x"), len(values), is_whole)


@settings(deadline=None, max_examples=examples(150))
@given(seed=st.integers(0, 2**63), descending=st.booleans(), nulls_first=st.booleans())
def test_a_row_that_is_left_out_has_enough_rows_before_it(
    seed: int, descending: bool, nulls_first: bool
) -> None:
    dice = Random(seed)
    kind = dice.choice(KINDS)
    parts, wanted = [], []
    for _ in range(dice.randint(1, 8)):
        values = [kind.draw(dice) for _ in range(dice.randint(1, 4))]
        nulls = dice.choice((0.0, 0.0, 0.3, 1.0))
        values = [None if dice.random() < nulls else value for value in values]
        is_whole = dice.random() < 0.8
        parts.append(part_of(values, kind.arrow, is_whole=is_whole, known=dice.random() < 0.9))
        # If a part is read only partly, it is unknown which rows are wanted.
        wanted.append(values if is_whole else dice.sample(values, dice.randint(0, len(values))))
    top = Top("x", descending, nulls_first, dice.randint(1, 10))
    rows = [value for values in wanted for value in values]

    def is_before(one: Any, other: Any) -> bool:
        if one is None or other is None:
            return (one is None) is nulls_first and (one is None) is not (other is None)
        first, second = order_of(one), order_of(other)
        return bool(first > second if descending else first < second)

    for values, is_needed in zip(wanted, top.needed(parts), strict=True):
        for value in [] if is_needed else values:
            assert sum(is_before(row, value) for row in rows) >= top.limit


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (Top("x", False, False, 2), [True, False, False]),
        (Top("x", False, False, 3), [True, True, False]),
        (Top("x", True, False, 2), [False, False, True]),
        (Top("x", False, True, 1), [False, False, True]),
        (Top("x", False, True, 2), [True, False, True]),
        (Top("x", False, False, 100), [True, True, True]),
    ],
    ids=str,
)
def test_only_parts_that_may_have_a_first_row_are_needed(top: Top, expected: list[bool]) -> None:
    kind = pa.int64()
    parts = [part_of([1, 2], kind), part_of([3, 4], kind), part_of([5, None, 6], kind)]
    assert top.needed(parts) == expected


def test_parts_without_bounds_or_of_other_types_leave_everything() -> None:
    top = Top("x", False, False, 1)
    numbers = part_of([1], pa.int64()), part_of([5], pa.int64())
    assert top.needed(numbers) == [True, False]
    assert top.needed([*numbers, part_of(["a"], pa.string())]) == [True] * 3
    assert top.needed([*numbers, part_of([[1]], pa.list_(pa.int64()))]) == [True] * 3
    assert top.needed([*numbers, part_of([0], pa.int64(), known=False)]) == [True, False, True]
