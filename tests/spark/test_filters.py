"""Filters that leave out ledgers by their statistics."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import datasource
from pyspark.sql import functions as f

from ledgerlog_spark.datasource.batch_reader import FilteringReader
from ledgerlog_spark.datasource.options import SourceOptions
from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster

    Save = Callable[..., None]

COLUMNS = [
    "id",
    "CAST(id AS string) AS text",
    "CAST(id AS decimal(10,2)) AS amount",
    "date_add(DATE'2024-01-01', CAST(id AS int)) AS day",
    "TIMESTAMP'2024-01-01 00:00:00' + make_dt_interval(0, CAST(id AS int)) AS moment",
    "IF(id < 100, NULL, id) AS later",
]
CONDITIONS = [
    "id = 150",
    "id < 10",
    "id IN (5, 305)",
    "id > 1000",
    "text = '150'",
    "text LIKE '35%'",
    "amount >= 399.00",
    "amount < 0.5",
    "day = DATE'2024-01-05'",
    "day > DATE'2024-12-01'",
    "moment < TIMESTAMP'2024-01-01 03:00:00'",
    "moment >= TIMESTAMP'2024-01-16 00:00:00'",
    "later IS NULL",
    "later IS NOT NULL AND later < 105",
    "NOT (id = 3)",
    "id <=> 3",
    "id = 3 OR id = 305",
]


@contextlib.contextmanager
def pushed_down(spark: SparkSession) -> Iterator[None]:
    """Spark pushes filters down, which `configure` leaves off."""
    key = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(key, "true")
    try:
        yield
    finally:
        spark.conf.set(key, "false")


@pytest.fixture(scope="module")
def four_hundred(spark: SparkSession) -> str:
    """A log of four ranges of a hundred rows each."""
    for first in range(0, 400, 100):
        frame = spark.range(first, first + 100, 1, 1).selectExpr(*COLUMNS)
        frame.write.format("ledger").mode("append").save("four-hundred")
    return "four-hundred"


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_keep_exactly_the_rows_that_pass(
    condition: str, spark: SparkSession, four_hundred: str
) -> None:
    expected = spark.range(400).selectExpr(*COLUMNS).where(condition)
    with pushed_down(spark):
        assert rows_of(load(spark, four_hundred).where(condition)) == rows_of(expected)


@pytest.mark.parametrize("condition", ["_offset = 150", "_ledger >= 0", "_log IS NULL"])
def test_filters_on_metadata_columns_are_not_judged_by_statistics(
    condition: str, spark: SparkSession, four_hundred: str
) -> None:
    with pushed_down(spark):
        frame = load(spark, four_hundred, includeMetadata="true").where(condition)
        expected = {"_offset = 150": 1, "_ledger >= 0": 400, "_log IS NULL": 0}
        assert frame.count() == expected[condition]


def test_a_frame_that_is_used_again_has_all_its_rows(
    spark: SparkSession, four_hundred: str
) -> None:
    frame = load(spark, four_hundred)
    assert frame.where(f.col("id") == 7).count() == 1
    assert frame.count() == 400
    both = frame.where("id = 7").union(frame.where("id > 390"))
    assert both.count() == 1 + 9


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], 4),
        ([datasource.EqualTo(("id",), 150)], 1),
        ([datasource.GreaterThan(("id",), 1000)], 0),
        ([datasource.In(("id",), (5, 305))], 2),
        ([datasource.IsNull(("later",))], 1),
        ([datasource.IsNotNull(("id",)), datasource.LessThan(("id",), 100)], 1),
        ([datasource.Not(datasource.EqualTo(("id",), 1))], 4),
        ([datasource.StringContains(("text",), "1")], 4),
        ([datasource.EqualTo(("unknown",), 1)], 4),
    ],
    ids=str,
)
def test_ranges_that_no_row_can_pass_are_not_read(
    filters: list[datasource.Filter],
    ranges: int,
    spark: SparkSession,
    cluster: Cluster,
    four_hundred: str,
) -> None:
    options = SourceOptions.parse({"log": four_hundred}).for_read()
    schema_json = load(spark, four_hundred).schema.json()
    reader = FilteringReader(cluster.metadata_service_uri, options, schema_json)
    assert list(reader.pushFilters(filters)) == filters
    planned = [s for partition in reader.partitions() for s in partition.task.ranges]
    assert len(planned) == ranges
