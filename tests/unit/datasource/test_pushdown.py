"""Spark's filters as predicates (ledgerlog_spark.datasource.pushdown)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from ledgerlog_spark.datasource.filters import Predicate
from ledgerlog_spark.datasource.pushdown import predicates_of

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("data", pa.binary()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("clock", pa.time64("ns")),
        ("span", pa.duration("us")),
        ("nested", pa.struct([("a", pa.int64())])),
    ]
)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (spark.EqualTo(("n",), 5), Predicate("n", "=", 5)),
        (spark.EqualNullSafe(("n",), None), Predicate("n", "<=>", None)),
        (spark.LessThan(("ratio",), 5), Predicate("ratio", "<", 5)),
        (spark.LessThanOrEqual(("text",), "b"), Predicate("text", "<=", "b")),
        (spark.GreaterThan(("flag",), value=False), Predicate("flag", ">", value=False)),
        (spark.GreaterThanOrEqual(("data",), b"\xff"), Predicate("data", ">=", b"\xff")),
        (spark.In(("n",), [1, 2]), Predicate("n", "in", (1, 2))),
        (spark.IsNull(("nested",)), Predicate("nested", "is null")),
        (spark.IsNotNull(("n",)), Predicate("n", "is not null")),
        (spark.Not(spark.IsNull(("n",))), Predicate("n", "is not null")),
        (spark.Not(spark.EqualTo(("n",), 5)), Predicate("n", "<>", 5)),
        (spark.StringStartsWith(("text",), "a"), Predicate("text", "starts with", "a")),
        (spark.EqualTo(("amount",), Decimal("1.5")), Predicate("amount", "=", Decimal(150))),
        (spark.EqualTo(("day",), date(1970, 1, 3)), Predicate("day", "=", 2)),
        (
            spark.EqualTo(("moment",), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            Predicate("moment", "=", 1_000_000),
        ),
        (
            spark.EqualTo(("local",), datetime(1970, 1, 1, 0, 0, 1)),  # noqa: DTZ001
            Predicate("local", "=", 1_000_000),
        ),
        (spark.EqualTo(("clock",), time(0, 0, 1, 1)), Predicate("clock", "=", 1_000_001_000)),
        (spark.EqualTo(("span",), timedelta(seconds=-1)), Predicate("span", "=", -1_000_000)),
    ],
    ids=str,
)
def test_filters_become_predicates_in_the_unit_of_the_statistics(
    wanted: Any, expected: Predicate
) -> None:
    assert predicates_of([wanted], SCHEMA) == (expected,)


@pytest.mark.parametrize(
    "wanted",
    [
        spark.StringContains(("text",), "a"),
        spark.StringEndsWith(("text",), "a"),
        spark.Not(spark.LessThan(("n",), 5)),
        spark.Not(spark.StringContains(("text",), "a")),
        spark.EqualTo(("nested", "a"), 5),
        spark.EqualTo(("unknown",), 5),
        spark.EqualTo(("text",), 5),
        spark.EqualTo(("n",), "5"),
        spark.EqualTo(("nested",), {"a": 5}),
    ],
    ids=str,
)
def test_filters_that_statistics_cannot_decide_are_passed_over(wanted: Any) -> None:
    assert predicates_of([wanted], SCHEMA) == ()
