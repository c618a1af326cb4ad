"""A start of ZooKeeper that fails: the message states what happened to the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.local import zookeeper
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from tests.fixtures.ports import free_port


@pytest.mark.parametrize(
    ("program", "timeout_seconds", "outcome"),
    [
        ("echo the reason; exit 1", 60.0, "ended before it served on 127.0.0.1:{port};"),
        ("exec tail -f /dev/null", 0.0, "did not serve on 127.0.0.1:{port} within 0 s;"),
    ],
)
def test_start_that_fails_is_reported_by_what_happened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    timeout_seconds: float,
    outcome: str,
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{program}\n")
    java.chmod(0o755)
    monkeypatch.setattr(zookeeper, "find_java", lambda: java)
    monkeypatch.setattr(zookeeper, "find_jars", list)
    port = free_port()
    process = ZooKeeperProcess(tmp_path / "zk", port=port, start_timeout_seconds=timeout_seconds)
    with pytest.raises(MetadataUnavailableError) as failed:
        process.start()
    assert outcome.format(port=port) in str(failed.value)
    assert not process.is_running
