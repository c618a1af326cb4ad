"""The Spark driver that the harness kills: feeds a log, copies it, and counts it.

`python -m tests.exactly_once.query SETTINGS`, a JSON object with `uri`, `directory` (checkpoints),
`chunk` (the number of the chunk of rows to feed), `chunk_rows`, and `finish` (run until all fed
rows are copied, then end). A query that ends is restarted, unless the file `no_restart` exists. The
driver reports its steps in JSON lines on standard output.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import ledgerlog_spark as ll
from tests.exactly_once.spark_errors import EXIT_CODE, is_sparks_own

INPUT, COPY, COUNTS = "input", "copy", "counts"
KEYS = 17
FEEDER = "feeder"
RATE_PARTS = 40
IDLE_POLLS_MAX = 300
SHORT_LIVED = {
    "versionRetentionMs": "2000",
    "deletedRetentionMs": "60000",
    "stagingTtlMs": "120000",
}
"""Short times, so that the sweeper, which runs beside the queries, can delete something."""

POLL_SECONDS = 0.05
REASON_LENGTH_MAX = 20_000


def say(**what: Any) -> None:
    """Print one line for the harness."""
    print(json.dumps(what), flush=True)


def session(uri: str) -> SparkSession:
    """A session with two tasks at a time, each tried four times."""
    builder = SparkSession.builder.master("local[2,4]").appName("exactly-once")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "20000",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.catalogImplementation": "in-memory",
    }.items():
        builder = builder.config(key, value)
    ll.configure(builder, uri)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return ll.configure(spark, uri)


def feed(spark: SparkSession, chunk: int, chunk_rows: int) -> None:
    """Append one chunk to the input. Further calls with the same chunk change nothing."""
    rows = spark.range(chunk * chunk_rows, (chunk + 1) * chunk_rows, 1, 3).select(
        f.col("id").alias("seq"),
        (f.col("id") % KEYS).alias("key"),
        f.concat(f.lit("row "), f.col("id")).alias("text"),
    )
    options = {"txnAppId": FEEDER, "txnVersion": str(chunk)}
    rows.write.format("ledger").mode("append").options(**options).save(INPUT)


def source(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """The input as a stream from its beginning."""
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": str(rows_per_batch)}
    return spark.readStream.format("ledger").options(**options).load(INPUT)


def start(
    spark: SparkSession, name: str, settings: dict[str, Any], *, finish: bool
) -> StreamingQuery:
    """Start one of the two queries from its checkpoint."""
    parts = 1 if finish else RATE_PARTS
    rows = source(spark, max(1, settings["chunk_rows"] // parts))
    if name == COUNTS:
        rows = rows.groupBy("key").agg(
            f.count("*").alias("rows"), f.sum("seq").alias("sum"), f.max("seq").alias("last")
        )
    writer = (
        rows.writeStream.format("ledger")
        .queryName(name)
        .outputMode("complete" if name == COUNTS else "append")
        .option("checkpointLocation", f"{settings['directory']}/{name}")
        .options(**SHORT_LIVED)
    )
    if finish:
        writer = writer.trigger(availableNow=True)
    return writer.start(name)


def run(spark: SparkSession, settings: dict[str, Any]) -> None:
    """Keep both queries running. A query that ends is restarted from its checkpoint."""
    queries = {name: start(spark, name, settings, finish=False) for name in (COPY, COUNTS)}
    batches = dict.fromkeys(queries, -1)
    say(running=True)
    chunk, idle_polls = settings["chunk"], 0
    while True:
        idle_polls += 1
        if idle_polls > IDLE_POLLS_MAX:  # both have copied all fed rows
            chunk, idle_polls = chunk + 1, 0
            feed(spark, chunk, settings["chunk_rows"])
            say(fed=chunk)
        for name, query in tuple(queries.items()):
            if not query.isActive:
                ended = queries.pop(name)
                say(ended=name, why=_reason(ended))
                if not Path(settings.get("no_restart", "")).is_file():
                    queries[name] = start(spark, name, settings, finish=False)
                continue
            progress = query.lastProgress
            if progress is not None and progress["batchId"] != batches[name]:
                batches[name] = progress["batchId"]
                idle_polls = 0
                say(query=name, batch=batches[name], rows=progress["numInputRows"])
        time.sleep(POLL_SECONDS)


def finish(spark: SparkSession, settings: dict[str, Any]) -> None:
    """Run both queries to the end of the input."""
    for name in (COPY, COUNTS):
        start(spark, name, settings, finish=True).awaitTermination()


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "" if error is None else str(error)[:REASON_LENGTH_MAX]


def main() -> int:
    """Run until a kill. With `finish`, or if Spark lets the driver down, end earlier."""
    settings = json.loads(sys.argv[1])
    try:
        return drive(settings)
    except Exception as error:
        if not is_sparks_own(f"{error}\n{_causes(error)}"):
            raise
        traceback.print_exc()
        return EXIT_CODE


def _causes(error: Exception) -> str:
    """The causes of the error."""
    causes = []
    cause = error.__cause__ or error.__context__
    while cause is not None:
        causes.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    return "\n".join(causes)


def drive(settings: dict[str, Any]) -> int:
    """Feed, then run both queries, and return the exit code."""
    spark = session(settings["uri"])
    feed(spark, settings["chunk"], settings["chunk_rows"])
    say(fed=settings["chunk"])
    if settings["finish"]:
        finish(spark, settings)
        say(finished=True)
        spark.stop()
        return 0
    run(spark, settings)
    return 1


if __name__ == "__main__":
    sys.exit(main())
