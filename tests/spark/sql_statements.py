"""The SQL statements of Spark for tables of `format("ledger")`. `test_sql_statements` runs them.

Names in braces: `t` and `u` are tables over the logs (or Parquet directories) `a` and `b`, `v` and
`w` are temporary views over `a` and `b`; `n` is a new table, `x` a new log; `p` is a Parquet
directory that was written from `t`. `df` has one row, (3, 'z').
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS_A = ((1, "x"), (2, "y"))
ROWS_B = ((1, "other"), (5, "more"))

DEFAULT = ((False, True),)
BOTH = ((False, True), (True, False))
"""`spark.sql.caseSensitive` and `spark.sql.ansi.enabled`: each on and off."""
CASE = ((False, True), (True, True))
"""For a statement whose effect depends on `spark.sql.caseSensitive`."""
ANSI = ((False, True), (False, False))
"""For a statement whose effect depends on `spark.sql.ansi.enabled`."""


@dataclass(frozen=True)
class Statement:
    """One or several statements, separated by `; `: SQL, or Python if it begins in lower case.

    Attributes:
        group: The group in the table of the documentation.
        text: The statements for both formats.
        parquet: The statements for Parquet, if they differ.
        instead: The alternative in the documentation if `text` is refused. It has the effect that
            `text` has for Parquet, or that of `leaves`.
        leaves: A place, and the rows that `instead` leaves there. It is set if Parquet refuses
            `text` too, or has a different effect.
        note: A note if Spark decides without the source: nothing is written, and the effect is
            neither Parquet's nor a refusal.
        settings: `text` runs with each of these settings.
        catalog: The statements for the catalog, if they differ from `text` without its options.
        differs: The effect of `text` in the catalog, if Parquet has a different effect.
    """

    group: str
    text: str
    parquet: str = ""
    instead: str = ""
    leaves: tuple[str, tuple[tuple[object, ...], ...]] | None = None
    note: str = ""
    settings: tuple[tuple[bool, bool], ...] = DEFAULT
    catalog: str = ""
    differs: str = ""

    @property
    def text_in_catalog(self) -> str:
        """`text` with tables of the catalog, which need no option that names their log."""
        if self.catalog:
            return self.catalog
        text = self.text
        for options in (" OPTIONS ({o} '{x}')", " OPTIONS ({o} '{a}')", '.option("{o}", "{x}")'):
            text = text.replace(options, "")
        return text


ALL = (*ROWS_A, (3, "z"))
APPEND = 'write.format("ledger").mode("append").save("{a}")'
OVERWRITE = 'write.format("ledger").mode("overwrite").save("{a}")'
NEW = 'write.format("ledger").mode("append").save("{x}")'
REPLACE_NEW = 'write.format("ledger").mode("overwrite").save("{x}")'
DEFINE = "CREATE TABLE {n} USING ledger OPTIONS (log '{x}')"
NOT_KEPT = "no effect: a table keeps the log of its CREATE TABLE"

READS = (
    Statement("read", "SELECT * FROM {t}", settings=BOTH),
    Statement("read", "SELECT K, S FROM {t} WHERE K > 1", settings=CASE),
    Statement("read", "SELECT CAST(s AS INT) FROM {t}", settings=ANSI),
    Statement("read", "SELECT k + 9223372036854775807 FROM {t}", settings=ANSI),
    Statement("read", "SELECT {u}.s, count(*) FROM {t} JOIN {u} USING (k) GROUP BY ALL"),
    Statement("read", 'spark.read.table("{t}").where("k = 2").select("s")'),
    Statement("read", "CACHE TABLE {t}; SELECT * FROM {t}; UNCACHE TABLE {t}"),
    Statement("read", "SELECT * FROM {t} VERSION AS OF 1", leaves=("answer", ROWS_A)),
    Statement("read", "SELECT * FROM {v}", settings=BOTH),
    Statement("read", 'spark.table("{t}").write.parquet("{out}"); SELECT * FROM parquet.`{out}`'),
    Statement("read", "CREATE TABLE {n} USING parquet AS SELECT * FROM {t}"),
    Statement("view", "CREATE VIEW {n} AS SELECT * FROM {t}"),
    Statement("view", "CREATE TEMPORARY VIEW {n} AS SELECT k AS kk FROM {t}"),
    Statement("view", "CREATE GLOBAL TEMPORARY VIEW {n} AS SELECT * FROM {t}; "
              "SELECT * FROM global_temp.{n}; DROP VIEW global_temp.{n}"),
    Statement("view", "CREATE TEMPORARY VIEW {n} USING {f} OPTIONS (path '{a}')"),
    Statement("view", "CREATE VIEW {n} AS SELECT * FROM {t}; INSERT INTO {n} VALUES (3, 'z')"),
)  # fmt: skip

INSERTS = (
    Statement("insert", "INSERT INTO {t} VALUES (3, 'z')", settings=BOTH,
              instead='spark.sql("SELECT 3L AS k, \'z\' AS s").' + APPEND),
    Statement("insert", "INSERT INTO {t} SELECT * FROM {u}",
              instead='spark.table("{u}").' + APPEND),
    Statement("insert", "INSERT INTO {t} TABLE {u}",
              instead="INSERT INTO {v} TABLE {u}"),
    Statement("insert", "INSERT INTO {t} SELECT * FROM {t}",
              instead='spark.table("{t}").' + APPEND),
    Statement("insert", "INSERT INTO {t} SELECT * FROM parquet.`{p}`",
              instead='spark.read.parquet("{p}").' + APPEND),
    Statement("insert", "INSERT INTO {t} (s, k) VALUES ('z', 3)",
              instead="INSERT INTO {v} (s, k) VALUES ('z', 3)"),
    Statement("insert", "INSERT INTO {t} BY NAME SELECT 'z' AS S, 3L AS K", settings=CASE,
              instead="INSERT INTO {v} BY NAME SELECT 'z' AS s, 3L AS k"),
    Statement("insert", "INSERT OVERWRITE {t} SELECT * FROM {u} WHERE k = 1",
              instead='spark.table("{u}").where("k = 1").' + OVERWRITE),
    Statement("insert", "INSERT OVERWRITE {t} VALUES (3, 'z')",
              instead="INSERT OVERWRITE {v} VALUES (3, 'z')"),
    Statement("insert", "INSERT INTO {t} REPLACE WHERE k = 1 SELECT 1L AS k, 'z' AS s",
              instead='spark.table("{t}").where("k <> 1").unionByName(df).' + OVERWRITE,
              leaves=("a", ((2, "y"), (3, "z")))),
    Statement("insert", "INSERT OVERWRITE {t} PARTITION (s = 'x') VALUES (1)"),
    Statement("insert", "INSERT INTO {t} WITH (path = '{a}') SELECT * FROM {u}",
              parquet="INSERT INTO {t} SELECT * FROM {u}"),
    Statement("insert", "INSERT INTO {v} VALUES (3, 'z')", settings=BOTH),
    Statement("insert", "INSERT INTO {v} SELECT * FROM {u}"),
    Statement("insert", "INSERT INTO {v} SELECT * FROM {v}"),
    Statement("insert", "INSERT INTO {v} BY NAME SELECT 'z' AS S, 3L AS K", settings=CASE),
    Statement("insert", "INSERT INTO {v} (k) VALUES (3)"),
    Statement("insert", "INSERT INTO {v} VALUES (NULL, NULL)"),
    Statement("insert", "INSERT INTO {v} VALUES ('abc', 'z')", settings=BOTH),
    Statement("insert", "INSERT INTO {v} VALUES (99999999999999999999, 'z')", settings=BOTH),
    Statement("insert", "INSERT INTO {v} VALUES (3)"),
    Statement("insert", "INSERT INTO {v} SELECT 3L, 'z', 'more'"),
    Statement("insert", "INSERT OVERWRITE {v} SELECT * FROM {u} WHERE k = 1"),
)  # fmt: skip

FRAMES = (
    Statement("DataFrame", 'df.write.insertInto("{t}")', instead="df." + APPEND),
    Statement("DataFrame", 'df.write.insertInto("{t}", overwrite=True)',
              instead="df." + OVERWRITE),
    Statement("DataFrame", 'df.write.insertInto("{v}")'),
    Statement("DataFrame", 'df.writeTo("{t}").append()', instead="df." + APPEND,
              leaves=("a", ALL)),
    Statement("DataFrame", 'df.writeTo("{t}").overwrite(F.lit(True))', instead="df." + OVERWRITE,
              leaves=("a", ((3, "z"),))),
    Statement("DataFrame", 'df.writeTo("{t}").overwrite(F.col("k") == 1)',
              instead='spark.table("{t}").where("k <> 1").unionByName(df).' + OVERWRITE,
              leaves=("a", ((2, "y"), (3, "z")))),
    Statement("DataFrame", 'df.writeTo("{t}").overwritePartitions()', instead="df." + OVERWRITE,
              leaves=("a", ((3, "z"),))),
    Statement("DataFrame", 'df.writeTo("{n}").using("{f}").option("{o}", "{x}").create()',
              instead="df." + NEW + "; " + DEFINE),
    Statement("DataFrame", 'df.writeTo("{n}").using("{f}").option("{o}", "{x}")'
              ".createOrReplace()",
              instead="df." + REPLACE_NEW + "; " + DEFINE, leaves=("x", ((3, "z"),))),
    Statement("DataFrame", 'df.write.format("{f}").mode("append").saveAsTable("{t}")',
              instead="df." + APPEND),
    Statement("DataFrame", 'df.write.format("{f}").option("{o}", "{x}").saveAsTable("{n}")',
              instead="df." + NEW + "; " + DEFINE),
    Statement("DataFrame", 'df.write.format("{f}").option("{o}", "{x}").mode("overwrite")'
              '.saveAsTable("{n}")', instead="df." + REPLACE_NEW + "; " + DEFINE),
    Statement("DataFrame", 'df.write.format("{f}").bucketBy(2, "k").option("{o}", "{x}")'
              '.saveAsTable("{n}")', instead="df." + NEW + "; " + DEFINE),
    Statement("DataFrame", 'df.write.format("{f}").bucketBy(2, "k").mode("append").save("{a}")',
              instead="df." + APPEND, leaves=("a", ALL)),
    Statement("DataFrame", 'df.write.format("{f}").partitionBy("k").mode("append").save("{x}")',
              instead="df." + NEW, leaves=("x", ((3, "z"),))),
    Statement("DataFrame", 'df.write.format("{f}").clusterBy("k").mode("append").save("{x}")',
              instead="df." + NEW),
    Statement("DataFrame", 'df.mergeInto("{t}", F.expr("{t}.k = 3")).whenNotMatched().insertAll()'
              ".merge()", instead="df." + APPEND, leaves=("a", ALL)),
    Statement("DataFrame", 'df.write.format("{f}").mode("append").save("{a}")'),
    Statement("DataFrame", 'df.write.format("{f}").mode("overwrite").save("{a}")'),
)  # fmt: skip

DEFINITIONS = (
    Statement("create", "CREATE TABLE {n} USING {f} OPTIONS ({o} '{a}')"),
    Statement("create", "CREATE TABLE {n} (k BIGINT, s STRING) USING {f} OPTIONS ({o} '{a}'); "
              "SELECT * FROM {n}", instead="CREATE TABLE {n} USING ledger OPTIONS (log '{a}'); "
              "SELECT * FROM {n}", differs="creates an empty log"),
    Statement("create", "CREATE TABLE {n} USING {f} OPTIONS ({o} '{x}') AS SELECT * FROM {u}",
              instead='spark.table("{u}").' + NEW + "; " + DEFINE),
    Statement("create", "CREATE TABLE {n} USING {f} OPTIONS ({o} '{x}') AS SELECT 3L AS k",
              instead='spark.sql("SELECT 3L AS k").' + NEW + "; " + DEFINE),
    Statement("create", "CREATE TABLE IF NOT EXISTS {t} USING {f} OPTIONS ({o} '{x}') AS SELECT 1"),
    Statement("create", "CREATE OR REPLACE TABLE {n} USING {f} OPTIONS ({o} '{x}') "
              "AS SELECT * FROM {u}",
              instead='spark.table("{u}").' + REPLACE_NEW + "; " + DEFINE, leaves=("x", ROWS_B)),
    Statement("create", "CREATE OR REPLACE TABLE {t} USING {f} OPTIONS ({o} '{a}') "
              "AS SELECT * FROM {u}",
              instead='spark.table("{u}").' + OVERWRITE, leaves=("a", ROWS_B)),
    Statement("create", "CREATE TABLE {n} LIKE {t}",
              instead='spark.table("{t}").limit(0).' + NEW + "; " + DEFINE, leaves=("n", ())),
    Statement("create", "CREATE TABLE {n} USING {f} OPTIONS ({o} '{a}') PARTITIONED BY (s)"),
    Statement("create", "CREATE TABLE {n} USING {f} OPTIONS ({o} '{a}') "
              "CLUSTERED BY (k) INTO 4 BUCKETS"),
    Statement("create", "DROP TABLE {t}", differs="deletes the log"),
)  # fmt: skip

CHANGES = (
    Statement("change", "UPDATE {t} SET s = 'z' WHERE k = 1", leaves=("a", ((1, "z"), (2, "y"))),
              instead='spark.table("{t}").withColumn("s", F.expr("IF(k = 1, \'z\', s)")).'
              + OVERWRITE),
    Statement("change", "DELETE FROM {t} WHERE k = 1", leaves=("a", ((2, "y"),)),
              instead='spark.table("{t}").where("NOT k <=> 1").' + OVERWRITE),
    Statement("change", "DELETE FROM {t}", leaves=("a", ()),
              instead='spark.table("{t}").limit(0).' + OVERWRITE),
    Statement("change", "TRUNCATE TABLE {t}", leaves=("a", ()),
              instead="INSERT OVERWRITE {v} SELECT * FROM {v} WHERE false"),
    Statement("change", "MERGE INTO {t} USING {u} ON {t}.k = {u}.k "
              "WHEN MATCHED THEN UPDATE SET s = {u}.s WHEN NOT MATCHED THEN INSERT *",
              leaves=("a", ((1, "other"), (2, "y"), (5, "more"))),
              instead='spark.table("{t}").join(spark.table("{u}"), "k", "left_anti")'
              '.unionByName(spark.table("{u}")).' + OVERWRITE),
    Statement("change", "DELETE FROM {v} WHERE k = 1", leaves=("a", ((2, "y"),)),
              instead='spark.table("{v}").where("NOT k <=> 1").' + OVERWRITE),
    Statement("change", "TRUNCATE TABLE {v}"),
)  # fmt: skip

CATALOG = (
    Statement("catalog", "ALTER TABLE {t} ADD COLUMNS (z INT); SELECT * FROM {t}",
              instead='df.withColumn("z", F.lit(1)).write.format("ledger")'
              '.option("mergeSchema", "true").mode("append").save("{a}"); '
              "CREATE OR REPLACE TABLE {t} USING ledger OPTIONS (log '{a}')",
              leaves=("a", ((1, "x", None), (2, "y", None), (3, "z", 1))),
              differs="as Parquet; the log gets the column too"),
    Statement("catalog", "ALTER TABLE {t} RENAME COLUMN s TO ss; SELECT * FROM {t}",
              instead="CREATE OR REPLACE TABLE {t} USING ledger OPTIONS (log '{a}')",
              leaves=("a", ROWS_A)),
    Statement("catalog", "ALTER TABLE {t} DROP COLUMN s; SELECT * FROM {t}",
              note="the table shows fewer columns, but the log keeps all of them"),
    Statement("catalog", "ALTER TABLE {t} DROP COLUMN k; SELECT * FROM {t}"),
    Statement("catalog", "ALTER TABLE {t} ALTER COLUMN s TYPE INT; SELECT * FROM {t}"),
    Statement("catalog", "ALTER TABLE {t} ALTER COLUMN s COMMENT 'x'; SELECT * FROM {t}"),
    Statement("catalog", "ALTER TABLE {t} RENAME TO {n}; SELECT * FROM {n}"),
    Statement("catalog", "ALTER TABLE {t} SET TBLPROPERTIES ('{o}' = '{b}'); SELECT * FROM {t}"),
    Statement("catalog", "ALTER TABLE {t} SET LOCATION '{b}'; SELECT * FROM {t}", note=NOT_KEPT),
    Statement("catalog", "ALTER TABLE {t} ADD PARTITION (s = 'x')"),
    Statement("catalog", "ALTER TABLE {t} RECOVER PARTITIONS"),
    Statement("catalog", "DESCRIBE {t}"),
    Statement("catalog", "SHOW COLUMNS IN {t}"),
    Statement("catalog", "SHOW CREATE TABLE {t}",
              note="shows only the columns, as for any table of a Python source",
              differs="shows the whole definition"),
    Statement("catalog", "SHOW PARTITIONS {t}"),
    Statement("catalog", "ANALYZE TABLE {t} COMPUTE STATISTICS",
              note="computes nothing: Spark has no statistics of tables of Python sources"),
    Statement("catalog", "REFRESH TABLE {t}; SELECT * FROM {t}"),
)  # fmt: skip

_READ = (
    'spark.readStream.option("startingOffsets", "earliest").table("{t}")'
    '.writeStream.option("checkpointLocation", "{c}").trigger(availableNow=True)'
)
_START = _READ + '.format("{f}").start("{x}").awaitTermination()'
STREAMS = (
    Statement("stream", _START),
    Statement("stream", _READ + '.toTable("{u}").awaitTermination()',
              instead=_READ + '.format("{f}").start("{b}").awaitTermination()',
              leaves=("b", (*ROWS_B, *ROWS_A))),
    Statement("stream", _READ + '.format("{f}").option("{o}", "{x}").toTable("{n}")'
              ".awaitTermination()", instead=_START, leaves=("x", ROWS_A)),
)  # fmt: skip

STATEMENTS = (*READS, *INSERTS, *FRAMES, *DEFINITIONS, *CHANGES, *CATALOG, *STREAMS)
