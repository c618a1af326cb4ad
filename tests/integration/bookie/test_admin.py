"""The metrics port of a bookie process: documented metrics, changes, and the journal's mark."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.generate.metrics import descriptions, sample_name
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import KEY, MEBIBYTE, add_frame
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port
from tests.integration.bookie.test_lifecycle import _registered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

READ_ONLY = "/api/v1/bookie/state/readonly"
TYPES = {"unknown": "counter"}
"""BookKeeper's counters are untyped in the text (docs/generate/metrics.py)."""


def ask(bookie: BookieProcess, path: str, body: object = None) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{bookie.settings['metrics_port']}{path}",
        data=None if body is None else json.dumps(body).encode(),
        method="GET" if body is None else "PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def json_of(bookie: BookieProcess, path: str, body: object = None) -> Any:
    status, answer = ask(bookie, path, body)
    assert status == 200, answer
    return json.loads(answer)


def test_metrics_of_a_bookie_are_those_of_the_reference(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(metrics_port=free_port()).start()
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK
        assert peer.ask(encode_read(1, 0)).code is Code.OK
        assert peer.ask(encode_read(1, -1, fence_key=KEY)).code is Code.OK
        assert peer.ask(add_frame(1, 1, b"recovered", flags=6)).code is Code.OK
    text = ask(bookie, "/metrics")[1].decode()
    families = list(text_string_to_metric_families(text))
    documented = {metric.name: metric for metric in descriptions()}
    assert {each.name for each in families} == documented.keys()
    assert {each.name: TYPES.get(each.type, each.type) for each in families} == {
        name: metric.type for name, metric in documented.items()
    }
    for family in families:
        metric = documented[family.name]
        assert family.documentation == re.sub(r"[*`]", "", metric.meaning)
        if metric.type != "histogram":
            assert sample_name(metric) in {sample.name for sample in family.samples}
    values = {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if sample.labels in ({}, {"success": "true"})
    }
    assert values["bookkeeper_server_ADD_ENTRY_REQUEST_count"] == 2
    assert values["bookie_BOOKIE_RECOVERY_ADD_ENTRY_count"] == 1
    assert values["bookkeeper_server_READ_ENTRY_REQUEST_count"] == 2
    assert values["bookkeeper_server_READ_ENTRY_FENCE_REQUEST_count"] == 1
    assert values["bookie_WRITE_BYTES"] > values["bookie_READ_BYTES"] > 0
    assert values["bookie_SERVER_STATUS"] == 1
    assert values["bookie_gc_ACTIVE_ENTRY_LOG_TOTAL"] == 1
    assert values["bookie_journal_JOURNAL_SYNC_count"] >= 2
    assert values["bookie_journal_JOURNAL_SYNC_sum"] > 0


async def test_a_bookie_that_was_made_read_only_is_announced_and_forgets_it_at_the_next_start(
    make_bookie: MakeBookie, service_uri: str
) -> None:
    bookie = make_bookie(metrics_port=free_port(), admin_changes=True).start()
    name, look = f"127.0.0.1:{bookie.port}", _registered(service_uri)
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK
        assert json_of(bookie, READ_ONLY, {"readOnly": True}) == {"readOnly": True}
        assert peer.ask(add_frame(1, 1, b"x")).code is Code.READ_ONLY
        assert peer.ask(encode_read(1, 0)).code is Code.OK
        assert peer.ask(encode_read(1, -1, fence_key=KEY)).code is Code.OK
        assert peer.ask(add_frame(1, 1, b"recovered", flags=6)).code is Code.OK
        until(lambda: '"state_announced"' in bookie.log())
        assert await look() == ([], [name])
        assert json_of(bookie, READ_ONLY, {"readOnly": False}) == {"readOnly": False}
        assert peer.ask(add_frame(2, 0, b"x")).code is Code.OK
        until(lambda: bookie.log().count('"state_announced"') == 2)
        assert await look() == ([name], [])
        json_of(bookie, READ_ONLY, {"readOnly": True})
    bookie.stop()
    bookie.start()
    assert json_of(bookie, READ_ONLY) == {"readOnly": False}
    lines = [json.loads(line) for line in bookie.log().splitlines()]
    requested = [line for line in lines if line["event"] == "read_only_requested"]
    assert [line["read_only"] for line in requested] == [True, False, True]
    assert {line["peer"] for line in requested} == {"127.0.0.1"}


def test_the_port_changes_nothing_by_default(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(metrics_port=free_port()).start()
    status, text = ask(bookie, READ_ONLY, {"readOnly": True})
    assert (status, b"--admin-changes" in text) == (403, True)
    assert json_of(bookie, READ_ONLY) == {"readOnly": False}


def test_the_mark_of_the_journal_follows_the_checkpoints(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    (tmp_path / "journal").mkdir()
    bookie = make_bookie(
        metrics_port=free_port(),
        write_mode="journal",
        journal_directory=tmp_path / "journal",
        file_size_bytes=8 * MEBIBYTE,
        checkpoint_interval_ms=100,
    ).start()

    def mark() -> tuple[str, int]:
        ((key, value),) = json_of(bookie, "/api/v1/bookie/last_log_mark").items()
        found = re.fullmatch(r"LastLogMark: Journal Id - (\d+)\((.*)\)", key)
        assert found
        assert int(found[1]) == int(found[2].rpartition("-")[2])
        return found[2], int(value.removeprefix("Pos - "))

    first = min(path.name for path in (tmp_path / "journal").glob("journal-*"))
    assert mark() == (first, 0)
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, bytes(100_000))).code is Code.OK
        until(lambda: mark() > (first, 100_000))
        assert mark()[1] < 120_000, "the end of the copy with its head"


def test_the_port_serves_while_a_bookie_waits_for_zookeeper(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(
        service_uri=f"zk://127.0.0.1:{free_port()}/ledgers", metrics_port=free_port()
    )
    process = bookie.spawn()

    def is_up() -> bool:
        assert process.poll() is None, bookie.log()
        try:
            return ask(bookie, "/heartbeat") == (200, b"OK\n")
        except OSError:
            return False

    until(is_up)
    assert ask(bookie, "/api/v1/bookie/is_ready")[0] == 503
    assert ask(bookie, "/metrics")[0] == 503
    assert not json_of(bookie, "/api/v1/bookie/state")["running"]
    assert bookie.stop(signal.SIGTERM) == 0
