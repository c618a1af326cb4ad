"""First writes of logs: those that fail, and those that must create the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, make_active, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

    Save = Callable[..., None]


def fails(_: object) -> Iterator[Any]:
    """Raise an error instead of a batch."""
    raise ValueError("by design")


FAILS = "raise_error('by design') AS id"


@pytest.mark.parametrize("must_create", ["true", "false"])
def test_a_first_write_that_fails_leaves_no_log(
    spark: SparkSession, log_name: str, client: BlockingClient, save: Save, must_create: str
) -> None:
    with pytest.raises(Exception, match="by design"):
        save(spark.range(3).selectExpr(FAILS), errorIfExists=must_create)
    assert log_name not in BlockingLogs(client).names()
    save(spark.range(3), errorIfExists=must_create)
    same_rows(load(spark, log_name), spark.range(3))


def test_a_later_write_that_fails_leaves_the_log(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(0))
    with pytest.raises(Exception, match="by design"):
        save(spark.range(3).selectExpr("CAST(raise_error('by design') AS long) AS id"))
    same_rows(load(spark, log_name), spark.range(0))


def test_a_first_write_that_fails_leaves_a_log_that_another_one_wrote_to(
    spark: SparkSession, log_name: str, save: Save, cluster: Cluster
) -> None:
    uri = cluster.metadata_service_uri

    def writes_and_fails(batches: object) -> Iterator[Any]:
        from ledgerlog_spark import connect

        with connect(uri) as other:
            log = other.logs.open(log_name)
            schema = log.state().schema or b""
            log.commit(log.begin(schema=schema), [])
        yield from fails(batches)

    rows = spark.range(5).coalesce(1).mapInArrow(writes_and_fails, "id long")
    with pytest.raises(Exception, match="by design"):
        save(rows)
    same_rows(load(spark, log_name), spark.range(0))


def test_a_write_that_must_create_its_log_fails_when_it_exists(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3), errorIfExists="true")
    with pytest.raises(Exception, match=f"log '{log_name}' already exists, and the option"):
        save(spark.range(9), errorIfExists="true")
    same_rows(load(spark, log_name), spark.range(3))


def test_an_empty_log_exists_too_and_the_error_has_a_way_out(
    spark: SparkSession, log_name: str, save: Save, client: BlockingClient
) -> None:
    BlockingLogs(client).create(log_name)
    with pytest.raises(Exception, match=rf"has no commit.*`ledgerlog logs delete {log_name}`"):
        save(spark.range(3), errorIfExists="true")
    save(spark.range(3))
    same_rows(load(spark, log_name), spark.range(3))


def test_of_writes_that_must_create_one_log_exactly_one_succeeds(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    def create(number: int) -> bool:
        make_active(spark)
        try:
            save(spark.range(number, number + 1), errorIfExists="true")
        except Exception as error:
            if "LogExistsError" not in str(error):
                raise
            return False
        return True

    with ThreadPoolExecutor(3) as threads:
        oks = list(threads.map(create, range(3)))
    assert oks.count(True) == 1
    assert [row[0] for row in load(spark, log_name).collect()] == [oks.index(True)]


def test_a_creation_that_is_run_again_after_its_commit_is_a_replay(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    how = {"errorIfExists": "true", "txnAppId": "daily", "txnVersion": "1"}
    for _ in range(2):
        save(spark.range(3), **how)
    same_rows(load(spark, log_name), spark.range(3))
    with pytest.raises(Exception, match="already exists"):
        save(spark.range(3), **(how | {"txnVersion": "2"}))


def test_a_write_that_cannot_begin_leaves_no_log(
    spark: SparkSession, log_name: str, save: Save, client: BlockingClient
) -> None:
    with pytest.raises(Exception, match="NotEnoughBookies"):
        save(spark.range(3), ensembleSize="9")
    with pytest.raises(Exception, match="reserved for jobs without"):
        save(spark.range(3), txnAppId="job:mine", txnVersion="1")
    assert log_name not in BlockingLogs(client).names()
