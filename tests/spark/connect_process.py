"""A Spark Connect server, and a program with a session that is only a client of it.

`python -m tests.spark.connect_process ADDRESS URI LOG DIRECTORY`

Writes, reads and streams through a session that was passed to `configure`. Only the client has the
service URI of the cluster. Prints one line of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from ledgerlog_spark import configure
from tests.fixtures.jar import SUBMIT_VARIABLE
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
HERE = "127.0.0.1"


@contextmanager
def connect_server(directory: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server with `more` settings in a separate Java process, and yield its address."""
    home, port = Path(pyspark.__file__).parent, free_port()
    settings = {
        "spark.connect.grpc.binding.address": HERE,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": HERE,
        "spark.driver.bindAddress": HERE,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        **(more or {}),
    }
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command: list[str | Path] = [home / "bin" / "spark-submit", "--master", "local[2]"]
    command += ["--class", SERVER]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    for name in ("LEDGERLOG_METADATA_SERVICE_URI", SUBMIT_VARIABLE):
        environment.pop(name, None)
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, *given, "spark-internal"], env=environment, stdout=log, stderr=log
        )
    try:
        yield f"sc://{HERE}:{port}"
    finally:
        process.terminate()
        process.wait()


def main(address: str, uri: str, log: str, directory: Path) -> None:
    """Use the log through the server at an address."""
    from pyspark.errors.exceptions.connect import SparkConnectException
    from pyspark.sql.connect.session import SparkSession

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("ledgerlog_spark").addHandler(handler)
    builder = SparkSession.builder.remote(address)
    assert configure(builder, uri) is builder
    spark = builder.getOrCreate()
    assert configure(spark, uri) is spark
    spark.range(100).write.format("ledger").mode("append").save(log)
    frame = spark.read.format("ledger").load(log)
    rows = frame.where("id >= 40").count()
    stream = spark.readStream.format("ledger").option("startingOffsets", "earliest").load(log)
    query = (
        stream.writeStream.format("ledger")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(f"{log}-copy")
    )
    query.awaitTermination()
    copied = spark.read.format("ledger").load(f"{log}-copy").count()
    missing = ""
    try:
        spark.read.format("ledger").load(f"{log}-missing").count()
    except SparkConnectException as error:
        missing = str(error)
    batch = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.stop()
    found = {"rows": rows, "copied": copied, "missing": missing, "batch": batch, "told": told}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
