"""Listed rows that no bookie has any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

    Save = Callable[..., None]


@pytest.fixture
def log_with_a_loss(
    spark: SparkSession, client: BlockingClient, log_name: str, save: Save
) -> tuple[str, int]:
    """A log of three ranges. The ledger of the second was deleted without the log."""
    for first in (0, 10, 20):
        save(spark.range(first, first + 10, 1, 1))
    _, lost, _ = BlockingLogs(client).open(log_name).snapshot().items
    client.delete_ledger(lost.ledger_id)
    return log_name, lost.ledger_id


def test_lost_rows_fail_the_query_and_name_ledger_and_option(
    spark: SparkSession, log_with_a_loss: tuple[str, int]
) -> None:
    log, ledger_id = log_with_a_loss
    expected = rf'DataLossError: entries 1 to 1 of ledger {ledger_id}.*"failOnDataLoss"'
    with pytest.raises(Exception, match=expected):
        load(spark, log).collect()


def test_lost_rows_are_skipped_when_that_is_asked_for(
    spark: SparkSession, log_with_a_loss: tuple[str, int]
) -> None:
    log, _ = log_with_a_loss
    expected = spark.range(0, 10).union(spark.range(20, 30))
    same_rows(load(spark, log, failOnDataLoss="false"), expected)


def test_offsets_that_were_overwritten_are_data_loss(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(10))
    save(spark.range(5), mode="overwrite")
    with pytest.raises(Exception, match=r"version 2 of log .* begins at 10"):
        load(spark, log_name, startingOffsets="3").collect()
    kept = load(spark, log_name, startingOffsets="3", failOnDataLoss="false")
    same_rows(kept, spark.range(5))
