"""Leader logs, read by Spark while their leader appends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.reader import BatchReader
from ledgerlog_spark.datasource.stream.admission import Limits
from ledgerlog_spark.datasource.stream.source import LedgerStream
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs
from tests.fixtures.visible import wait_until_every_bookie_knows
from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.clients import BlockingLogClient


@pytest.fixture
def leader(client: BlockingLogClient, log_name: str) -> Iterator[BlockingLeader]:
    with client.open_log(log_name, lead=True) as leading:
        yield leading


def record(number: int) -> bytes:
    return b"record %d" % number


def append(leader: BlockingLeader, first: int, end: int, *, at_once: int = 100) -> None:
    for start in range(first, end, at_once):
        leader.append_many([record(n) for n in range(start, min(end, start + at_once))])


def wait_until_visible(client: BlockingLogClient, leader: BlockingLeader) -> None:
    for last in client.open_log(leader.name).tail(leader.end_offset - 1):
        wait_until_every_bookie_knows(client, last.ledger_id, last.entry_id)
        return


def numbers_of(spark: SparkSession, log: str, **options: str) -> list[int]:
    rows = load(spark, log, includeMetadata="true", **options).orderBy("_offset").collect()
    assert [bytes(row["value"]) for row in rows] == [record(row["_offset"]) for row in rows]
    return [row["_offset"] for row in rows]


def test_records_are_one_column_of_bytes_up_to_what_is_acknowledged(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    append(leader, 0, 1_000)
    wait_until_visible(client, leader)
    frame = load(spark, log_name)
    assert frame.dtypes == [("value", "binary")]
    assert sorted(bytes(row["value"]) for row in frame.collect()) == sorted(
        map(record, range(1_000))
    )
    texts = frame.selectExpr("CAST(value AS string) AS text").where("text = 'record 7'")
    assert texts.count() == 1


def test_records_of_closed_and_open_ledgers_follow_one_another(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    for first in range(0, 3_000, 1_000):
        append(leader, first, first + 1_000)
        if first < 2_000:
            leader.roll()
    wait_until_visible(client, leader)
    assert numbers_of(spark, log_name) == list(range(3_000))
    ledgers = {row["_ledger"] for row in load(spark, log_name, includeMetadata="true").collect()}
    assert len(ledgers) == 3
    assert len(BlockingLogs(client).open(log_name).state().head.open_ledgers) >= 1


def test_metadata_columns_tell_where_and_when_each_record_was_appended(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    before = datetime.now(UTC)
    append(leader, 0, 300)
    wait_until_visible(client, leader)
    after = datetime.now(UTC)
    rows = load(spark, log_name, includeMetadata="true").orderBy("_offset").toArrow().to_pylist()
    assert {row["_log"] for row in rows} == {log_name}
    assert [row["_entry"] for row in rows] == sorted(row["_entry"] for row in rows)
    times = [row["_append_time"] for row in rows]
    assert times == sorted(times)
    assert before.replace(microsecond=0) <= times[0] <= times[-1] <= after


def test_offsets_choose_records(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    append(leader, 0, 2_000)
    leader.roll()
    append(leader, 2_000, 4_000)
    wait_until_visible(client, leader)
    found = numbers_of(spark, log_name, startingOffsets="1990", endingOffsets="2015")
    assert found == list(range(1_990, 2_015))
    split = numbers_of(
        spark, log_name, startingOffsets="500", maxBytesPerPartition="8k", minPartitions="5"
    )
    assert split == list(range(500, 4_000))


def test_of_a_large_ledger_a_scan_of_few_records_reads_few_entries(
    cluster: Cluster,
    client: BlockingLogClient,
    leader: BlockingLeader,
    log_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append(leader, 0, 40_000)
    wait_until_visible(client, leader)
    read: set[int] = set()
    begin = BlockingLog.begin_ranges

    def counted(log: BlockingLog, ranges: Sequence[tuple[int, int, int]], **others: Any) -> Any:
        read.update(entry for _, first, last in ranges for entry in range(first, last + 1))
        return begin(log, ranges, **others)

    monkeypatch.setattr(BlockingLog, "begin_ranges", counted)
    options = SourceOptions.parse(
        {"log": log_name, "startingOffsets": "30010", "endingOffsets": "30020"}
    ).for_read()
    value = {"name": "value", "type": "binary", "nullable": True, "metadata": {}}
    schema_json = json.dumps({"type": "struct", "fields": [value]})
    reader = BatchReader(cluster.metadata_service_uri, options, schema_json)
    values = [
        value
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]
    assert values == [record(n) for n in range(30_010, 30_020)]
    assert len(read) <= 20


def test_lag_of_a_stream_is_told_in_records_and_milliseconds(
    cluster: Cluster, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    append(leader, 0, 300)
    wait_until_visible(client, leader)
    options = SourceOptions.parse({"log": log_name, "startingOffsets": "earliest"}).for_stream()
    value = {"name": "value", "type": "binary", "nullable": True, "metadata": {}}
    schema_json = json.dumps({"type": "struct", "fields": [value]})
    stream = LedgerStream(client, options, schema_json)
    try:
        begun = datetime.now(UTC).timestamp() * 1000
        ends = stream.latest(stream.initial(), Limits(rows=200))
        lag = stream.report()[log_name]["lag"]
        assert lag["rows"] == 100
        assert lag["bytes"] > 0
        assert 0 < lag["ms"] < 600_000
        later = datetime.now(UTC).timestamp() * 1000
        assert stream.report()[log_name]["lag"]["ms"] >= int(later - begun)
        stream.latest(ends, None)
        assert stream.report()[log_name]["lag"] == {"rows": 0, "bytes": 0, "ms": 0}
    finally:
        stream.close()


def test_times_choose_records_by_their_append(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    append(leader, 0, 500)
    leader.roll()
    leader.append(record(500))
    wait_until_visible(client, leader)
    rows = load(spark, log_name, includeMetadata="true").toArrow().to_pylist()
    times_ms = {row["_offset"]: round(row["_append_time"].timestamp() * 1000) for row in rows}
    moment = times_ms[500]
    expected = [offset for offset, time_ms in sorted(times_ms.items()) if time_ms >= moment]
    assert numbers_of(spark, log_name, startingTimestamp=str(moment)) == expected
    older = [offset for offset, time_ms in sorted(times_ms.items()) if time_ms < moment]
    assert numbers_of(spark, log_name, endingTimestamp=str(moment)) == older
    with pytest.raises(PySparkException, match="no row of log"):
        load(spark, log_name, startingTimestamp="2999-01-01").count()


def test_a_truncated_log_begins_where_it_was_cut(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    append(leader, 0, 1_000)
    leader.roll()
    append(leader, 1_000, 2_000)
    wait_until_visible(client, leader)
    leader.truncate(1_200)
    assert numbers_of(spark, log_name) == list(range(1_200, 2_000))
    with pytest.raises(PySparkException, match="overwritten or truncated"):
        load(spark, log_name, startingOffsets="10").count()
    found = numbers_of(spark, log_name, startingOffsets="10", failOnDataLoss="false")
    assert found == list(range(1_200, 2_000))


@pytest.mark.parametrize("option", [{"versionAsOf": "0"}, {"timestampAsOf": "-1h"}], ids=str)
def test_a_version_of_a_leader_log_is_an_error(
    option: dict[str, str], spark: SparkSession, leader: BlockingLeader, log_name: str
) -> None:
    assert leader.is_leading
    with pytest.raises(PySparkException, match="is a leader log, which has no versions"):
        load(spark, log_name, **option)


def test_a_write_to_a_leader_log_is_an_error_and_changes_nothing(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    append(leader, 0, 10)
    frame = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(PySparkException, match="write to it through its leader"):
        frame.write.format("ledger").mode("append").save(log_name)
    append(leader, 10, 20)
    wait_until_visible(client, leader)
    assert numbers_of(spark, log_name) == list(range(20))


def test_an_empty_leader_log_has_its_column_and_no_rows(
    spark: SparkSession, leader: BlockingLeader, log_name: str
) -> None:
    assert leader.end_offset == 0
    frame = load(spark, log_name)
    assert (frame.columns, frame.collect()) == (["value"], [])


def test_logs_of_both_kinds_are_read_side_by_side(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    leader.append(b"from a leader")
    wait_until_visible(client, leader)
    other = f"{log_name}-committed"
    rows = spark.createDataFrame([(7, bytearray(b"from Spark"))], "id long, value binary")
    rows.write.format("ledger").mode("append").save(other)
    both = spark.read.format("ledger").option("logPattern", f"{log_name}.*").load()
    found = both.selectExpr("CAST(value AS string)", "id")
    assert rows_of(found) == [("from Spark", 7), ("from a leader", None)]
