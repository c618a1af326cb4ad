"""Logs that were merged, truncated and restored, as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.merging import LogMerger
from ledgerlog_spark.upkeep.rows import restore
from tests.spark.frames import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.client import LedgerClient
    from ledgerlog_spark.upkeep.merging import Merged

COMMITS = 5
ROWS = 100


@pytest.fixture
def log(spark: SparkSession, save: Callable[..., None], log_name: str) -> str:
    """Five commits of two ranges each; version v has the ids below 100 v."""
    for first in range(0, COMMITS * ROWS, ROWS):
        frame = spark.range(first, first + ROWS, 1, 2)
        save(frame.selectExpr("id", "CAST(id AS string) AS text"))
    return log_name


def merge(client: BlockingClient, log: str) -> Merged:
    async def merged(ledgers: LedgerClient) -> Merged:
        return await LogMerger(await logs_of(ledgers).open(log), ledgers, MergePolicy()).merge()

    return client.run(merged)


def ids(spark: SparkSession, log: str, condition: str = "true", **options: str) -> list[int]:
    frame = load(spark, log, **options).where(condition)
    return sorted(row.id for row in frame.select("id").collect())


def test_merged_log_reads_as_before_in_every_version_offset_and_filter(
    spark: SparkSession, client: BlockingClient, log: str
) -> None:
    offsets = load(spark, log, includeMetadata="true")
    before = {row.id: row._offset for row in offsets.collect()}
    assert merge(client, log).ranges_after == 1
    assert ids(spark, log) == list(range(COMMITS * ROWS))
    for version in range(1, COMMITS + 1):
        assert ids(spark, log, versionAsOf=str(version)) == list(range(version * ROWS))
    after = {row.id: row._offset for row in offsets.collect()}
    assert after == before
    assert ids(spark, log, "id BETWEEN 150 AND 160") == list(range(150, 161))
    assert ids(spark, log, "text = '77'") == [77]
    assert ids(spark, log, "id > 10000") == []
    wanted = ids(spark, log, startingOffsets="120", endingOffsets="130")
    assert sorted(before[i] for i in wanted) == list(range(120, 130))
    split = load(spark, log, maxRecordsPerPartition="70")
    assert split.count() == COMMITS * ROWS


def test_plan_made_before_a_merge_is_read_after_it(
    spark: SparkSession, client: BlockingClient, log: str
) -> None:
    planned = load(spark, log)
    assert planned.rdd.getNumPartitions() >= 1
    merge(client, log)
    assert sorted(row.id for row in planned.collect()) == list(range(COMMITS * ROWS))


def test_rows_appended_after_a_merge_follow_and_a_truncation_within_the_range_cuts_it(
    spark: SparkSession, client: BlockingClient, save: Callable[..., None], log: str
) -> None:
    merge(client, log)
    save(spark.range(500, 510, 1, 1).selectExpr("id", "CAST(id AS string) AS text"))
    assert ids(spark, log) == list(range(510))
    BlockingLogs(client).open(log).truncate(450)
    assert len(ids(spark, log)) == 60
    assert merge(client, log).ranges_after == 1
    assert len(ids(spark, log)) == 60


def test_version_within_a_merged_range_is_restored(
    spark: SparkSession, client: BlockingClient, save: Callable[..., None], log: str
) -> None:
    merge(client, log)
    save(spark.range(7, 9, 1, 1).selectExpr("id", "CAST(id AS string) AS text"), mode="overwrite")
    assert ids(spark, log) == [7, 8]

    async def restored(ledgers: LedgerClient) -> int | None:
        return (await restore(await logs_of(ledgers).open(log), ledgers, 3)).version

    assert client.run(restored) == COMMITS + 2
    assert ids(spark, log) == list(range(3 * ROWS))
    assert ids(spark, log, versionAsOf=str(COMMITS + 1)) == [7, 8]


def test_merged_log_keeps_the_metadata_of_its_columns(
    spark: SparkSession, client: BlockingClient, save: Callable[..., None], log_name: str
) -> None:
    for word in ("abc", "ABC", "b"):
        save(spark.sql(f"SELECT '{word}' COLLATE UTF8_LCASE AS c"))
    before = load(spark, log_name)
    assert merge(client, log_name).ranges_after == 1
    after = load(spark, log_name)
    assert after.schema == before.schema
    assert after.where("c = 'aBc'").count() == 2
