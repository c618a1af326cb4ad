"""The state after writes to tables of the catalog that fail, conflict or are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import make_active, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

ROUNDS = 4
FAILS = "CAST(raise_error('by design') AS BIGINT)"


@pytest.fixture
def state(client: BlockingClient) -> Callable[[str], Any]:
    """The id, the version and the properties of a log; None without the log."""

    def state_of(name: str) -> Any:
        logs = BlockingLogs(client)
        if name not in logs.names():
            return None
        head = logs.open(name).state().head
        return head.log_id, head.version, dict(head.properties)

    return state_of


def test_a_table_whose_query_fails_is_not_created_and_not_replaced(
    spark: SparkSession, t: str, name: str, state: Any
) -> None:
    for statement in ("CREATE", "CREATE OR REPLACE"):
        with pytest.raises(Exception, match="by design"):
            spark.sql(f"{statement} TABLE {t} AS SELECT {FAILS} AS k")
        assert state(name) is None
    spark.sql(f"CREATE TABLE {t} AS SELECT id AS k FROM range(3)")
    before = state(name)
    for statement in (
        f"CREATE OR REPLACE TABLE {t} AS SELECT {FAILS} AS other",
        f"INSERT OVERWRITE {t} SELECT {FAILS} FROM range(2)",
        f"INSERT INTO {t} SELECT {FAILS} FROM range(2)",
    ):
        with pytest.raises(Exception, match="by design"):
            spark.sql(statement)
    assert state(name) == before
    assert rows_of(spark.table(t)) == [(0,), (1,), (2,)]


def parallel(spark: SparkSession, statement: str, times: int) -> list[str]:
    """Run a statement in several threads, and return the texts of the errors ("" without one)."""

    def run(_: int) -> str:
        make_active(spark)
        try:
            spark.sql(statement)
        except Exception as error:  # noqa: BLE001 (the caller compares its text)
            return str(error)
        return ""

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(run, range(times)))


def test_of_tables_that_are_created_at_once_one_is_created(
    spark: SparkSession, t: str, name: str, state: Any
) -> None:
    ends = parallel(spark, f"CREATE TABLE {t} AS SELECT id AS k FROM range(3)", 3)
    assert ends.count("") == 1
    for end in filter(None, ends):
        assert "LogExistsError" in end or "ALREADY_EXISTS" in end
    assert state(name)[1] == 1
    assert spark.table(t).count() == 3


@pytest.mark.parametrize(
    "statement",
    ["INSERT OVERWRITE {t} SELECT k + 1 FROM {t}",
     "CREATE OR REPLACE TABLE {t} AS SELECT k + 1 AS k FROM {t}"],
)  # fmt: skip
def test_three_threads_that_add_one_to_what_they_read_lose_no_update(
    spark: SparkSession, t: str, statement: str
) -> None:
    spark.sql(f"CREATE TABLE {t} AS SELECT 0L AS k")
    oks = 0
    for _ in range(ROUNDS):
        ends = parallel(spark, statement.format(t=t), 3)
        oks += ends.count("")
        assert all("ConcurrentCommitError" in end for end in ends if end)
    assert oks >= ROUNDS
    assert rows_of(spark.table(t)) == [(oks,)]


def test_rows_of_an_older_frame_do_not_overwrite_a_later_version(
    spark: SparkSession, t: str
) -> None:
    spark.sql(f"CREATE TABLE {t} AS SELECT 0L AS k")
    frame = spark.table(t).selectExpr("k + 1 AS k")
    spark.sql(f"INSERT OVERWRITE {t} VALUES (10)")
    frame.writeTo(t).overwrite(functions.lit(True))
    assert rows_of(spark.table(t)) == [(11,)]


def test_an_append_does_not_conflict_and_an_overwrite_may_replace_any_version(
    spark: SparkSession, t: str, cluster: Cluster, name: str
) -> None:
    """A commit of another job comes after Spark has loaded the table, and before it writes."""
    spark.sql(f"CREATE TABLE {t} AS SELECT 0L AS k")
    service = cluster.metadata_service_uri

    def overtaken(batches: Any) -> Any:
        from ledgerlog_spark import connect
        from ledgerlog_spark.protocol.log.state.records import WriteMode

        with connect(service) as other:
            log = other.logs.open(name)
            job = log.begin(schema=log.state().schema or b"", mode=WriteMode.OVERWRITE)
            log.commit(job, [])
        yield from batches

    rows = spark.sql("SELECT 1L AS k").coalesce(1).mapInArrow(overtaken, "k long")
    with pytest.raises(Exception, match="the write expects version 1"):
        rows.writeTo(t).overwrite(functions.lit(True))
    assert rows_of(spark.table(t)) == []
    rows.writeTo(t).append()
    rows.writeTo(t).option("overwriteIfChanged", "true").overwrite(functions.lit(True))
    assert rows_of(spark.table(t)) == [(1,)]


def test_a_write_is_idempotent_with_its_transaction(spark: SparkSession, t: str) -> None:
    spark.sql(f"CREATE TABLE {t} AS SELECT 0L AS k")
    for _ in range(2):
        spark.sql(f"INSERT INTO {t} WITH (txnAppId = 'job', txnVersion = '1') VALUES (1)")
    assert rows_of(spark.table(t)) == [(0,), (1,)]


def test_a_table_that_was_made_again_is_another_table(
    spark: SparkSession, t: str, name: str, client: BlockingClient
) -> None:
    spark.sql(f"CREATE TABLE {t} AS SELECT 0L AS k")
    frame = spark.table(t)
    BlockingLogs(client).delete(name)
    spark.sql(f"CREATE TABLE {t} AS SELECT 5L AS k")
    with pytest.raises(Exception, match=r"TABLE_ID_MISMATCH|INCOMPATIBLE_TABLE_CHANGE"):
        frame.where("k >= 0").collect()


REFUSED = (
    ("CREATE TABLE {n} (k INT) PARTITIONED BY (k)", "leave PARTITIONED BY"),
    ("CREATE TABLE {n} (k INT) CLUSTER BY (k)", "leave PARTITIONED BY, CLUSTER BY"),
    ("CREATE TABLE {n} (k INT) CLUSTERED BY (k) INTO 4 BUCKETS", "leave PARTITIONED BY"),
    ("CREATE TABLE {n} (k INT) USING parquet", "the provider 'parquet'"),
    ("CREATE TABLE {n} (k INT) LOCATION '/x'", "no LOCATION"),
    ("CREATE TABLE {n} (k INT) OPTIONS (log 'other')", "leave the option log out"),
    ("CREATE TABLE {n} (k INT NOT NULL)", "is NOT NULL"),
    ("CREATE TABLE {n} (k INT) TBLPROPERTIES ('colour' = 'red')", "no property 'colour'"),
    ("CREATE TABLE {n} (k INTERVAL YEAR TO MONTH)", "type interval year to month"),
    ("CREATE TABLE {n} PARTITIONED BY (k) AS SELECT 1 AS k", "leave PARTITIONED BY"),
    ("CREATE TABLE {n} USING parquet AS SELECT 1 AS k", "the provider 'parquet'"),
    ("CREATE TABLE {n} TBLPROPERTIES ('rollBytes' = '9') AS SELECT 1 AS k", "cannot set the"),
    ("CREATE TABLE {t}.history AS SELECT 1 AS k", "ALREADY_EXISTS"),
    ("CREATE TABLE {n} LIKE {t}", ""),
    ("CREATE VIEW {n} AS SELECT 1 AS k", "MISSING_CATALOG_ABILITY"),
    ("CREATE OR REPLACE TABLE {t} PARTITIONED BY (k) AS SELECT 1 AS k", "leave PARTITIONED BY"),
    (
        "CREATE OR REPLACE TABLE {t} TBLPROPERTIES ('retentionMs' = '9') AS SELECT 1 AS k",
        '"retentionMs" is 9',
    ),
    ("REPLACE TABLE {n} AS SELECT 1 AS k", "TABLE_OR_VIEW_NOT_FOUND"),
    ("ALTER TABLE {t} RENAME TO {n}", "keeps its name"),
    ("ALTER TABLE {t} RENAME COLUMN k TO j", "another name of a column"),
    ("ALTER TABLE {t} DROP COLUMN k", "fewer columns"),
    ("ALTER TABLE {t} ALTER COLUMN k COMMENT 'x'", "another definition of a column"),
    ("ALTER TABLE {t} ALTER COLUMN k TYPE STRING", ""),
    ("ALTER TABLE {t} ADD COLUMN z INT FIRST", "FIRST"),
    ("ALTER TABLE {t} ADD COLUMN z INT NOT NULL", "NOT NULL"),
    ("ALTER TABLE {t} ADD COLUMN z INT DEFAULT 7", "has the default 7"),
    ("ALTER TABLE {t} SET TBLPROPERTIES ('colour' = 'red')", "no property 'colour'"),
    (
        "ALTER TABLE {t} SET TBLPROPERTIES ('retentionMs' = '9', 'retentionBytes' = 'x')",
        "whole number",
    ),
    ("ALTER TABLE {t} SET LOCATION '/x'", ""),
    ("ALTER TABLE {t} CLUSTER BY (k)", ""),
    ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (k > 0)", ""),
    ("DELETE FROM {t} WHERE k = 1", ""),
    ("UPDATE {t} SET k = 1", ""),
    ("MERGE INTO {t} USING (SELECT 1 AS k) s ON {t}.k = s.k WHEN MATCHED THEN DELETE", ""),
    ("DROP TABLE {t}.history", "cannot be dropped"),
    ("DROP TABLE {t} PURGE", ""),
    ("CREATE NAMESPACE ledger.made", "cannot be created"),
    ("DROP NAMESPACE ledger.made", "SCHEMA_NOT_FOUND"),
    ("INSERT INTO {t} VALUES ('abc')", "CAST_INVALID_INPUT|CANNOT_SAFELY_CAST"),
    ("INSERT INTO {t} VALUES (1, 2)", "TOO_MANY_DATA_COLUMNS|ARITY"),
    ("INSERT INTO {t} BY NAME SELECT 1 AS j", "CANNOT_FIND_DATA|EXTRA_COLUMNS"),
    ("INSERT INTO {t} REPLACE WHERE k = 1 SELECT 1L AS k", ""),
    ("INSERT INTO {t} WITH (log = 'other') VALUES (1)", '"log" is not an option of a table'),
    ("INSERT INTO {t} WITH (path = 'other') VALUES (1)", '"path" is not an option of a table'),
    ("INSERT INTO {t} WITH (expectedVersion = '1') VALUES (1)", "the catalog sets this option"),
    ("INSERT INTO {t} WITH (colour = 'red') VALUES (1)", "unknown option"),
    ("SELECT * FROM {t} WITH (logs = 'a,b')", '"logs" is not an option of a table'),
    ("SELECT * FROM {t}.ranges VERSION AS OF 1", "newest version only"),
)


def test_a_refused_statement_changes_nothing(
    spark: SparkSession, t: str, client: BlockingClient, state: Any
) -> None:
    spark.sql(f"CREATE TABLE {t} AS SELECT 1L AS k")
    names = BlockingLogs(client).names()
    before = {each: state(each) for each in names}
    wrong = []
    for statement, expected in REFUSED:
        with pytest.raises(Exception, match=expected or None) as caught:
            spark.sql(statement.format(t=t, n=f"{t}_new")).collect()
        if "ledgerlog_spark" in str(caught.value) and "Traceback" in str(caught.value):
            wrong.append(statement)
        assert {each: state(each) for each in BlockingLogs(client).names()} == before, statement
    assert {statement.split()[0] for statement in wrong} <= {"CREATE", "INSERT"}


def test_a_refused_frame_changes_nothing(
    spark: SparkSession, t: str, client: BlockingClient, state: Any, name: str
) -> None:
    spark.sql(f"CREATE TABLE {t} AS SELECT 1L AS k")
    before = state(name)
    rows = spark.range(3).toDF("k")
    writes: tuple[Callable[[], object], ...] = (
        lambda: rows.write.saveAsTable(f"{t}_new"),
        lambda: rows.writeTo(f"{t}_new").partitionedBy(functions.col("k")).create(),
        lambda: rows.writeTo(t).option("log", "other").append(),
        lambda: rows.writeTo(t).option("metadataServiceUri", "zk://other:1/x").append(),
        lambda: rows.writeTo(t).overwritePartitions(),
        lambda: rows.writeTo(t).overwrite(functions.col("k") == 1),
        lambda: rows.writeTo(t).create(),
        lambda: rows.write.format("ledger").saveAsTable(t),
    )
    for write in writes:
        with pytest.raises(Exception, match=r"\w"):
            write()
    assert state(name) == before
    assert f"{name}_new" not in BlockingLogs(client).names()
