"""Few columns of wide logs: their bytes alone are read, and the rows are those of whole entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.local.cluster import Cluster

    Save = Callable[..., None]

ROWS = 8_000
WIDE = [
    "id",
    *(f"CASE WHEN id % 11 = {n} THEN NULL ELSE xxhash64(id, {n}) END AS c{n}" for n in range(12)),
    "hex(xxhash64(id)) AS text",
    "array(xxhash64(id), id) AS list",
    "named_struct('x', id, 'y', map('k', array(cast(id AS string)))) AS nested",
    "cast(id AS decimal(20, 2)) AS price",
    "date_add(DATE '2024-01-01', cast(id % 900 AS int)) AS day",
    "CAST(NULL AS string) AS nothing",
]
CHOSEN = [["c3"], ["id", "nested"], ["text", "nothing"], ["list", "price", "day"]]


def wide(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr(*WIDE)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_few_columns_have_the_same_rows(
    spark: SparkSession, log_name: str, save: Save, compression: str
) -> None:
    save(wide(spark), compression=compression, targetEntryBytes="100000")
    for names in CHOSEN:
        expected = rows_of(wide(spark).select(names))
        assert rows_of(load(spark, log_name, columns=",".join(names))) == expected
        assert rows_of(load(spark, log_name).select(names)) == expected
    filtered = load(spark, log_name).where("c3 < 0").select("text")
    assert rows_of(filtered) == rows_of(wide(spark).where("c3 < 0").select("text"))


def test_metadata_columns_and_counts_need_no_other_bytes(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(wide(spark), targetEntryBytes="100000")
    log = load(spark, log_name, includeMetadata="true")
    names = ["_ledger", "_entry", "_offset"]
    whole = log.select(*names, "*").collect()
    pruned = log.select(*names).collect()
    assert sorted(row[:3] for row in pruned) == sorted(row[:3] for row in whole)
    assert log.where("_offset >= 0").count() == ROWS


def test_columns_of_a_part_of_a_log_are_those_of_its_rows(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(wide(spark), targetEntryBytes="100000")
    save(wide(spark).selectExpr("id + 100000 AS id", "c1"), mode="append")
    given = {"startingOffsets": "1500", "endingOffsets": str(ROWS + 1500), "minPartitions": "3"}
    part = load(spark, log_name, **given)
    whole = [(row.c1, row.text) for row in part.collect()]
    assert len(whole) == ROWS
    assert sum(text is None for _, text in whole) == 1_500
    assert rows_of(part.select("c1", "text")) == sorted(whole, key=repr)


def test_a_bookie_that_is_killed_loses_no_rows(
    spark: SparkSession, log_name: str, save: Save, cluster: Cluster
) -> None:
    save(wide(spark), targetEntryBytes="100000")
    cluster.kill("bookie-1")
    try:
        names = ["id", "c5"]
        pruned = load(spark, log_name).select(names)
        assert rows_of(pruned) == rows_of(wide(spark).select(names))
    finally:
        cluster.start("bookie-1")
