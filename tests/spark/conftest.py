"""One local cluster and one Spark session for all Spark tests.

`PYSPARK_PYTHON` is set before the session starts: Spark's own look-up of sources runs with it.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.spark_python import python_without_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

ROOT = Path(__file__).parents[2]

os.environ["PYSPARK_PYTHON"] = python_without_archive()
os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("spark")
            item.add_marker("zookeeper")
            item.add_marker("processes")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from ledgerlog_spark.local.cluster import local_cluster

    with local_cluster(bookies=3, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    from ledgerlog_spark import connect

    with connect(cluster.metadata_service_uri) as connected:
        yield connected


@pytest.fixture(scope="session")
def spark(cluster: Cluster, spark_session: SparkSession) -> SparkSession:
    from ledgerlog_spark import configure

    return configure(spark_session, cluster.metadata_service_uri)


@pytest.fixture
def log_name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.originalname[5:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def save(log_name: str) -> Callable[..., None]:
    """Write a DataFrame to the test's log."""

    def write(frame: object, mode: str = "append", **options: str) -> None:
        frame.write.format("ledger").mode(mode).options(**options).save(log_name)  # type: ignore[attr-defined]

    return write
