"""A ZooKeeper process: start, stop, restart, and the errors of failed starts."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import ConfigurationError, MetadataUnavailableError
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess, find_java, four_letters
from ledgerlog_spark.metadata.zookeeper.session import ZookeeperSession
from tests.fixtures.kinds import now
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.zookeeper


async def test_second_start_in_a_directory_finds_port_and_data_of_the_first(
    tmp_path: Path,
) -> None:
    first = ZooKeeperProcess(tmp_path, port=free_port())
    first.start()
    first.start()
    session = await ZookeeperSession.connect(first.connect_string)
    await session.create("/kept", b"data")
    await session.close()
    assert "imok" in four_letters(first.port, "ruok")
    assert now(first.pid) is not None
    first.kill()
    first.kill()
    assert (first.is_running, first.pid) == (False, None)
    with ZooKeeperProcess(tmp_path) as second:
        assert second.port == first.port
        session = await ZookeeperSession.connect(second.connect_string)
        assert (await session.get("/kept")).value == b"data"
        await session.close()
        log = second.log_path.read_text()
    assert not second.is_running
    assert "binding to port /127.0.0.1:" in log or f"127.0.0.1:{second.port}" in log


async def test_session_knows_that_another_ensemble_took_its_address(tmp_path: Path) -> None:
    with ZooKeeperProcess(tmp_path / "first", port=free_port()) as first:
        session = await ZookeeperSession.connect(first.connect_string)
        await session.create("/rows", b"")
        for _ in range(20):
            await session.set("/rows", b"", None)
        assert not await session.is_orphaned()
        session._request_timeout = 0.5
    with pytest.raises(MetadataUnavailableError):
        await session.get("/rows")
    assert not await session.is_orphaned()
    with ZooKeeperProcess(tmp_path / "second", port=first.port) as second:
        assert await session.is_orphaned()
        with pytest.raises(MetadataUnavailableError):
            await session.get("/rows")
        later = await ZookeeperSession.connect(second.connect_string)
        assert not await later.is_orphaned()
        await later.close()
    await session.close()
    assert not await session.is_orphaned()


def test_directory_of_a_running_server_is_refused(own_zookeeper: ZooKeeperProcess) -> None:
    config = (own_zookeeper.directory / "zoo.cfg").read_text()
    with pytest.raises(ConfigurationError, match="another ZooKeeper runs in"):
        ZooKeeperProcess(own_zookeeper.directory).start()
    assert (own_zookeeper.directory / "zoo.cfg").read_text() == config
    assert "imok" in four_letters(own_zookeeper.port, "ruok")


def test_port_in_use_is_refused_naming_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} on 127.0.0.1 is in use"):
            ZooKeeperProcess(tmp_path, port=port).start()


def test_server_that_ends_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(ConfigurationError, match="cannot be created"):
        ZooKeeperProcess(tmp_path).start()
    (tmp_path / "data").unlink()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "version-2").write_text("not a directory")
    server = ZooKeeperProcess(tmp_path)
    with pytest.raises(MetadataUnavailableError, match=r"zookeeper\.log"):
        server.start()
    assert not server.is_running


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_impossible_port_is_refused(tmp_path: Path, port: int) -> None:
    with pytest.raises(ConfigurationError, match="1 to 65535"):
        ZooKeeperProcess(tmp_path, port=port)


def fake_java(folder: Path, script: str) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"),
        ("echo 'java version \"1.8.0_292\"' >&2", "is Java 8"),
        ("exit 3", "exit code 3"),
    ],
)
def test_java_that_will_not_do_is_refused_naming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=reason) as refused:
        find_java()
    assert str(tmp_path / "bin" / "java") in str(refused.value)
    assert "JAVA_HOME" in str(refused.value)


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="install a Java 17"):
        ZooKeeperProcess(tmp_path).start()


@pytest.mark.parametrize("has_package", [False, True])
def test_missing_pyspark_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_package: bool
) -> None:
    class Package:
        origin = str(tmp_path / "pyspark" / "__init__.py")

    found: Callable[[str], object] = lambda _: Package if has_package else None  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", found)
    with pytest.raises(ConfigurationError, match=r"pip install .*'pyspark<"):
        ZooKeeperProcess(tmp_path).start()


def test_server_on_a_port_that_another_one_answers_on_is_not_taken_for_serving(
    tmp_path: Path,
) -> None:
    with ZooKeeperProcess(tmp_path / "first") as first:
        late = ZooKeeperProcess(tmp_path / "late", port=first.port, start_timeout_seconds=15)
        # It checked while the port was still free, but binds too late.
        late._refuse_taken_port = lambda: None
        with pytest.raises(MetadataUnavailableError, match="ended before it served"):
            late.start()
        assert not late.is_running
        assert first.is_running
