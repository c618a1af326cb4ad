"""The streaming sink through Spark, on real bookies: each row is visible exactly once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, rows_of
from tests.spark.stream_sources import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

PANDAS_IS_NEWER = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
"""`mapInArrow` checks the version of pandas, which it does not use."""


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Numbers:
    return Numbers(spark, tmp_path)


@pytest.fixture
def values(spark: SparkSession, log_name: str) -> Callable[[], list[int]]:
    """The numbers in the test's log, in the order of the log."""

    def read() -> list[int]:
        rows = load(spark, log_name, includeMetadata="true").orderBy("_offset").collect()
        assert [row["_offset"] for row in rows] == list(range(len(rows)))
        return [row["value"] for row in rows]

    return read


def test_rows_of_all_batches_are_there_once_and_in_order_over_restarts(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]], client: BlockingClient
) -> None:
    for _ in range(3):
        numbers.add(100)
        numbers.add(50)
        numbers.copy_to(log_name)
    assert values() == list(range(450))
    assert BlockingLogs(client).open(log_name).state().head.version == 6


def test_batch_that_was_committed_and_not_checkpointed_is_not_written_again(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]], client: BlockingClient
) -> None:
    numbers.add(10)
    numbers.add(10)
    numbers.copy_to(log_name)
    numbers.forget_commit(1)
    numbers.copy_to(log_name)
    assert values() == list(range(20))
    assert BlockingLogs(client).open(log_name).state().head.version == 2
    numbers.add(5)
    numbers.copy_to(log_name)
    assert values() == list(range(25))


@PANDAS_IS_NEWER
def test_task_that_fails_and_is_tried_again_leaves_no_duplicate(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]], tmp_path: Path
) -> None:
    fails = tmp_path / "fails"
    fails.touch()

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if fails.exists():
            fails.unlink()
            raise OSError("behind the last row")

    numbers.add(1000)
    numbers.copy_to(log_name, numbers.frame().mapInArrow(fail_once, "value long"))
    assert not fails.exists()
    assert values() == list(range(1000))


def test_configured_session_writes_local_checkpoints_without_starting_processes(
    spark: SparkSession,
) -> None:
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert manager is not None
    assert manager.endswith("FileSystemBasedCheckpointFileManager")


def test_empty_partitions_and_empty_batches_are_fine(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]]
) -> None:
    for count in (1, 0, 2):
        numbers.add(count)
    numbers.copy_to(log_name, numbers.frame().repartition(4))
    assert sorted(values()) == [0, 1, 2]


def test_query_that_begins_behind_what_the_log_holds_is_a_stale_checkpoint(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]], tmp_path: Path
) -> None:
    old = tmp_path / "old"
    numbers.add(10)
    numbers.copy_to(log_name)
    shutil.copytree(numbers.checkpoint, old)
    for _ in range(2):
        numbers.add(10)
    numbers.copy_to(log_name)
    with pytest.raises(StreamingQueryException, match=r"StaleCheckpointError.*up to 2.*with 1"):
        numbers.copy_to(log_name, checkpoint=str(old))
    assert values() == list(range(30))


@pytest.mark.parametrize(("batches", "said"), [(1, "belongs to another query"), (2, "up to 1")])
def test_second_query_of_one_application_id_is_refused(
    batches: int,
    said: str,
    numbers: Numbers,
    log_name: str,
    values: Callable[[], list[int]],
    tmp_path: Path,
) -> None:
    for _ in range(batches):
        numbers.add(10)
    numbers.copy_to(log_name, txnAppId="app")
    with pytest.raises(StreamingQueryException, match=f"StaleCheckpointError.*{said}"):
        numbers.copy_to(log_name, checkpoint=str(tmp_path / "second"), txnAppId="app")
    assert values() == list(range(10 * batches))
    numbers.add(10)
    numbers.copy_to(log_name, txnAppId="app")
    assert values() == list(range(10 * batches + 10))


def test_two_queries_without_an_application_id_append_both(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]], tmp_path: Path
) -> None:
    numbers.add(10)
    numbers.copy_to(log_name)
    numbers.copy_to(log_name, checkpoint=str(tmp_path / "second"))
    assert values() == [*range(10), *range(10)]


def test_rows_that_do_not_fit_the_log_stop_the_query_and_change_nothing(
    numbers: Numbers, log_name: str, values: Callable[[], list[int]]
) -> None:
    numbers.add(10)
    numbers.copy_to(log_name)
    numbers.add(10)
    texts = numbers.frame().selectExpr("cast(value AS string) AS value")
    with pytest.raises(StreamingQueryException, match=r"SchemaMismatchError.*value"):
        numbers.copy_to(log_name, texts)
    numbers.copy_to(log_name)
    assert values() == list(range(20))


def test_new_columns_are_added_in_the_middle_of_a_query_when_merge_schema_says_so(
    spark: SparkSession, numbers: Numbers, log_name: str
) -> None:
    numbers.add(2)
    numbers.copy_to(log_name)
    numbers.add(2)
    more = numbers.frame().selectExpr("value", "value * 2 AS twice")
    numbers.copy_to(log_name, more, mergeSchema="true")
    assert rows_of(load(spark, log_name)) == [(0, None), (1, None), (2, 4), (3, 6)]


def test_complete_mode_shows_the_newest_result_and_old_ones_as_versions(
    spark: SparkSession, numbers: Numbers, log_name: str
) -> None:
    counts = numbers.frame().selectExpr("value % 3 AS third").groupBy("third").count()
    for batch in range(1, 4):
        numbers.add(30)
        numbers.copy_to(log_name, counts, outputMode="complete")
        assert rows_of(load(spark, log_name)) == [(third, 10 * batch) for third in range(3)]
    old = load(spark, log_name, versionAsOf="2")
    assert rows_of(old) == [(third, 20) for third in range(3)]


def test_update_mode_is_refused_by_spark(numbers: Numbers, log_name: str) -> None:
    numbers.add(3)
    counts = numbers.frame().groupBy("value").count()
    with pytest.raises(Exception, match=r"(?i)update"):
        numbers.copy_to(log_name, counts, outputMode="update")


def test_batch_id_is_the_version_so_txn_version_is_refused(numbers: Numbers, log_name: str) -> None:
    numbers.add(1)
    with pytest.raises(Exception, match=r"txnVersion.*the batch id"):
        numbers.copy_to(log_name, txnAppId="app", txnVersion="3")


def test_log_that_is_deleted_under_a_query_stops_it_and_is_not_made_again_before_the_next_start(
    spark: SparkSession, numbers: Numbers, log_name: str, client: BlockingClient
) -> None:
    logs = BlockingLogs(client)
    numbers.add(10)
    query = numbers.start(log_name, forever=True)
    try:
        query.processAllAvailable()
        logs.delete(log_name)
        numbers.add(10)
        with pytest.raises(StreamingQueryException, match="deleted while the query ran"):
            query.processAllAvailable()
    finally:
        query.stop()
    with pytest.raises(LogNotFoundError):
        logs.open(log_name)
    numbers.copy_to(log_name)
    assert rows_of(load(spark, log_name)) == [(number,) for number in range(10, 20)]


def test_log_that_is_deleted_and_made_again_by_others_under_a_query_stops_it(
    numbers: Numbers, log_name: str, client: BlockingClient
) -> None:
    logs = BlockingLogs(client)
    numbers.add(10)
    query = numbers.start(log_name, forever=True)
    try:
        query.processAllAvailable()
        logs.delete(log_name)
        logs.create(log_name)
        numbers.add(10)
        with pytest.raises(StreamingQueryException, match="deleted and created again"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert logs.open(log_name).state().head.end_offset == 0


def test_log_that_was_deleted_is_made_again_by_another_query(
    spark: SparkSession, numbers: Numbers, log_name: str, client: BlockingClient, tmp_path: Path
) -> None:
    numbers.add(10)
    numbers.copy_to(log_name)
    BlockingLogs(client).delete(log_name)
    (tmp_path / "others").mkdir()
    others = Numbers(spark, tmp_path / "others")
    others.add(5)
    others.copy_to(log_name)
    assert rows_of(load(spark, log_name)) == [(number,) for number in range(5)]


def test_log_is_copied_to_a_log(
    spark: SparkSession, log_name: str, save: Callable[..., None], tmp_path: Path
) -> None:
    copy = f"{log_name}-copy"
    read = spark.readStream.format("ledger").option("startingOffsets", "earliest")
    numbers = Numbers(spark, tmp_path)
    for part in range(3):
        save(spark.range(part * 5_000, (part + 1) * 5_000, 1, 2))
        frame = read.option("maxRowsPerTrigger", "2000").load(log_name)
        numbers.copy_to(copy, frame)
    rows = load(spark, copy, includeMetadata="true").orderBy("_offset").collect()
    assert [row["id"] for row in rows] == list(range(15_000))


def test_each_log_of_a_foreach_batch_is_written_once_under_an_application_id_of_its_own(
    spark: SparkSession, numbers: Numbers, log_name: str
) -> None:
    odd = f"{log_name}-odd"

    def write(frame: DataFrame, batch_id: int) -> None:
        for part, log, app in ((0, log_name, "even"), (1, odd, "odd")):
            rows = frame.where(f"value % 2 = {part}").write.format("ledger").mode("append")
            rows.options(txnAppId=f"{log_name}-{app}", txnVersion=str(batch_id)).save(log)

    def run() -> None:
        writer: Any = numbers.frame().writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(numbers.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    numbers.add(10)
    numbers.add(10)
    run()
    numbers.forget_commit(1)
    numbers.add(10)
    run()
    assert rows_of(load(spark, log_name)) == sorted(((n,) for n in range(0, 30, 2)), key=repr)
    assert rows_of(load(spark, odd)) == sorted(((n,) for n in range(1, 30, 2)), key=repr)
