"""A client of a Spark Connect server uses logs as tables of a catalog.

`python -m tests.spark.connect_catalog_process ADDRESS URI NAMESPACE DIRECTORY [JAR]`

With JAR, the client adds the jar and the catalog to its own session. Otherwise the server has both.
The client does not call `configure`. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerlog_spark.datasource.jar import CATALOG_CLASS, CATALOG_SETTING

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

WRITES = (
    "CREATE TABLE {t} (k BIGINT, v STRING DEFAULT 'd')",
    "INSERT INTO {t} VALUES (1, 'a'), (2, DEFAULT)",
    "INSERT OVERWRITE {t} SELECT k + 1, v FROM {t}",
    "CREATE TABLE {n}.made AS SELECT k FROM {t}",
    "CREATE OR REPLACE TABLE {n}.made AS SELECT k + 100 AS k FROM {n}.made WHERE k > 2",
)
READS = (
    "SELECT * FROM {t} ORDER BY k",
    "SELECT * FROM {t} VERSION AS OF 2 ORDER BY k",
    "SELECT version, operation FROM {t}.history WHERE version > 1 ORDER BY version",
    "SELECT k FROM {n}.made",
    "SELECT k, _offset FROM {n}.written ORDER BY _offset",
    "SELECT k FROM {n}.copied",
)
REFUSED = (
    "SELECT * FROM {n}.missing",
    "CREATE TABLE {t} (k BIGINT)",
    "CREATE TABLE {n}.parted (k BIGINT) PARTITIONED BY (k)",
)
LIST = "SHOW TABLES IN {n}"


def catalog_of(uri: str) -> dict[str, str]:
    """The settings of the catalog."""
    return {CATALOG_SETTING: CATALOG_CLASS, f"{CATALOG_SETTING}.metadataServiceUri": uri}


def main(address: str, uri: str, namespace: str, directory: Path, jar: str = "") -> None:
    """Use the catalog through the server at an address."""
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(address).getOrCreate()
    if jar:
        spark.addArtifact(jar)
        for key, value in catalog_of(uri).items():
            spark.conf.set(key, value)
    found = used(spark, f"ledger.{namespace}", directory)
    spark.stop()
    sys.stdout.write(f"{json.dumps(found)}\n")


def used(spark: SparkSession, n: str, directory: Path) -> dict[str, object]:
    """What the statements return in the namespace `n`, which is empty in the end."""
    t = f"{n}.t"

    def rows(statement: str) -> list[list[object]]:
        return [list(row) for row in spark.sql(statement.format(t=t, n=n)).collect()]

    for statement in WRITES[:3]:
        rows(statement)
    listed = {LIST: rows(LIST)}
    for statement in WRITES[3:]:
        rows(statement)
    written = f"{n}.written"
    zero = spark.sql("SELECT 0L AS k")
    zero.writeTo(written).create()
    zero.union(zero).writeTo(written).createOrReplace()
    zero.writeTo(written).append()
    (
        spark.readStream.option("startingOffsets", "earliest")
        .table(written)
        .writeStream.format("ledger")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(f"{n}.copied")
        .awaitTermination()
    )
    found = {
        "rows": listed | {statement: rows(statement) for statement in READS},
        "plans": [str(rows(f"EXPLAIN SELECT * FROM {table}")[0][0]) for table in (t, written)],
        "errors": [error_of(spark, statement.format(t=t, n=n)) for statement in REFUSED],
    }
    rows("TRUNCATE TABLE {t}")
    for table in ("t", "made", "written", "copied"):
        rows(f"DROP TABLE {{n}}.{table}")
    is_left = [n.removeprefix("ledger.")] in rows("SHOW NAMESPACES IN ledger")
    return {**found, "is_left": is_left}


def error_of(spark: SparkSession, statement: str) -> str:
    """The text of the statement's error."""
    from pyspark.errors.exceptions.connect import SparkConnectException

    try:
        spark.sql(statement).collect()
    except SparkConnectException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    server, service_uri, name, folder, *added = sys.argv[1:]
    main(server, service_uri, name, Path(folder), *added)
