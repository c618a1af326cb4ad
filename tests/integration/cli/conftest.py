"""A cluster of three bookies with a log in it, and the command run inside the test's process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.fixtures.command_line import Ended, run_here
from tests.fixtures.small_log import ROWS, write_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgerlog_spark.client.blocking.client import BlockingClient


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cli") / "cluster")
    running.up(3)
    yield running
    running.down()


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with ll.connect(cluster.metadata_service_uri) as connected:
        yield connected


@pytest.fixture(scope="module")
def log(client: BlockingClient) -> str:
    """The log `flights`: ROWS in one range of one ledger."""
    write_log(client, "flights", ROWS)
    return "flights"


@pytest.fixture
def run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Ended]:
    """`run("logs", "list")` with the cluster in the environment."""
    monkeypatch.setenv(SERVICE_URI_VARIABLE, cluster.metadata_service_uri)
    return partial(run_here, monkeypatch, capfdbinary)
