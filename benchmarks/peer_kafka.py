"""Runs Apache Kafka for comparison: one broker, and Spark's Kafka connector in the same session.

Maven downloads the broker and the connector once, to a folder in the user's cache. The connector
for Spark 4.3.0 was not on Maven Central when this module was written, so the session loads the
connector for Spark 4.2.0. The batch reads and writes of this connector work in Spark 4.3.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerlog_spark.local.zookeeper import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "Apache Kafka 3.9.2"
BROKER = "org.apache.kafka:kafka_2.13:3.9.2"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
CONNECTOR_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
TOPIC = "rows"
PARTITIONS = 2
FETCH_SECONDS_MAX = 600
START_SECONDS_MAX = 60

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>benchmarks</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
  </dependency></dependencies>
</project>
"""
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions={partitions}
offsets.topic.replication.factor=1
"""


def connector_jars() -> str:
    """Return the value of `spark.jars` that adds Spark's Kafka connector to a session."""
    folder = _fetched(CONNECTOR)
    names = [each for name in CONNECTOR_JARS for each in sorted(folder.glob(f"{name}*.jar"))]
    return ",".join(map(str, names))


@contextmanager
def broker(directory: Path | None) -> Iterator[str]:
    """Run one broker during the block. Yield its address, for `kafka.bootstrap.servers`."""
    jars = _fetched(BROKER)
    java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
    with tempfile.TemporaryDirectory(dir=directory) as made:
        port = free_port()
        settings = Path(made, "server.properties")
        settings.write_text(
            _SETTINGS.format(
                broker=port,
                controller=free_port(),
                logs=Path(made, "logs"),
                partitions=PARTITIONS,
            )
        )
        cluster = str(uuid.uuid4())
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
            check=True,
            capture_output=True,
        )
        with Path(made, "output").open("wb") as output:
            process = subprocess.Popen(
                [*java, "kafka.Kafka", str(settings)], stdout=output, stderr=output
            )
        try:
            _await(process, port, Path(made, "output"))
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def write(rows: DataFrame, server: str) -> None:
    """Write each row as one record. The value of a record is its row as text."""
    values = rows.selectExpr("cast(concat_ws(',', a, b, c, d) AS binary) AS value")
    to = values.write.format("kafka").option("kafka.bootstrap.servers", server)
    to.option("topic", TOPIC).save()


def read(spark: SparkSession, server: str) -> DataFrame:
    """Return all records of the topic from Spark's connector. Their values are not parsed."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", server)
    return reader.option("subscribe", TOPIC).load()


def _await(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"Kafka did not start:\n{output.read_text()[-2000:]}")


def _fetched(artifact: str) -> Path:
    """Return the folder with the artifact's jars. Maven fills the folder at the first call."""
    cache = Path.home() / ".cache" / "ledgerlog-benchmarks"
    folder = cache / artifact.replace(":", "-")
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError(f"no mvn on PATH; install Maven to fetch {artifact}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as made:
        pom, jars = Path(made, "pom.xml"), Path(made, "jars")
        pom.write_text(_POM.format(*artifact.split(":")))
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        subprocess.run(
            [
                *(maven, "--batch-mode", "--quiet", "--file", str(pom), plugin),
                *("-DincludeScope=runtime", f"-DoutputDirectory={jars}"),
            ],
            check=True,
            timeout=FETCH_SECONDS_MAX,
        )
        jars.rename(folder)
    return folder
