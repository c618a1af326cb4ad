"""The reasons for which a stream must stop, and the advice in its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.streams import CrashError, Reading

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

    Write = Callable[..., None]


@pytest.fixture
def reading(spark: SparkSession, log_name: str, tmp_path: Path) -> Reading:
    """A query of the test's log from its first row on."""
    return Reading(spark, tmp_path / "checkpoint", log=log_name, startingOffsets="earliest")


@pytest.fixture
def write(spark: SparkSession, log_name: str) -> Write:
    def save(first: int, end: int, mode: str = "append", log: str = log_name) -> None:
        frame = spark.range(first, end, 1, 1)
        frame.write.format("ledger").mode(mode).save(log)

    return save


def stopped(reading: Reading, expected: str, **options: str) -> None:
    """Check that the query stops with this message, and has read nothing more."""
    before = dict(reading.batches)
    with pytest.raises(Exception, match=expected):
        reading.run(**options)
    assert reading.batches == before


def test_an_overwrite_stops_a_stream_unless_it_is_to_continue(
    reading: Reading, write: Write
) -> None:
    write(0, 10)
    reading.run()
    write(10, 15, mode="overwrite")
    stopped(reading, r'was overwritten by version 2: .*"onOverwrite" to "continue"')
    assert sorted(reading.run(onOverwrite="continue")) == [(n,) for n in range(10, 15)]
    write(15, 20)
    assert sorted(reading.run()) == [(n,) for n in range(15, 20)]


def test_rows_overwritten_before_they_were_read_come_when_the_stream_is_to_continue(
    reading: Reading, write: Write
) -> None:
    write(0, 10)
    reading.run(maxRowsPerTrigger="4", startingOffsets="6")
    write(10, 15)
    write(15, 20, mode="overwrite")
    stopped(reading, "was overwritten by version 3")
    assert sorted(reading.run(onOverwrite="continue")) == [(n,) for n in range(10, 20)]


def test_a_stream_that_begins_after_an_overwrite_reads_what_the_log_holds(
    reading: Reading, write: Write
) -> None:
    write(0, 10)
    write(10, 15, mode="overwrite")
    assert sorted(reading.run()) == [(n,) for n in range(10, 15)]


def crash_once(reading: Reading, number: int) -> None:
    """Read until a batch, and end it after its end was logged and before its commit."""

    def crash(batch: int) -> None:
        if batch == number and reading.attempts[batch] == 1:
            raise CrashError

    reading.during = crash
    with pytest.raises(Exception, match="CrashError"):
        reading.run()


def test_a_first_batch_that_was_cut_off_is_read_again_with_the_same_rows(
    reading: Reading, write: Write
) -> None:
    write(0, 10)
    crash_once(reading, 0)
    write(10, 15)
    reading.run()
    assert reading.attempts[0] == 2
    assert [len(reading.batches[n]) for n in sorted(reading.batches)] == [10, 5]


def test_rows_that_come_after_a_stream_began_at_the_end_survive_a_crash_of_its_first_batch(
    reading: Reading, write: Write
) -> None:
    write(0, 10)
    reading.options["startingOffsets"] = "latest"
    crash_once(reading, 0)
    write(10, 15)
    reading.run()
    assert reading.attempts[0] == 2
    assert sorted(reading.ids) == list(range(10, 15))


def test_a_batch_that_was_cut_off_before_an_overwrite_is_read_again_with_the_same_rows(
    reading: Reading, write: Write
) -> None:
    write(0, 10)
    crash_once(reading, 0)
    write(50, 60, mode="overwrite")
    with pytest.raises(Exception, match="was overwritten by version 2"):
        reading.run()
    assert reading.attempts[0] == 2
    assert sorted(reading.ids) == list(range(10))


def test_rows_truncated_under_a_stream_that_lags_are_data_loss(
    reading: Reading, write: Write, client: BlockingClient, log_name: str
) -> None:
    write(0, 10)
    reading.run()
    write(10, 30)
    BlockingLogs(client).open(log_name).truncate(25)
    stopped(reading, r'DataLossError.*15 rows were truncated.*"failOnDataLoss" to "false"')
    assert sorted(reading.run(failOnDataLoss="false")) == [(n,) for n in range(25, 30)]


def test_rows_truncated_behind_a_stream_do_not_stop_it(
    reading: Reading, write: Write, client: BlockingClient, log_name: str
) -> None:
    write(0, 10)
    reading.run()
    BlockingLogs(client).open(log_name).truncate(10)
    write(10, 20)
    assert sorted(reading.run()) == [(n,) for n in range(10, 20)]


def test_a_log_deleted_under_a_running_query_stops_it(
    reading: Reading, write: Write, client: BlockingClient, log_name: str
) -> None:
    write(0, 10)
    query = reading.start()
    reading.until(10)
    BlockingLogs(client).delete(log_name)
    said = r"was deleted: the query had read all known rows; only rows .*failOnDataLoss"
    with pytest.raises(Exception, match=said):
        query.awaitTermination()


def test_a_deleted_log_that_was_not_looked_at_may_have_had_rows(
    reading: Reading, write: Write, client: BlockingClient, log_name: str
) -> None:
    write(0, 10)
    write(100, 110, log=f"{log_name}-b")
    del reading.options["log"]
    reading.options["logPattern"] = f"{log_name}.*"
    reading.run()
    BlockingLogs(client).delete(log_name)
    stopped(reading, r"was deleted: any rows that the query had not read are lost")


def test_a_log_deleted_and_made_again_is_another_log(
    reading: Reading, write: Write, client: BlockingClient, log_name: str
) -> None:
    write(0, 10)
    reading.run()
    BlockingLogs(client).delete(log_name)
    write(100, 103)
    stopped(reading, r"was deleted and created again: .*new checkpointLocation")
    assert sorted(reading.run(failOnDataLoss="false")) == [(n,) for n in range(100, 103)]


def test_a_deleted_log_of_several_is_passed_over_when_that_is_asked_for(
    reading: Reading, write: Write, client: BlockingClient, log_name: str
) -> None:
    write(0, 10)
    write(100, 110, log=f"{log_name}-b")
    del reading.options["log"]
    reading.options |= {"logPattern": f"{log_name}.*", "failOnDataLoss": "false"}
    reading.run()
    BlockingLogs(client).delete(log_name)
    write(110, 120, log=f"{log_name}-b")
    assert sorted(reading.run()) == [(n,) for n in range(110, 120)]


def test_an_offset_behind_the_end_says_that_the_log_went_back(
    reading: Reading, write: Write, log_name: str
) -> None:
    write(0, 10)
    reading.run()
    offsets = reading.offsets(0)
    offsets[log_name]["offset"] = 50
    reading.write_offsets(0, offsets)
    stopped(reading, r"is at offset 50 of log .* ends at 10: its metadata is older")
    assert reading.run(failOnDataLoss="false") == []
    write(10, 12)
    assert sorted(reading.run()) == [(10,), (11,)]


def test_a_checkpoint_of_another_log_is_refused(
    reading: Reading, write: Write, log_name: str
) -> None:
    write(0, 10)
    write(0, 10, log=f"{log_name}-b")
    reading.run()
    stopped(
        reading, "the checkpoint belongs to log .* separate checkpointLocation", log=f"{log_name}-b"
    )


def test_a_checkpoint_of_another_source_is_refused(reading: Reading, write: Write) -> None:
    write(0, 10)
    reading.run()
    reading.write_offsets(0, {"flights": {"0": 10}})
    stopped(reading, "it is the checkpoint of another source")


def test_a_start_that_the_log_does_not_have_is_refused(reading: Reading, write: Write) -> None:
    write(0, 10)
    stopped(reading, "is 11, but version .* of log .* ends at offset 10", startingOffsets="11")
    write(10, 12, mode="overwrite")
    stopped(reading, "begins at 10: earlier rows were overwritten", startingOffsets="3")
    stopped(reading, "both set the start: set only one", startingTimestamp="-1h")


def test_a_moment_after_the_newest_row_is_refused(
    spark: SparkSession, reading: Reading, write: Write
) -> None:
    write(0, 10)
    del reading.options["startingOffsets"]
    stopped(reading, "no row of log .* or later", startingTimestamp="2100-01-01T00:00:00Z")


def test_options_that_only_batch_reads_have_are_refused(reading: Reading, write: Write) -> None:
    write(0, 10)
    stopped(reading, '"versionAsOf" is for batch reads', versionAsOf="1")
    stopped(reading, '"endingOffsets" is for batch reads', endingOffsets="5")
    stopped(reading, 'Did you mean "maxRowsPerTrigger"', maxRowPerTrigger="5")


def test_a_log_that_does_not_exist_is_named(reading: Reading, log_name: str) -> None:
    stopped(reading, f"LogNotFoundError.*{log_name}")
    reading.schema = "id long"
    stopped(reading, f"log '{log_name}' does not exist")


def test_columns_that_do_not_fit_the_query_stop_it_before_a_task_runs(
    reading: Reading, write: Write, spark: SparkSession, log_name: str
) -> None:
    write(0, 10)
    del reading.options["log"]
    reading.options["logPattern"] = f"{log_name}.*"
    reading.run()
    texts = spark.range(1).selectExpr("'x' AS id")
    texts.write.format("ledger").mode("append").save(f"{log_name}-b")
    reading.schema = "id long"
    stopped(reading, r"does not fit the columns of the query: .*'id'")
