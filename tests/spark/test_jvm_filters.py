"""Filters that statistics cannot use: the JVM engine reads their columns before the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import ENGINE_SETTING
from tests.spark.frames import load
from tests.spark.scan_metrics import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRY_ROWS = 1_000
ENTRIES_MIN = 50
ROWS = ENTRY_ROWS * ENTRIES_MIN
NEEDLE_ROW = 31_234
COLUMNS = 20
IN_SOME_ROWS = f"CASE WHEN id = {NEEDLE_ROW} THEN 51 WHEN id % 7 = 0 THEN NULL ELSE id % 50 * 2 END"


@pytest.fixture(scope="module")
def wide(spark: SparkSession) -> str:
    """A log of 20 columns in one range. Every entry has values of `c3` below and above 51."""
    name = "filters-wide"
    columns = [
        f"{IN_SOME_ROWS} AS c3" if n == 3 else f"xxhash64(id, {n}) AS c{n}"
        for n in range(1, COLUMNS)
    ]
    rows = spark.range(0, ROWS, 1, 1).selectExpr("id", *columns)
    rows.write.format("ledger").mode("append").options(
        compression="none", targetEntryBytes=str(ENTRY_ROWS * COLUMNS * 8)
    ).save(name)
    return name


def by_python(spark: SparkSession, frame: DataFrame, where: str) -> list[tuple[Any, ...]]:
    spark.conf.set(ENGINE_SETTING, "python")
    try:
        return sorted(map(tuple, frame.where(where).collect()), key=repr)
    finally:
        spark.conf.unset(ENGINE_SETTING)


def test_a_row_in_one_of_many_entries_costs_the_filter_and_this_entry(
    spark: SparkSession, wide: str
) -> None:
    log = load(spark, wide, minPartitions="1", includeMetadata="true")
    _, whole = collected(log.select("*"))
    rows, read = collected(log.where("c3 = 51"))
    assert [(row[0], row[-2]) for row in rows] == [(NEEDLE_ROW, NEEDLE_ROW)]
    assert whole["entriesRead"] >= ENTRIES_MIN
    assert whole["entriesFiltered"] == 0
    # The first request reads the index, the others read all entries.
    assert read["entriesRead"] == whole["entriesRead"] + 1
    assert read["entriesFiltered"] == whole["entriesRead"] - 1
    assert read["payloadBytesRead"] < whole["payloadBytesRead"] * 0.1


@pytest.mark.parametrize(
    "where",
    [
        "c3 = 51 OR c3 > 1000",
        "c3 IN (51, 53, NULL)",
        "NOT (c3 <=> NULL) AND c3 % 2 = 1 AND c3 = 51",
        "c3 BETWEEN 51 AND 51 AND c9 IS NOT NULL",
        "c3 = 51 AND id < 40000",
    ],
)
def test_few_entries_are_read_completely(spark: SparkSession, wide: str, where: str) -> None:
    log = load(spark, wide, minPartitions="1")
    rows, read = collected(log.where(where))
    assert [row[0] for row in rows] == [NEEDLE_ROW]
    assert read["entriesFiltered"] >= read["entriesRead"] * 0.9
    assert rows == by_python(spark, load(spark, wide), where)


def test_a_filter_that_most_entries_pass_costs_little(spark: SparkSession, wide: str) -> None:
    log = load(spark, wide, minPartitions="1")
    _, whole = collected(log.select("*"))
    rows, read = collected(log.where("c3 = 50 OR c3 = 52"))
    assert read["entriesFiltered"] == 0
    assert read["payloadBytesRead"] < whole["payloadBytesRead"] * 1.1
    assert rows == by_python(spark, load(spark, wide), "c3 = 50 OR c3 = 52")


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("c3 IS NOT NULL", ["*"]),  # as joins add it
        ("c3 % 3 = 100", ["*"]),  # an expression
        ("c3 = 51", ["c3"]),  # nothing else is needed
        ("c3 = 51", ["c3", "c4"]),  # half of the bytes
    ],
)
def test_other_filters_are_not_read_first(
    spark: SparkSession, wide: str, where: str, columns: list[str]
) -> None:
    _, read = collected(load(spark, wide, minPartitions="1").where(where).select(*columns))
    assert read["entriesFiltered"] == 0


def test_parts_of_a_log_choose_their_own_entries(spark: SparkSession, wide: str) -> None:
    log = load(
        spark, wide, minPartitions="4", startingOffsets="500", endingOffsets=str(NEEDLE_ROW + 1)
    )
    assert [row.id for row in log.where("c3 = 51").collect()] == [NEEDLE_ROW]
    before = load(spark, wide, minPartitions="4", endingOffsets=str(NEEDLE_ROW))
    assert before.where("c3 = 51").collect() == []
