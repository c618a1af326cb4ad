"""count, min and max from the list (ledgerlog_spark.datasource.skipping.aggregates)."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.statistics import batch_statistics
from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.skipping.aggregates import (
    Aggregate,
    NotExactError,
    exact_values,
)
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns
from ledgerlog_spark.protocol.log.state.records import Item
from ledgerlog_spark.protocol.log.state.statistics import encode_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE = "not exact"


def of(function: str, kind: pa.DataType, *ranges: Sequence[Any] | int) -> Any:
    """The value over ranges with these values of a column; a number: rows without the column."""
    listed = []
    for values in ranges:
        if isinstance(values, int):
            batch = pa.record_batch({"other": pa.array([1] * values)})
        else:
            batch = pa.record_batch({"x": pa.array(values, kind)})
        encoded = encode_statistics(batch_statistics(batch), size_bytes_max=1024)
        stored = StoredColumns(encode_schema(batch.schema), include_metadata=False)
        listed.append((stored, Item(1, 1, 2, 2, batch.num_rows, 9, 0, 0, encoded)))
    try:
        (value,) = exact_values([Aggregate(function, "x")], listed)
    except NotExactError:
        return NONE
    return value


LONG = "x" * 40


@pytest.mark.parametrize(
    ("function", "kind", "ranges", "expected"),
    [
        ("min", pa.int64(), ([3, None], [5]), 3),
        ("max", pa.int64(), ([3, None], [2**62]), 2**62),
        ("count", pa.int64(), ([3, None], [5]), 2),
        ("count", pa.int64(), ([3], 4, [None]), 1),
        ("min", pa.int64(), (4, [None]), None),
        ("max", pa.int64(), ([3], 4, [None]), 3),
        ("max", pa.float64(), ([1.5], [math.inf]), "Infinity"),
        ("min", pa.float64(), ([1.5, math.nan],), "1.5"),
        ("max", pa.float64(), ([1.5, math.nan],), NONE),
        ("min", pa.float64(), ([math.nan], [1.0]), NONE),
        ("min", pa.float64(), ([0.0], [1.0]), NONE),
        ("max", pa.float64(), ([-0.0, 1.0],), "1.0"),
        ("min", pa.string(), (["b"], ["é"]), base64.b64encode(b"b").decode()),
        ("min", pa.string(), ([LONG], ["a"]), base64.b64encode(b"a").decode()),
        ("max", pa.string(), ([LONG], ["a"]), NONE),
        ("min", pa.string(), ([LONG], ["z"]), NONE),
        ("max", pa.list_(pa.int64()), ([[1]],), NONE),
        ("count", pa.list_(pa.int64()), ([[1], None],), 1),
    ],
    ids=str,
)
def test_values_are_exact_or_unknown(
    function: str, kind: pa.DataType, ranges: Sequence[Any], expected: Any
) -> None:
    assert of(function, kind, *ranges) == expected


def test_ranges_of_other_types_and_without_statistics_are_not_answered() -> None:
    kinds = (pa.int64(), pa.decimal128(9, 0), pa.decimal128(9, 2))
    listed = []
    for kind in kinds:
        schema = pa.schema([("x", kind)])
        batch = pa.record_batch({"x": pa.array([1], schema.field("x").type)})
        encoded = encode_statistics(batch_statistics(batch), size_bytes_max=1024)
        item = Item(1, 1, 2, 2, 1, 9, 0, 0, encoded)
        listed.append((StoredColumns(encode_schema(schema), include_metadata=False), item))
    for mixed in (listed[:2], listed[1:]):
        with pytest.raises(NotExactError):
            exact_values([Aggregate("min", "x")], mixed)
    stored, item = listed[0]
    assert exact_values([Aggregate("count"), Aggregate("max", "x")], [(stored, item)]) == [1, 1]
    bare = Item(1, 1, 2, 2, 1, 9, 0, 0)
    assert exact_values([Aggregate("count")], [(stored, bare)]) == [1]
    with pytest.raises(NotExactError):
        exact_values([Aggregate("count", "x")], [(stored, bare)])
