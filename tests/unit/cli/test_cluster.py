"""The cluster of a command, and the message without a cluster."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.cli import options as cluster
from ledgerlog_spark.cli.doctor import _cluster
from ledgerlog_spark.cli.options import LOCAL_DIRECTORY, chosen_uri, connect
from ledgerlog_spark.errors import LogNotFoundError, MetadataUnavailableError
from ledgerlog_spark.local.members import ZOOKEEPER, Member, Members
from ledgerlog_spark.model import SERVICE_URI_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ELSEWHERE = "zk://elsewhere:1/ledgers"


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Members:
    """A cluster in `.ledgerlog` of the working directory; its ZooKeeper runs at port 4711."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / LOCAL_DIRECTORY
    directory.mkdir()
    remembered = Members(directory)
    for member_id, port in ((ZOOKEEPER, 4711), ("bookie-0", 4712)):
        role = member_id.partition("-")[0]
        fresh = Member(role=role, id=member_id, directory=str(directory / member_id))
        remembered.put(fresh.started_as(os.getpid(), port))
    return remembered


def stop(members: Members, *ids: str) -> None:
    """A member that ended long ago, and whose pid belongs to another process now."""
    for member_id in ids:
        members.put(replace(members.get(member_id), start_mark="another"))


def test_cluster_that_runs_in_this_directory_is_asked(members: Members) -> None:
    assert chosen_uri("") == "zk://127.0.0.1:4711/ledgers"
    assert chosen_uri(ELSEWHERE) == ELSEWHERE


def test_usual_cluster_is_asked_where_the_directory_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen_uri("") == SERVICE_URI_DEFAULT
    (tmp_path / LOCAL_DIRECTORY).mkdir()  # `local up` was interrupted, or failed
    assert chosen_uri("") == SERVICE_URI_DEFAULT


def test_another_cluster_is_not_asked_while_that_of_the_directory_is_stopped(
    members: Members,
) -> None:
    stop(members, ZOOKEEPER)
    with pytest.raises(MetadataUnavailableError, match=r"^ZooKeeper of the cluster in \./\.ledg"):
        chosen_uri("")
    stop(members, "bookie-0")
    stopped = r"^the cluster in \./\.ledgerlog is stopped: start it with `ledgerlog local up`"
    with pytest.raises(MetadataUnavailableError, match=stopped) as refused:
        chosen_uri("")
    assert (refused.value.retriable, refused.value.definite) == (True, True)
    assert chosen_uri(ELSEWHERE) == ELSEWHERE


def test_doctor_reports_that_the_cluster_of_the_directory_is_stopped(members: Members) -> None:
    stop(members, ZOOKEEPER, "bookie-0")
    (found,) = _cluster("")
    assert found.state == "warning"
    assert "`ledgerlog local up`" in found.advice


def test_no_cluster_at_the_usual_port_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("localhost", 0)) as server:
        monkeypatch.setattr(cluster, "USUAL_PORT", server.getsockname()[1])
        cluster.require_listener(SERVICE_URI_DEFAULT)
    with (
        pytest.raises(MetadataUnavailableError, match=r"nothing listens on port .* local up"),
        connect(SERVICE_URI_DEFAULT),
    ):
        pass
    cluster.require_listener(ELSEWHERE)  # a named cluster may still start


def test_what_is_not_found_is_said_to_be_of_the_cluster_that_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.contextmanager
    def opened(_uri: str) -> Iterator[Any]:
        yield None

    monkeypatch.setattr(cluster, "connected", opened)
    with pytest.raises(LogNotFoundError, match=rf"no log 'x' \(cluster {ELSEWHERE}\)$"):  # noqa: SIM117
        with connect(ELSEWHERE):
            raise LogNotFoundError("no log 'x'", log="x")
