"""One local cluster and one Spark session for all Spark tests.

`PYSPARK_PYTHON` is set before the session starts: Spark's own look-up of sources runs with it. The
session has the jar of the JVM engine. The tests of the modules in `CONTRACT` run with both engines.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.jar import copied_jar, submit_with
from tests.fixtures.java import OPTIONS_VARIABLE, quick_options
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

ENGINES = ("python", "jvm")
ENGINE_SETTING = "spark.ledgerlog.engine"
CONTRACT = frozenset(
    {
        "test_batch",
        "test_column_definitions",
        "test_data_loss",
        "test_differential",
        "test_errors",
        "test_evolution",
        "test_leader_logs",
        "test_leader_rows",
        "test_merged_logs",
        "test_metadata",
        "test_names",
        "test_pinned_rows",
        "test_pruned_columns",
        "test_raw",
        "test_sql",
        "test_stream_source",
        "test_stream_source_stops",
        "test_time_travel",
        "test_types",
    }
)
"""Modules with the tests of reads. Both engines must pass each of these tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if Path(metafunc.module.__file__).stem in CONTRACT and "spark" in metafunc.fixturenames:
        metafunc.parametrize("engine", ENGINES, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("spark")
            item.add_marker("zookeeper")
            item.add_marker("processes")


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Options for all JVMs, also those of other processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(OPTIONS_VARIABLE, quick_options())
        yield


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
def jar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The jar of the JVM engine, on the class path of the session."""
    path = copied_jar(tmp_path_factory.mktemp("jar"))
    submit_with(path)
    # In `make matrix`, the jar of the installation may be for another PySpark.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ledgerlog_spark.datasource.jar.JAR", path)
        yield path


@pytest.fixture(scope="session")
def spark(cluster: Cluster, jar: Path, request: pytest.FixtureRequest) -> SparkSession:
    from ledgerlog_spark import configure

    # The session starts after its jar is known.
    session: SparkSession = request.getfixturevalue("spark_session")
    return configure(session, cluster.metadata_service_uri)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The engine that runs the scans of the test; None leaves the choice to the source."""
    chosen: str | None = getattr(request, "param", None)
    if chosen is None:
        yield None
        return
    session: SparkSession = request.getfixturevalue("spark")
    session.conf.set(ENGINE_SETTING, chosen)
    yield chosen
    session.conf.unset(ENGINE_SETTING)


@pytest.fixture
def log_name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.originalname[5:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def name(log_name: str) -> str:
    """The name of the test's log, which needs no quotes in SQL."""
    return log_name.replace("-", "_").lower()[-40:].lstrip("_0123456789")


@pytest.fixture
def t(name: str) -> str:
    """The test's log as a table of the catalog."""
    return f"ledger.{name}"


@pytest.fixture
def save(log_name: str) -> Callable[..., None]:
    """Write a DataFrame to the test's log."""

    def write(frame: object, mode: str = "append", **options: str) -> None:
        frame.write.format("ledger").mode(mode).options(**options).save(log_name)  # type: ignore[attr-defined]

    return write
