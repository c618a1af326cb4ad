"""Logs as tables of the catalog `ledger`: statements, time travel, streams, metadata tables."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs
from tests.spark.conftest import ENGINE_SETTING
from tests.spark.frames import rows_of
from tests.spark.test_jvm_engine import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient


@pytest.fixture
def sql(spark: SparkSession, t: str) -> Callable[[str], list[Any]]:
    """Run SQL, in which `{t}` is the test's table, and return its rows, sorted."""
    return lambda text: rows_of(spark.sql(text.format(t=t)))


@pytest.fixture
def log(client: BlockingClient, name: str) -> Callable[[], BlockingLog]:
    return lambda: BlockingLogs(client).open(name)


def test_a_table_is_created_described_written_and_dropped(
    spark: SparkSession, t: str, name: str, sql: Any, log: Callable[[], BlockingLog], client: Any
) -> None:
    sql(
        "CREATE TABLE {t} (k BIGINT COMMENT 'the key', v VARCHAR(5), d INT DEFAULT 41 + 1) "
        "USING ledger COMMENT 'all flights' TBLPROPERTIES ('retentionMs' = '864000000')"
    )
    assert log().state().head.version == 1
    described = {row[0]: row[1:] for row in sql("DESCRIBE EXTENDED {t}")}
    assert described["k"] == ("bigint", "the key")
    assert described["v"] == ("varchar(5)", None)
    assert described["Comment"][0] == "all flights"
    assert described["Provider"][0] == "ledger"
    assert sql("SHOW TBLPROPERTIES {t}") == [("retentionMs", "864000000")]
    (statement,) = sql("SHOW CREATE TABLE {t}")
    sql("INSERT INTO {t} VALUES (1, 'ab', DEFAULT), (2, 'c', 5)")
    sql("INSERT INTO {t} (v, k) VALUES ('d', 3)")
    sql("INSERT INTO {t} BY NAME SELECT 'e' AS v, 4L AS k")
    assert sql("SELECT * FROM {t}") == [(1, "ab", 42), (2, "c", 5), (3, "d", 42), (4, "e", 42)]
    assert "JVM engine" in plan_of(spark.table(t))
    with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
        sql("INSERT INTO {t} VALUES (5, 'too long', 1)")
    assert sql("SELECT count(*) FROM {t}") == [(4,)]
    (item, *_) = log().snapshot().items
    sql("DROP TABLE {t}")
    assert name not in BlockingLogs(client).names()
    assert client.ledger_metadata(item.ledger_id).is_closed, "ledgers stay for some time"
    sql("DROP TABLE IF EXISTS {t}")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("DROP TABLE {t}")
    spark.sql(statement[0])
    assert sql("SHOW CREATE TABLE {t}") == [statement]
    sql("CREATE TABLE IF NOT EXISTS {t} (other INT)")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        sql("CREATE TABLE {t} (other INT)")
    assert spark.table(t).columns == ["k", "v", "d"]


def test_names_before_the_last_dot_are_namespaces(spark: SparkSession, name: str, sql: Any) -> None:
    inner = f"ledger.{name}.eu.orders"
    spark.sql(f"CREATE TABLE {inner} AS SELECT 1 AS k")
    spark.sql(f"CREATE TABLE ledger.{name}.total AS SELECT 2 AS k")
    assert (name,) in sql("SHOW NAMESPACES IN ledger")
    assert sql(f"SHOW NAMESPACES IN ledger.{name}") == [(f"{name}.eu",)]
    assert [row[1] for row in sql(f"SHOW TABLES IN ledger.{name}")] == ["total"]
    assert [row[1] for row in sql(f"SHOW TABLES IN ledger.{name}.eu LIKE 'ord*'")] == ["orders"]
    assert rows_of(spark.read.format("ledger").load(f"{name}.eu.orders")) == [(1,)]
    with pytest.raises(Exception, match="SCHEMA_NOT_FOUND"):
        sql(f"SHOW TABLES IN ledger.{name}.us")
    try:
        spark.sql(f"USE ledger.{name}.eu")
        assert rows_of(spark.table("orders")) == [(1,)]
    finally:
        spark.sql("USE spark_catalog.default")
    spark.sql(f"DROP TABLE {inner}")
    assert sql(f"SHOW NAMESPACES IN ledger.{name}") == []


def test_a_table_is_overwritten_truncated_and_emptied(
    sql: Any, spark: SparkSession, t: str
) -> None:
    sql("CREATE TABLE {t} AS SELECT id AS k FROM range(3)")
    sql("INSERT OVERWRITE {t} SELECT k + 1 FROM {t}")
    assert sql("SELECT * FROM {t}") == [(1,), (2,), (3,)]
    sql("TRUNCATE TABLE {t}")
    assert sql("SELECT * FROM {t}") == []
    spark.range(2).toDF("k").writeTo(t).append()
    spark.range(5, 6).toDF("k").write.insertInto(t)
    assert sql("SELECT * FROM {t}") == [(0,), (1,), (5,)]
    sql("DELETE FROM {t}")
    assert sql("SELECT * FROM {t}") == []
    spark.range(7, 8).toDF("k").write.format("ledger").mode("append").saveAsTable(t)
    spark.range(8, 9).toDF("k").write.insertInto(t, overwrite=True)
    assert sql("SELECT * FROM {t}") == [(8,)]


def test_a_table_is_made_from_a_query_and_replaced_by_one(
    sql: Any, spark: SparkSession, t: str, log: Callable[[], BlockingLog]
) -> None:
    sql("CREATE TABLE {t} COMMENT 'one' TBLPROPERTIES ('retentionMs' = '864000000') "
        "AS SELECT id AS k FROM range(3)")  # fmt: skip
    log_id = log().log_id
    sql("CREATE OR REPLACE TABLE {t} AS SELECT k + 1 AS j, 'x' AS s FROM {t}")
    assert sql("SELECT * FROM {t}") == [(1, "x"), (2, "x"), (3, "x")]
    assert (log().log_id, log().state().head.version) == (log_id, 2)
    assert sql("SELECT * FROM {t} VERSION AS OF 1") == [(0,), (1,), (2,)]
    assert sql("SHOW TBLPROPERTIES {t}") == [("retentionMs", "864000000")]
    sql("REPLACE TABLE {t} (z STRING)")
    assert (spark.table(t).columns, sql("SELECT * FROM {t}")) == (["z"], [])
    spark.range(2).writeTo(t).createOrReplace()
    assert sql("SELECT * FROM {t}") == [(0,), (1,)]
    spark.range(3).write.format("ledger").mode("overwrite").saveAsTable(t)
    assert sql("SELECT count(*) FROM {t}") == [(3,)]


def test_columns_are_added_with_and_without_rows(sql: Any, spark: SparkSession, t: str) -> None:
    sql("CREATE TABLE {t} AS SELECT 1L AS k, named_struct('x', 1) AS s")
    sql("ALTER TABLE {t} ADD COLUMNS (z STRING COMMENT 'new', s.y INT)")
    assert sql("SELECT k, s.x, s.y, z FROM {t}") == [(1, 1, None, None)]
    assert sql("SELECT * FROM {t} VERSION AS OF 1") == [(1, (1,))]
    assert spark.table(t).schema["z"].metadata == {"comment": "new"}
    sql("INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT 2L AS k, 'w' AS more")
    assert sql("SELECT k, more FROM {t}") == [(1, None), (2, "w")]


def test_properties_and_the_comment_are_changed(sql: Any) -> None:
    sql("CREATE TABLE {t} (k INT)")
    sql("ALTER TABLE {t} SET TBLPROPERTIES ('retentionMs' = '864000000', 'rollBytes' = '1000000')")
    sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('rollBytes')")
    assert sql("SHOW TBLPROPERTIES {t}") == [("retentionMs", "864000000")]
    sql("COMMENT ON TABLE {t} IS 'all flights'")
    assert ("Comment", "all flights", "") in sql("DESCRIBE EXTENDED {t}")


def test_a_table_is_read_at_a_version_and_at_a_time(
    sql: Any, spark: SparkSession, t: str, log: Callable[[], BlockingLog]
) -> None:
    sql("CREATE TABLE {t} AS SELECT 1 AS k")
    sql("INSERT INTO {t} VALUES (2)")
    sql("ALTER TABLE {t} ADD COLUMN z INT")
    moment = datetime.fromtimestamp(log().history()[2].commit_time_ms / 1_000).astimezone()
    assert sql("SELECT * FROM {t} VERSION AS OF 1") == [(1,)]
    assert sql(f"SELECT * FROM {{t}} TIMESTAMP AS OF '{moment}'") == [(1,), (2,)]
    assert rows_of(spark.read.option("versionAsOf", 1).table(t)) == [(1,)]
    joined = "SELECT n.k, n.z, o.k FROM {t} n LEFT JOIN {t} VERSION AS OF 1 o USING (k)"
    assert sql(joined.replace("o.k", "o.k + 10")) == [(1, None, 11), (2, None, None)]
    assert sql("SELECT count(*) FROM {t} VERSION AS OF 0") == [(0,)]
    with pytest.raises(Exception, match="version 9") as caught:
        sql("SELECT * FROM {t} VERSION AS OF 9")
    assert "Traceback" not in str(caught.value)
    assert sql("SELECT * FROM {t} WITH (endingOffsets = '1')") == [(1, None)]


def test_a_frame_sees_the_newest_version_and_a_statement_only_one(
    sql: Any, spark: SparkSession, t: str
) -> None:
    sql("CREATE TABLE {t} AS SELECT 1 AS k")
    frame = spark.table(t)
    twice = frame.unionAll(spark.table(t))
    sql("INSERT INTO {t} VALUES (2)")
    assert frame.where("k > 0").count() == 2
    assert twice.count() == 4
    frame.cache()
    assert frame.count() == 2
    sql("INSERT INTO {t} VALUES (3)")
    assert spark.table(t).count() == 3
    frame.unpersist()


def test_metadata_tables_show_versions_ranges_and_ledgers(
    sql: Any, spark: SparkSession, t: str, log: Callable[[], BlockingLog]
) -> None:
    sql("CREATE TABLE {t} AS SELECT id AS k FROM range(0, 5, 1, 1)")
    sql("INSERT INTO {t} VALUES (9)")
    history = sql("SELECT version, operation, rows FROM {t}.history WHERE version > 0")
    assert history == [(1, "APPEND", 5), (2, "APPEND", 6)]
    (committed,) = sql("SELECT unix_millis(committed) FROM {t}.history WHERE version = 2")
    assert committed == (log().history()[2].commit_time_ms,)
    first, second = log().snapshot().items
    ranges = sql("SELECT ledger_id, first_offset, end_offset FROM {t}.ranges")
    assert ranges == sorted([(first.ledger_id, 0, 5), (second.ledger_id, 5, 6)], key=repr)
    ledgers = sql("SELECT ledger_id, state, size(bookies), array_sort(bookies) FROM {t}.ledgers")
    assert [row[:3] for row in ledgers] == sorted(
        [(each.ledger_id, "CLOSED", 3) for each in (first, second)], key=repr
    )
    assert [row[1] for row in sql("SHOW TABLES IN ledger") if row[1] == "history"] == []
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM {t}.other")
    assert spark.table(f"{t}.history").columns[0] == "version"


def test_streams_read_and_write_tables(
    sql: Any, spark: SparkSession, t: str, tmp_path: Path
) -> None:
    sql("CREATE TABLE {t} AS SELECT id AS k FROM range(4)")
    for round_, rows in enumerate(([(0,), (1,), (2,), (3,)], [(0,), (1,), (2,), (3,), (7,)])):
        query = (
            spark.readStream.option("startingOffsets", "earliest")
            .table(t)
            .writeStream.format("ledger")
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .toTable(f"{t}_copy")
        )
        query.awaitTermination()
        assert rows_of(spark.table(f"{t}_copy")) == rows
        if not round_:
            sql("INSERT INTO {t} VALUES (7)")


def test_the_engine_of_a_scan_is_chosen_as_for_the_format(
    sql: Any, spark: SparkSession, t: str
) -> None:
    sql("CREATE TABLE {t} AS SELECT id AS k FROM range(4)")
    sql("INSERT INTO {t} VALUES (7)")
    by_option = spark.read.option("engine", "python").table(t)
    assert "Python engine (as chosen)" in plan_of(by_option)
    assert sql("SELECT count(k) FROM {t} WITH (engine = 'python')") == [(5,)]
    spark.conf.set(ENGINE_SETTING, "python")
    try:
        assert "Python engine (as chosen)" in plan_of(spark.table(t))
        assert rows_of(spark.read.option("versionAsOf", 1).table(t)) == [(n,) for n in range(4)]
    finally:
        spark.conf.unset(ENGINE_SETTING)


def test_a_leader_log_is_a_table_to_read(
    sql: Any, client: Any, spark: SparkSession, t: str, name: str
) -> None:
    with client.open_log(name, lead=True) as leader:
        leader.append(b"record")
    assert [bytes(row[0]) for row in sql("SELECT value FROM {t}")] == [b"record"]
    assert len(sql("SELECT * FROM {t}.ranges")) == 1
    for statement in ("INSERT INTO {t} VALUES (X'00')", "CREATE OR REPLACE TABLE {t} AS SELECT 1"):
        with pytest.raises(Exception, match=r"append in batch mode|is a leader log"):
            sql(statement)
    assert spark.table(t).count() == 1


@pytest.fixture
def other(spark: SparkSession, cluster: Any) -> Iterator[str]:
    """A catalog with another name and other settings."""
    spark.conf.set("spark.sql.catalog.logs2", "io.ledgerlog.spark.LedgerCatalog")
    key = "spark.sql.catalog.logs2.metadataServiceUri"
    spark.conf.set(key, cluster.metadata_service_uri)
    yield "logs2"
    spark.conf.unset(key)
    spark.conf.unset("spark.sql.catalog.logs2")


def test_a_catalog_has_its_own_name_and_cluster(
    sql: Any, spark: SparkSession, other: str, name: str
) -> None:
    sql(f"CREATE TABLE {other}.{name} AS SELECT 1 AS k")
    sql(f"INSERT INTO {other}.{name} VALUES (2)")
    assert sql("SELECT * FROM {t}") == [(1,), (2,)]
    sql(f"INSERT OVERWRITE {other}.{name} SELECT k + 1 FROM {{t}}")
    assert rows_of(spark.table(f"{other}.{name}")) == [(2,), (3,)]


def test_a_wrong_setting_of_a_catalog_is_an_error(spark: SparkSession) -> None:
    for key, value in (("", "io.ledgerlog.spark.LedgerCatalog"), (".uri", "zk://host:1/x")):
        spark.conf.set(f"spark.sql.catalog.wrong{key}", value)
    with pytest.raises(Exception, match=r"spark\.sql\.catalog\.wrong\.uri is not a setting"):
        spark.sql("SHOW TABLES IN wrong")
    for key in ("", ".uri"):
        spark.conf.unset(f"spark.sql.catalog.wrong{key}")
