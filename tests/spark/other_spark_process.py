"""A session with the jar of another minor version of Spark on its class path.

`python -m tests.spark.other_spark_process URI LOG DIRECTORY JAR`

The catalog is set by hand, because `configure` does not set one that cannot work. Prints one line
of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from ledgerlog_spark.datasource.jar import CATALOG_CLASS, CATALOG_SETTING, JARS_SETTING
from tests.spark.stream_process import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATEMENTS = (
    "SHOW TABLES IN ledger",
    "SELECT * FROM ledger.shop.orders",
    "CREATE TABLE ledger.shop.orders (k BIGINT)",
    "INSERT INTO ledger.shop.orders VALUES (1)",
)


def main(uri: str, log: str, directory: Path, jar: str) -> None:
    """Use the format and the catalog."""
    settings = {JARS_SETTING: jar, CATALOG_SETTING: CATALOG_CLASS}
    spark = session(uri, "local[2]", settings)
    spark.range(100).write.format("ledger").mode("append").save(log)
    spark.range(100, 200).createOrReplaceTempView("more")
    spark.sql(f"CREATE TEMPORARY VIEW v USING ledger OPTIONS (path '{log}')")
    spark.sql("INSERT INTO v SELECT * FROM more")
    frame = spark.read.format("ledger").load(log)
    found = {
        "rows": frame.where("id >= 40").count(),
        "copied": copied(spark, log, directory),
        "parquet": parquet_rows(spark, directory),
        "errors": {statement: error_of(spark, statement) for statement in STATEMENTS},
        "plan": frame._jdf.queryExecution().executedPlan().toString(),
    }
    spark.stop()
    sys.stdout.write(f"{json.dumps(found)}\n")


def copied(spark: SparkSession, log: str, directory: Path) -> int:
    """The number of rows that a stream copies to another log."""
    stream = spark.readStream.format("ledger").option("startingOffsets", "earliest").load(log)
    (
        stream.writeStream.format("ledger")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(f"{log}-copy")
        .awaitTermination()
    )
    return spark.read.format("ledger").load(f"{log}-copy").count()


def parquet_rows(spark: SparkSession, directory: Path) -> int:
    """Rows of another format. To find a format, Spark loads the classes of all formats."""
    path = str(directory / "parquet")
    spark.range(3).write.format("parquet").save(path)
    return spark.read.format("parquet").load(path).count()


def error_of(spark: SparkSession, statement: str) -> str:
    """The first line of the statement's error, without Java's frames."""
    try:
        spark.sql(statement).collect()
    except Py4JJavaError as error:
        return str(error.java_exception)
    return ""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
