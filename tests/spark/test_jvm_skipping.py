"""Queries for which the JVM engine reads fewer entries or none, because of statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.conftest import ENGINE_SETTING
from tests.spark.frames import load
from tests.spark.scan_metrics import collected

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.log.clients import BlockingLogClient

    Save = Callable[..., None]

ROWS = 400_000
ENTRIES_MIN = 100
"""Minimum number of entries of the log `large`, which has two ranges."""


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def by_python(spark: SparkSession, query: Callable[[], DataFrame]) -> list[tuple[Any, ...]]:
    spark.conf.set(ENGINE_SETTING, "python")
    try:
        return sorted(map(tuple, query().collect()), key=repr)
    finally:
        spark.conf.unset(ENGINE_SETTING)


@pytest.fixture(scope="module")
def large(spark: SparkSession) -> str:
    """A log of rows in the order of `id`, in entries of 64 KiB; `text` is in the same order."""
    name = "skipping-large"
    for first in (0, ROWS // 2):
        rows = spark.range(first, first + ROWS // 2, 1, 1).selectExpr(
            "id",
            "cast(id AS decimal(20, 4)) / 8 AS price",
            "concat('key ', lpad(id, 9, '0')) AS text",
            "if(id % 100 = 0, NULL, id % 7) AS day",
        )
        rows.selectExpr("id", "cast(price AS decimal(20, 4)) AS price", "text", "day").write.format(
            "ledger"
        ).mode("append").options(compression="none", targetEntryBytes="65536").save(name)
    return name


SELECTIVE = [
    f"id BETWEEN {ROWS // 3} AND {ROWS // 3 + ROWS // 1000}",
    f"id IN ({ROWS - 5}, {ROWS - 3})",
    f"price = {ROWS // 10}.5",
    "text LIKE 'key 0001234%'",
    f"id < 40 OR id > {ROWS - 40}",
    f"_offset >= {ROWS - 10}",
]


@pytest.mark.parametrize("where", SELECTIVE)
def test_a_selective_filter_reads_few_entries(spark: SparkSession, large: str, where: str) -> None:
    _, whole = collected(load(spark, large).select("id"))
    assert whole["entriesRead"] >= ENTRIES_MIN
    assert 0 < whole["replicasTried"] <= whole["requestsSent"]
    frame = load(spark, large).where(where)
    rows, read = collected(frame)
    assert 0 < read["entriesRead"] <= whole["entriesRead"] * 0.02
    assert "chosen by" in plan_of(frame)
    expected = by_python(
        spark,
        lambda: load(spark, large, includeMetadata="true").where(where).select(*frame.columns),
    )
    assert rows == expected
    assert rows


def test_a_filter_that_no_row_passes_reads_nothing(spark: SparkSession, large: str) -> None:
    rows, read = collected(load(spark, large).where(f"id > {ROWS} AND day = 3"))
    assert rows == []
    assert read["entriesRead"] == 0
    assert load(spark, large).where("text IS NULL").count() == 0


def test_filters_of_one_query_do_not_reach_another(spark: SparkSession, large: str) -> None:
    frame = load(spark, large)
    few, others = frame.where("id < 3"), frame.where(f"id >= {ROWS - 2}")
    both = few.union(others)
    assert sorted(row.id for row in both.collect()) == [0, 1, 2, ROWS - 2, ROWS - 1]
    assert few.count() == 3
    assert frame.count() == ROWS
    assert frame.where("id < 3").groupBy().count().collect()[0][0] == 3
    joined = few.alias("a").join(frame.alias("b"), "text")
    assert sorted(row[1] for row in joined.collect()) == [0, 1, 2]
    assert frame.join(others, "id").count() == 2
    assert frame.agg({"id": "sum"}).collect()[0][0] == ROWS * (ROWS - 1) // 2


def test_columns_with_a_collation_are_not_compared_by_bytes(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    for text in ("a", "B", "c"):
        save(spark.sql(f"SELECT '{text}' COLLATE UTF8_LCASE AS t, '{text}' AS plain"))
    frame = load(spark, log_name)
    assert [row.t for row in frame.where("t = 'b'").collect()] == ["B"]
    assert [row.t for row in frame.where("plain COLLATE UTF8_LCASE = 'b'").collect()] == ["B"]
    assert frame.agg({"t": "max"}).collect()[0][0] == "c"
    assert [row.t for row in frame.orderBy("t").limit(2).collect()] == ["a", "B"]


def test_older_ranges_without_a_column_and_with_null_are_skipped(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(0, 5, 1, 1))
    save(spark.range(5, 9, 1, 1).selectExpr("id", "id AS more"), mergeSchema="true")
    frame = load(spark, log_name)
    rows, read = collected(frame.where("more < 100"))
    assert rows == [(n, n) for n in range(5, 9)]
    assert read["entriesRead"] == 1
    assert collected(frame.where("more IS NULL"))[0] == [(n, None) for n in range(5)]
    assert collected(frame.where("NOT (more <=> 5)"))[0] == sorted(
        [*((n, None) for n in range(5)), *((n, n) for n in range(6, 9))], key=repr
    )


@pytest.mark.parametrize(
    "order", ["id", "id DESC", "text DESC, day", "day, id", "day DESC NULLS LAST, id"]
)
def test_the_first_rows_of_an_order_are_the_same(
    spark: SparkSession, large: str, order: str
) -> None:
    def query() -> DataFrame:
        load(spark, large).createOrReplaceTempView("ordered")
        return spark.sql(f"SELECT * FROM ordered ORDER BY {order} LIMIT 7")

    rows, read = collected(query())
    assert rows == by_python(spark, query)
    if not order.startswith("day"):
        assert 0 < read["entriesRead"] <= 2
        assert "chosen by ORDER BY" in plan_of(query())


def test_an_order_with_a_filter_reads_what_the_filter_needs(
    spark: SparkSession, large: str
) -> None:
    frame = load(spark, large).where("day = 3").orderBy("id").limit(5)
    assert [row.id for row in frame.collect()] == [3, 10, 17, 24, 31]
    last = load(spark, large).where(f"id > {ROWS // 2}").orderBy("id").limit(1)
    assert last.collect()[0].id == ROWS // 2 + 1


def values_and_plan(frame: DataFrame) -> tuple[tuple[Any, ...], bool]:
    """The only row of a query, and whether it came from the list."""
    return tuple(frame.collect()[0]), "LocalTableScan" in plan_of(frame)


def test_values_come_from_the_list_where_they_are_exact(spark: SparkSession, large: str) -> None:
    expressions = [
        "min(id)", "max(id)", "count(*)", "count(day)", "min(day)", "max(text)", "min(price)",
    ]  # fmt: skip
    frame = load(spark, large).selectExpr(*expressions)
    values, from_list = values_and_plan(frame)
    assert from_list
    assert [values] == by_python(spark, lambda: load(spark, large).selectExpr(*expressions))
    for asked in (
        ("min(id)", "sum(id)"),
        ("count(DISTINCT day)",),
        ("max(id + 1)",),
    ):
        assert not values_and_plan(load(spark, large).selectExpr(*asked))[1], asked
    assert not values_and_plan(load(spark, large).where("id > 5").selectExpr("max(id)"))[1]
    part = load(spark, large, endingOffsets="1000").selectExpr("max(id)", "count(*)")
    assert values_and_plan(part) == ((999, 1000), False)
    assert load(spark, large).groupBy("day").count().count() == 8


def test_values_that_statistics_do_not_have_exactly_are_computed(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    long_text = "x" * 40
    kinds = "zero double, nan double, nans double, long string, f float, l array<int>"
    ranges = (
        [(0.0, 1.5, 1.0, long_text, 1.0, [1])],
        [(-0.0, 2.5, math.nan, "y", math.inf, [2]), (1.0, math.nan, math.nan, "y", 0.0, None)],
    )
    for rows in ranges:
        save(spark.createDataFrame(rows, kinds).coalesce(1))

    def of(expression: str) -> tuple[Any, bool]:
        (value,), from_list = values_and_plan(load(spark, log_name).selectExpr(expression))
        return value, from_list

    assert of("min(nan)") == (1.5, True)
    assert of("min(nans)") == (1.0, False)
    assert math.isnan(of("max(nan)")[0])
    assert of("min(zero)") == (0.0, False)
    assert of("min(long)") == (long_text, False)
    assert of("max(long)") == ("y", True)
    assert of("max(f)") == (math.inf, True)
    assert of("count(l)") == (2, True)


def test_values_of_missing_and_null_columns(spark: SparkSession, save: Save, log_name: str) -> None:
    save(spark.range(0, 5, 1, 1).selectExpr("id", "cast(NULL AS int) AS none"))
    save(
        spark.range(5, 9, 1, 1).selectExpr("id", "cast(NULL AS int) none", "id AS more"),
        mergeSchema="true",
    )
    frame = load(spark, log_name)
    asked = frame.selectExpr("min(more)", "count(more)", "max(none)", "count(none)", "count(*)")
    assert values_and_plan(asked) == ((5, 4, None, 0, 9), True)


def test_values_of_a_log_with_a_lost_ledger_are_not_answered(
    spark: SparkSession, client: BlockingLogClient, save: Save, log_name: str
) -> None:
    save(spark.range(0, 5, 1, 1))
    assert values_and_plan(load(spark, log_name).selectExpr("max(id)")) == ((4,), True)
    (item,) = BlockingLogs(client).open(log_name).snapshot().items
    client.delete_ledger(item.ledger_id)
    assert "LocalTableScan" not in plan_of(load(spark, log_name).selectExpr("max(id)"))
