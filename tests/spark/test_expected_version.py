"""Writes against the version that a job read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, make_active, rows_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

    Save = Callable[..., None]

ROUNDS = 3


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_on_another_version_is_refused_and_changes_nothing(
    spark: SparkSession, log_name: str, save: Save, mode: str
) -> None:
    save(spark.range(3))
    save(spark.range(3, 5), mode=mode, expectedVersion="1")
    before = rows_of(load(spark, log_name))
    for wrong in ("1", "3"):
        message = f"at version 2, and the write expects version {wrong}"
        with pytest.raises(Exception, match=message):
            save(spark.range(9), mode=mode, expectedVersion=wrong)
    assert rows_of(load(spark, log_name)) == before


def test_a_write_that_is_overtaken_while_its_tasks_run_is_refused(
    spark: SparkSession, log_name: str, save: Save, cluster: Cluster
) -> None:
    """A task of this write commits the other write, so after its own job began."""
    save(spark.range(1))
    uri = cluster.metadata_service_uri

    def overtaking(batches: object) -> object:
        from ledgerlog_spark import connect
        from ledgerlog_spark.protocol.log.state.records import WriteMode

        with connect(uri) as other:
            log = other.logs.open(log_name)
            job = log.begin(schema=log.state().schema or b"", mode=WriteMode.OVERWRITE)
            log.commit(job, [])
        yield from batches  # type: ignore[misc]

    rows = spark.range(5).coalesce(1).mapInArrow(overtaking, "id long")
    with pytest.raises(Exception, match="at version 2, and the write expects version 1"):
        save(rows, expectedVersion="1")
    assert load(spark, log_name).count() == 0


def test_three_threads_that_add_one_to_what_they_read_lose_no_update(
    spark: SparkSession, log_name: str, save: Save, client: BlockingClient
) -> None:
    save(spark.range(1))
    log = BlockingLogs(client).open(log_name)

    def update(_: int) -> bool:
        make_active(spark)
        version = str(log.state().head.version)
        rows = load(spark, log_name, versionAsOf=version).selectExpr("id + 1 AS id")
        try:
            save(rows, mode="overwrite", expectedVersion=version)
        except Exception as error:
            if "ConcurrentCommitError" not in str(error):
                raise
            return False
        return True

    with ThreadPoolExecutor(3) as threads:
        oks = sum(ok for _ in range(ROUNDS) for ok in threads.map(update, range(3)))
    assert oks >= ROUNDS
    assert rows_of(load(spark, log_name)) == [(oks,)]


def test_a_job_that_is_run_again_after_its_commit_is_a_replay(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    for _ in range(2):
        save(spark.range(3, 4), expectedVersion="1", txnAppId="daily", txnVersion="7")
    same_rows(load(spark, log_name), spark.range(4))


def test_a_log_that_was_made_again_is_another_log(
    spark: SparkSession, log_name: str, save: Save, client: BlockingClient
) -> None:
    logs = BlockingLogs(client)
    save(spark.range(3))
    expected = {"expectedVersion": "1", "expectedLogId": logs.open(log_name).log_id}
    logs.delete(log_name)
    with pytest.raises(Exception, match='does not exist, but the option "expectedVersion"'):
        save(spark.range(9), **expected)
    assert log_name not in logs.names()
    save(spark.range(5))
    with pytest.raises(Exception, match="deleted and re-created after the job read it"):
        save(spark.range(9), mode="overwrite", **expected)
    same_rows(load(spark, log_name), spark.range(5))
