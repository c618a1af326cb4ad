"""The effects of the JVM engine except for the same rows, and the scans that Python runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.datasource.options.sql_table import is_hidden
from ledgerlog_spark.local.cluster import local_cluster
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.fixtures.jar import built_for_another_spark
from tests.spark.conftest import ENGINE_SETTING, ENGINES
from tests.spark.frames import load, rows_of
from tests.spark.streams import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.log.clients import BlockingLogClient

    Save = Callable[..., None]

ROWS = 1_000


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def log(spark: SparkSession, save: Save, log_name: str) -> str:
    """A log of two columns and two ranges."""
    for first in (0, ROWS // 2):
        save(spark.range(first, first + ROWS // 2, 1, 1).selectExpr("id", "id % 7 AS day"))
    return log_name


def test_a_plan_shows_the_engine_and_what_it_reads(spark: SparkSession, log: str) -> None:
    plan = plan_of(load(spark, log))
    assert f"ledger {log}, JVM engine: {log} version 2, 2 ranges in 1 tasks, {ROWS} rows" in plan
    assert "ColumnarToRow" in plan


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("id double", "column 'id' is stored as int64"),
        ("id long not null", "column 'id' is not nullable"),
    ],
)
def test_a_scan_that_converts_values_runs_in_python(
    spark: SparkSession, log: str, schema: str, reason: str
) -> None:
    frame = spark.read.format("ledger").schema(schema).load(log)
    assert f"Python engine ({reason})" in plan_of(frame)
    assert frame.where("id < 5").count() == 5


def test_a_struct_that_has_grown_is_read_in_python(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(2).selectExpr("id", "struct(id AS x) AS s"))
    assert "JVM engine" in plan_of(load(spark, log_name))
    save(spark.range(2, 4).selectExpr("id", "struct(id AS x, id AS y) AS s"), mergeSchema="true")
    frame = load(spark, log_name)
    assert "Python engine (column 's' is stored as struct<x: int64>)" in plan_of(frame)
    assert "JVM engine" in plan_of(frame.select("id"))
    assert rows_of(frame.selectExpr("id", "s.y")) == [(0, None), (1, None), (2, 2), (3, 3)]


def test_a_leader_log_is_read_here_and_a_ledger_in_python(
    spark: SparkSession, client: BlockingLogClient, log_name: str
) -> None:
    with client.open_log(log_name, lead=True) as leader:
        leader.append(b"record")
    frame = load(spark, log_name)
    plan = plan_of(frame)
    assert f"ledger {log_name}, JVM engine: {log_name}, 1 ranges in 1 tasks, 1 rows" in plan
    assert bytes(frame.collect()[0][0]) == b"record"
    with client.create_ledger() as ledger:
        ledger.append(b"entry")
    raw = spark.read.format("ledger").option("ledgerId", ledger.id).load()
    assert "Python engine (the entries of one ledger)" in plan_of(raw)
    assert raw.count() == 1


def test_the_option_and_the_setting_choose_the_engine(spark: SparkSession, log: str) -> None:
    by_option = load(spark, log, engine="Python")
    assert "JVM engine" not in plan_of(by_option)
    assert by_option.count() == load(spark, log, engine="jvm").count() == ROWS
    assert "JVM engine" in plan_of(load(spark, log, engine="jvm"))
    spark.conf.set(ENGINE_SETTING, "python")
    try:
        assert "JVM engine" not in plan_of(load(spark, log))
        with pytest.raises(Exception, match="the JVM engine is not active"):
            load(spark, log, engine="jvm").collect()
    finally:
        spark.conf.unset(ENGINE_SETTING)


def test_a_count_comes_from_the_list_if_every_ledger_exists(
    spark: SparkSession, client: BlockingLogClient, log: str
) -> None:
    counted = load(spark, log).groupBy().count()
    assert "LocalTableScan" in plan_of(counted)
    assert counted.collect()[0][0] == ROWS
    part = load(spark, log, startingOffsets="10", endingOffsets="510").groupBy().count()
    assert "LocalTableScan" in plan_of(part)
    assert part.collect()[0][0] == 500
    assert load(spark, log).where("day = 3").count() == sum(n % 7 == 3 for n in range(ROWS))
    assert load(spark, log).groupBy("day").count().count() == 7
    first, _ = BlockingLogs(client).open(log).snapshot().items
    client.delete_ledger(first.ledger_id)
    assert "LocalTableScan" not in plan_of(load(spark, log).groupBy().count())


def test_a_query_leaves_nothing_behind_for_the_next_one(spark: SparkSession, log: str) -> None:
    frame = load(spark, log)
    assert frame.where("day = 3").select("id").limit(2).count() == 2
    assert frame.limit(3).count() == 3
    assert frame.count() == ROWS
    assert frame.select("day").distinct().count() == 7
    assert sorted(frame.collect()) == [(n, n % 7) for n in range(ROWS)]


def test_a_small_log_is_broadcast_without_a_hint(spark: SparkSession, log: str) -> None:
    large = spark.range(10_000_000)
    assert "BroadcastHashJoin" in plan_of(large.join(load(spark, log), "id"))
    spark.conf.set(ENGINE_SETTING, "python")
    try:
        assert "BroadcastHashJoin" not in plan_of(large.join(load(spark, log), "id"))
    finally:
        spark.conf.unset(ENGINE_SETTING)


def test_metadata_columns_are_hidden_until_a_query_selects_them(
    spark: SparkSession, log: str
) -> None:
    frame = load(spark, log)
    assert frame.columns == ["id", "day"]
    hidden = frame.select("id", "_log", "_entry", "_offset", "_append_time", "_ledger")
    assert "JVM engine" in plan_of(hidden)
    shown = load(spark, log, includeMetadata="true").select(*hidden.columns)
    spark.conf.set(ENGINE_SETTING, "python")
    try:
        same = load(spark, log, includeMetadata="true").select(*hidden.columns)
        assert rows_of(hidden) == rows_of(shown) == rows_of(same)
    finally:
        spark.conf.unset(ENGINE_SETTING)
    assert [row[3] for row in sorted(hidden.collect())] == list(range(ROWS))


def test_hidden_columns_of_a_leader_log_come_from_its_entries(
    spark: SparkSession, client: BlockingLogClient, log_name: str
) -> None:
    with client.open_log(log_name, lead=True) as leader:
        for record in (b"a", b"b"):
            leader.append(record)
    hidden = load(spark, log_name).select("_offset", "_log")
    assert "JVM engine" in plan_of(hidden)
    assert rows_of(hidden) == [(0, log_name), (1, log_name)]


@pytest.mark.skipif(not is_hidden(), reason="this Spark makes no ledger tables")
def test_a_stream_has_the_options_of_its_table_and_hidden_columns(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    table = f"streamed_{tmp_path.name.replace('-', '_')}"
    spark.sql(f"CREATE TABLE {table} USING ledger OPTIONS (log '{log}')")
    earliest = spark.readStream.option("startingOffsets", "earliest")
    frames = {
        "table": earliest.table(table),
        "columns": earliest.table(table).select("day"),
        "hidden": earliest.format("ledger").load(log).select("id", "_offset"),
    }
    found = {}
    for name, frame in frames.items():
        query = (
            frame.writeStream.format("memory")
            .queryName(f"{table}_{name}")
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found[name] = sorted(map(tuple, spark.table(f"{table}_{name}").collect()))
    assert found["table"] == [(n, n % 7) for n in range(ROWS)]
    assert found["columns"] == sorted((n % 7,) for n in range(ROWS))
    assert found["hidden"] == [(n, n) for n in range(ROWS)]


@pytest.mark.parametrize("first", ENGINES)
def test_a_checkpoint_goes_on_with_either_engine(
    spark: SparkSession, save: Save, log: str, tmp_path: Path, first: str
) -> None:
    reading = Reading(spark, tmp_path / "checkpoint", log=log, startingOffsets="earliest")
    added = range(ROWS)
    for engine in [first, *(name for name in ENGINES if name != first)] * 2:
        spark.conf.set(ENGINE_SETTING, engine)
        try:
            rows = reading.run(maxRowsPerTrigger="400")
        finally:
            spark.conf.unset(ENGINE_SETTING)
        assert sorted(rows) == [(n, n % 7) for n in added]
        added = range(added.stop, added.stop + 3)
        save(spark.range(added.start, added.stop).selectExpr("id", "id % 7 AS day"))


def test_the_progress_of_a_stream_shows_the_engine_and_its_lag(
    spark: SparkSession, client: BlockingLogClient, log: str, log_name: str, tmp_path: Path
) -> None:
    reading = Reading(spark, tmp_path / "columns", log=log, startingOffsets="earliest")
    reading.run(maxRowsPerTrigger="600")
    assert reading.last is not None
    first, last = (p for p in reading.last.recentProgress if p.numInputRows)
    assert first.numInputRows == 600
    assert first.sources[0].description == f"ledger {log}, JVM engine"
    assert first.sources[0].metrics["lagRows"] == "400"
    assert int(first.sources[0].metrics["lagBytes"]) > 0
    assert int(first.sources[0].metrics["lagMs"]) > 0
    assert last.sources[0].metrics == {"lagRows": "0", "lagBytes": "0", "lagMs": "0"}
    led = f"{log_name}-led"
    with client.open_log(led, lead=True) as leader:
        leader.append(b"record")
    reading = Reading(spark, tmp_path / "records", log=led, startingOffsets="earliest")
    assert [bytes(value) for (value,) in reading.run()] == [b"record"]
    assert reading.last is not None
    descriptions = {p.sources[0].description for p in reading.last.recentProgress if p.numInputRows}
    assert descriptions == {f"ledger {led}, JVM engine"}


def test_a_jar_for_another_spark_leaves_the_format_to_python(
    spark: SparkSession, jar: Path, tmp_path: Path
) -> None:
    java = spark._jvm.java
    gateway = spark.sparkContext._gateway
    urls = gateway.new_array(java.net.URL, 1)
    no_types, no_values = (
        gateway.new_array(java.lang.Class, 0),
        gateway.new_array(java.lang.Object, 0),
    )
    found = []
    for path in (jar, built_for_another_spark(jar, tmp_path)):
        urls[0] = java.net.URI(path.as_uri()).toURL()
        loader = java.net.URLClassLoader(urls, java.lang.ClassLoader.getSystemClassLoader())
        register = loader.loadClass("org.apache.spark.sql.sources.DataSourceRegister")
        sources = java.util.ServiceLoader.load(register, loader).iterator()
        while sources.hasNext():
            source = sources.next()
            if source.getClass().getName() == "io.ledgerlog.spark.LedgerSource":
                # The gateway keeps the methods of a class by its name, but these are two classes.
                method = source.getClass().getMethod("shortName", no_types)
                found.append(method.invoke(source, no_values))
        loader.close()
    assert found == ["ledger", "ledger-shim-inactive"]


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose bookies a test may kill and damage."""
    with local_cluster(bookies=3, directory=tmp_path_factory.mktemp("own")) as running:
        yield running


def damage(cluster: Cluster, bookie: str, payload: bytes) -> int:
    """Flip a byte of each copy of a payload in a bookie's files; return the number of copies."""
    copies = 0
    for path in (cluster.directory / bookie).rglob("*"):
        if not path.is_file():
            continue
        content = bytearray(path.read_bytes())
        place = content.find(payload)
        while place >= 0:
            copies += 1
            content[place] ^= 0x10
            with path.open("r+b") as file:
                file.seek(place)
                file.write(content[place : place + 1])
            place = content.find(payload, place)
    return copies


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bookie_that_is_killed_in_the_middle_of_a_scan_costs_no_row(
    spark: SparkSession, own_cluster: Cluster, log_name: str, engine: str
) -> None:
    uri = own_cluster.metadata_service_uri
    options = {"metadataServiceUri": uri, "targetEntryBytes": "4096", "compression": "none"}
    rows = spark.range(0, 60_000, 1, 1)
    rows.write.format("ledger").mode("append").options(**options).save(log_name)
    frame = load(
        spark, log_name, metadataServiceUri=uri, engine=engine, maxRecordsPerPartition="10000"
    )
    # The partitions are read one after the other.
    found = frame.toLocalIterator()
    seen = [next(found)[0]]
    own_cluster.kill("bookie-0")
    seen += [row[0] for row in found]
    own_cluster.start("bookie-0")
    assert sorted(seen) == list(range(60_000))


def test_damage_and_a_killed_bookie_have_the_same_outcome_in_both_engines(
    spark: SparkSession, own_cluster: Cluster, log_name: str
) -> None:
    uri = own_cluster.metadata_service_uri
    marker = "a text that is easy to find on a disk"
    rows = spark.range(0, 60_000, 1, 1).selectExpr("id", f"concat('{marker} ', id) AS text")
    options = {"metadataServiceUri": uri, "compression": "none", "targetEntryBytes": "65536"}
    rows.write.format("ledger").mode("append").options(**options).save(log_name)

    def outcome() -> list[object]:
        found: list[object] = []
        for engine in ENGINES:
            frame = load(spark, log_name, metadataServiceUri=uri, engine=engine)
            try:
                found.append(frame.selectExpr("count(id)", "sum(id)", "sum(hash(text))").collect())
            except Exception as error:  # noqa: BLE001 - outcomes of any kind are compared
                kinds = ("EntryUnknownError: ", "DigestMismatchError: ", "DataLossError: ")
                found.append([kind[:-2] for kind in kinds if kind in str(error)])
        return found

    def damaged(*bookies: str) -> list[int]:
        # A running bookie answers from memory.
        for bookie in bookies:
            own_cluster.kill(bookie)
        copies = [damage(own_cluster, bookie, f"{marker} 30000".encode()) for bookie in bookies]
        for bookie in bookies:
            own_cluster.start(bookie)
        return copies

    whole, jvm = outcome()
    assert jvm == whole
    names = [name for name in own_cluster.members.by_id if name.startswith("bookie")]
    first, second, third = names
    assert damaged(first) == [1]
    assert outcome() == [whole, whole]
    own_cluster.kill(second)
    assert outcome() == [whole, whole]
    # The first bookie repairs the copy that a read found damaged, at any time while another bookie
    # has a sound copy. Now none has one.
    assert damaged(first, third)[1] == 1
    python, jvm = outcome()
    assert python == jvm
    assert python in (["EntryUnknownError"], ["DigestMismatchError"])
