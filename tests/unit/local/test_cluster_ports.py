"""ZooKeeper's port when another process takes it between the check and the start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.local import cluster as module
from ledgerlog_spark.local.cluster import USUAL_PORT, Cluster
from ledgerlog_spark.local.members import ZOOKEEPER, Member

OTHER_PORT = 40_123


class Servers:
    """Records the port of each started server. The starts at `taken` fail."""

    def __init__(self, taken: set[int]) -> None:
        self.taken = taken
        self.ports: list[int | None] = []
        self.pid = os.getpid()
        self.port = 0

    def __call__(self, _directory: str, *, port: int | None, **_: object) -> Servers:
        self.ports.append(port)
        self.port = port or 0
        return self

    def start(self) -> None:
        if self.port in self.taken:
            raise MetadataUnavailableError("ended before it served", port=self.port)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    servers = Servers({USUAL_PORT})
    monkeypatch.setattr(module, "ZooKeeperProcess", servers)
    monkeypatch.setattr(module, "port_is_free", lambda _port: True)
    monkeypatch.setattr(module, "free_port", lambda: OTHER_PORT)
    return servers


def zookeeper(directory: Path, port: int) -> Member:
    return Member(role=ZOOKEEPER, id=ZOOKEEPER, directory=str(directory / ZOOKEEPER), port=port)


@pytest.mark.parametrize("port_before", [0, USUAL_PORT])
def test_a_start_that_loses_its_port_uses_another_one(
    tmp_path: Path, servers: Servers, port_before: int
) -> None:
    cluster = Cluster(tmp_path)
    if port_before:
        cluster.members.put(zookeeper(tmp_path, port_before))
    cluster._start_zookeeper()
    assert servers.ports == [USUAL_PORT, OTHER_PORT]
    assert cluster.zookeeper_port == OTHER_PORT


def test_a_start_keeps_the_port_that_running_bookies_use(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    cluster.members.put(zookeeper(tmp_path, USUAL_PORT))
    monkeypatch.setattr(Cluster, "_is_port_fixed", property(lambda _self: True))
    with pytest.raises(MetadataUnavailableError):
        cluster._start_zookeeper()
    assert servers.ports == [USUAL_PORT]
