"""`bookies`, `ledgers`, `logs` and `doctor` on a real cluster, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.fixtures.ports import free_port
from tests.fixtures.small_log import ROWS, write_log
from tests.fixtures.visible import wait_until_every_bookie_knows

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.log.clients import BlockingLogClient
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


def test_bookies_are_listed_with_their_state_and_address(run: Run, cluster: Cluster) -> None:
    found = run("bookies", "list", "--json").json
    ports = {member.id: member.port for member in cluster.members.bookies}
    assert {b["bookie_id"]: b["address"] for b in found} == {
        name: f"127.0.0.1:{port}" for name, port in ports.items()
    }
    assert {b["state"] for b in found} == {"writable"}
    assert "writable" in run("bookies", "list").out


def test_running_bookies_report_their_disks_and_ledgers(run: Run, cluster: Cluster) -> None:
    cluster.kill("bookie-2")
    try:
        found = {each["bookie_id"]: each for each in run("bookies", "list", "-v", "--json").json}
    finally:
        cluster.start("bookie-2")
    assert 0 < found["bookie-0"]["free_bytes"] <= found["bookie-0"]["total_bytes"]
    assert (found["bookie-1"]["ledgers_in_limbo"], found["bookie-1"]["failure"]) == (0, None)
    assert found["bookie-2"]["free_bytes"] is None
    assert found["bookie-0"]["host"] == "127.0.0.1"
    shown = run("bookies", "list", "--verbose").out
    assert "GB" in shown


def test_one_bookie_is_shown_and_an_unknown_one_gets_the_nearest(run: Run) -> None:
    assert run("bookies", "info", "bookie-1", "--json").json["state"] == "writable"
    assert "ADD_RUN" in run("bookies", "info", "bookie-1").out
    unknown = run("bookies", "info", "boki-1")
    assert unknown.code == 1
    assert "did you mean 'bookie-1'?" in unknown.err


def test_log_is_listed_shown_and_drawn(run: Run, log: str) -> None:
    (found,) = (f for f in run("logs", "list", "--json").json if f["name"] == log)
    assert (found["version"], found["rows"], found["ledgers"]) == (1, 3, 1)
    shown = run("logs", "show", log, "--json").json
    assert shown["schema"] == ["flight number int64", "carrier string", "blob binary"]
    assert [v["operation"] for v in shown["versions"]][-1] == "APPEND"
    assert [r["rows"] for r in shown["ranges"]] == [3]
    picture = run("logs", "show", log).out
    assert "flight number int64" in picture
    assert "bookie-0  ███" in picture


def test_rows_are_read_without_spark(run: Run, log: str) -> None:
    lines = run("logs", "read", log, "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"flight number": 1, "carrier": "UA", "blob": "AA=="},
        {"flight number": 2, "carrier": "AA", "blob": ""},
        {"flight number": 3, "carrier": None, "blob": "eA=="},
    ]
    table = run("logs", "read", log, "--rows", 2).out
    assert "2 of 3 rows of log flights, version 1" in table
    assert "flight number" in table


def test_leader_log_is_shown_and_read_while_it_is_led(run: Run, client: BlockingLogClient) -> None:
    with client.open_log("orders", lead=True) as leader:
        leader.append_many([b"one", b"two", b"\xff"])
        leader.roll()
        leader.append(b"four")
        last = next(client.open_log("orders").tail(3))
        wait_until_every_bookie_knows(client, last.ledger_id, last.entry_id)
        shown = run("logs", "show", "orders", "--json").json
        assert (shown["kind"], shown["content"], shown["rows"]) == ("leader", "records", 4)
        assert shown["schema"] == ["value binary"]
        assert (shown["version"], shown["versions"]) == (None, [])
        assert "CREATE" not in run("logs", "show", "orders").out
        lines = run("logs", "read", "orders", "--json").out.splitlines()
        assert [json.loads(line)["value"] for line in lines] == ["b25l", "dHdv", "/w==", "Zm91cg=="]
        assert "two" in run("logs", "read", "orders").out


def test_leader_log_of_rows_is_shown_and_read_with_its_columns(
    run: Run, client: BlockingLogClient
) -> None:
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    with client.open_log("shipments", lead=True, schema=schema) as leader:
        leader.append_rows(pa.table([[1, 2], ["one", None]], schema=schema))
        leader.roll()
        leader.append_rows(pa.table({"n": [3]}))
        last = next(client.open_log("shipments").tail_rows(2))
        wait_until_every_bookie_knows(client, last.ledger_id, last.entry_id)
        shown = run("logs", "show", "shipments", "--json").json
        assert (shown["kind"], shown["content"], shown["rows"]) == ("leader", "rows", 3)
        assert shown["schema"] == ["n int64", "text string"]
        lines = run("logs", "read", "shipments", "--json").out.splitlines()
        assert [json.loads(line) for line in lines] == [
            {"n": 1, "text": "one"},
            {"n": 2, "text": None},
            {"n": 3, "text": None},
        ]
        leader.truncate(1)
        (line,) = run("logs", "read", "shipments", "--rows", 1, "--json").out.splitlines()
        assert json.loads(line) == {"n": 2, "text": None}
        assert "1 of 2 rows of log shipments" in run("logs", "read", "shipments", "--rows", 1).out


def test_unknown_log_names_the_nearest_one(run: Run, log: str) -> None:
    for command in ("show", "read"):
        ended = run("logs", command, "flihgts")
        assert ended.code == 1
        assert f"did you mean {log!r}?" in ended.err
    assert "the existing logs are flights" in run("logs", "show", "zzz").err


def test_version_that_the_log_does_not_have_is_refused(run: Run, log: str) -> None:
    ended = run("logs", "show", log, "--version", 9)
    assert ended.code in (1, 2)
    assert "9" in ended.err


def test_entries_are_read_as_lines_json_and_raw_bytes(run: Run, client: BlockingClient) -> None:
    ledger = client.create_ledger()
    ledger.append_batch([b"hello", b"\x00\xff"])
    ledger.close()
    assert "hello" in run("ledgers", "read", ledger.id).out
    lines = run("ledgers", "read", ledger.id, "--first", 1, "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"entry_id": 1, "size_bytes": 2, "payload_base64": "AP8="}
    ]
    raw = run("ledgers", "read", ledger.id, "--raw").out
    assert raw.encode(errors="surrogateescape") == b"hello\x00\xff"
    beyond = run("ledgers", "read", ledger.id, "--last", 9)
    assert beyond.code == 2
    assert "the last confirmed entry is 1" in beyond.err


def test_ledger_is_listed_shown_and_sealed(run: Run, client: BlockingClient) -> None:
    ledger = client.create_ledger()
    ledger.append_batch([b"a", b"b"])
    listed = {f["ledger_id"]: f["state"] for f in run("ledgers", "list", "--json").json}
    assert listed[ledger.id] == "OPEN"
    sealed = run("ledgers", "seal", ledger.id, "--json").json
    assert (sealed["state"], sealed["last_entry_id"]) == ("CLOSED", 1)
    shown = run("ledgers", "show", ledger.id, "--json").json
    assert (shown["last_add_confirmed"], shown["length_bytes"]) == (1, 2)
    assert "bookie-2  ██" in run("ledgers", "show", ledger.id).out
    assert "2 entries, 2 bytes" in run("ledgers", "seal", ledger.id).out


def test_wrong_password_says_where_the_right_one_goes(
    run: Run, client: BlockingClient, tmp_path: Path
) -> None:
    ledger = client.create_ledger(password=b"secret")
    ledger.append(b"x")
    ledger.close()
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "wrong").write_text("sercet\n")
    without = run("ledgers", "read", ledger.id)
    assert without.code == 1
    assert "--password-file" in without.err
    wrong = run("ledgers", "seal", ledger.id, "--password-file", tmp_path / "wrong")
    assert wrong.code == 1
    assert "sercet" not in wrong.err
    right = run("ledgers", "read", ledger.id, "--raw", "--password-file", tmp_path / "right")
    assert right.out == "x"


def test_rows_of_a_log_with_a_password_are_read_with_its_file(
    run: Run, client: BlockingClient, tmp_path: Path
) -> None:
    write_log(client, "private", ROWS, password=b"secret")
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "wrong").write_text("sercet\n")
    without = run("logs", "read", "private")
    assert without.code == 1
    assert "--password-file" in without.err
    wrong = run("logs", "read", "private", "--password-file", tmp_path / "wrong")
    assert wrong.code == 1
    assert "wrong does not contain this password" in wrong.err
    assert "sercet" not in wrong.err
    right = run("logs", "read", "private", "--json", "--password-file", tmp_path / "right")
    assert len(right.out.splitlines()) == 3


def test_ledger_of_a_living_log_is_not_deleted_and_of_a_deleted_one_is(
    run: Run, client: BlockingClient
) -> None:
    ledger_id = write_log(client, "short-lived", ROWS)
    refused = run("ledgers", "delete", ledger_id, "--yes")
    assert refused.code == 1
    assert "belongs to log 'short-lived'" in refused.err
    assert (
        "If it is an orphan, run `ledgerlog logs check short-lived --delete-orphans`" in refused.err
    )
    assert len(run("logs", "read", "short-lived", "--json").out.splitlines()) == 3
    BlockingLogs(client).delete("short-lived")
    assert run("ledgers", "delete", ledger_id, "--yes", "--json").json["is_deleted"]
    gone = run("ledgers", "show", ledger_id)
    assert gone.code == 1
    assert f"ledger {ledger_id} does not exist" in gone.err


def test_ledger_is_not_deleted_unasked(
    run: Run, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = client.create_ledger()
    ledger.close()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    ended = run("ledgers", "delete", ledger.id)
    assert ended.code == 2
    assert "--yes" in ended.err
    assert client.ledger_metadata(ledger.id).is_closed


def test_ledger_is_shown_while_its_bookies_are_down(
    run: Run, client: BlockingClient, cluster: Cluster
) -> None:
    ledger = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    ledger.append(b"x")
    (bookie,) = client.ledger_metadata(ledger.id).last_fragment.ensemble
    cluster.kill(bookie)
    try:
        shown = run("ledgers", "show", ledger.id, "--json").json
        assert shown["state"] == "OPEN"
        assert shown["last_add_confirmed"] is None
        assert shown["last_add_confirmed_error"]
    finally:
        cluster.start(bookie)


def test_doctor_finds_the_cluster_and_nothing_missing(run: Run) -> None:
    found = {f["what"]: f for f in run("doctor", "--json").json}
    assert found["cluster"]["found"].startswith("3 writable bookies")
    assert {f["state"] for f in found.values()} <= {"ok", "warning"}
    assert "3 writable bookies" in run("doctor").out


def test_zookeeper_that_is_down_is_named_in_bounded_time(run: Run) -> None:
    port = free_port()
    ended = run("bookies", "list", "-u", f"zk://127.0.0.1:{port}/ledgers")
    assert ended.code == 4
    assert f"127.0.0.1:{port}" in ended.err
    assert "ledgerlog doctor" in ended.err


def test_root_without_a_cluster_is_said_to_have_none(run: Run, cluster: Cluster) -> None:
    uri = f"zk://127.0.0.1:{cluster.zookeeper_port}/nothing/here"
    for command in ("bookies", "ledgers", "logs"):
        ended = run(command, "list", "-u", uri)
        assert ended.code == 1, ended
        assert "no cluster at /nothing/here" in ended.err


def test_port_in_use_is_refused_by_number(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    port = cluster.zookeeper_port
    ended = run("zookeeper", "run", "--directory", tmp_path / "zk", "--port", port)
    assert ended.code == 2
    assert f"port {port}" in ended.err


def test_places_and_the_policy_are_set_and_shown(run: Run) -> None:
    assert run("bookies", "place", "bookie-1", "--rack", "r1", "--json").json["rack"] == "r1"
    assert "r1" in run("bookies", "place", "bookie-1", "--region", "east").done
    policy = run("bookies", "policy", "--min-racks", "3", "--enforce", "regions", "--json").json
    assert policy["policy"]["min_racks_per_write_quorum"] == 3
    assert policy["policy"]["enforce_regions"] is True
    (placed,) = (each for each in policy["bookies"] if each["bookie_id"] == "bookie-1")
    assert (placed["rack"], placed["region"], placed["host"]) == ("r1", "east", "127.0.0.1")
    assert placed["free_bytes"] > 1 << 20
    assert "enforce_regions" in run("bookies", "policy").done
    unknown = run("bookies", "place", "boki-1", "--rack", "r1")
    assert unknown.code == 1
    assert "did you mean 'bookie-1'" in unknown.err
    assert run("bookies", "place", "bookie-1").code == 2
    assert run("bookies", "policy", "--min-racks", "0").code == 2
    assert run("bookies", "policy", "--hosts", "here").code == 2
    assert run("bookies", "policy", "--enforce", "floors").code == 2
    shared = run("bookies", "policy", "--hosts", "same", "--json").json["policy"]
    assert shared["allow_same_host"] is True
    assert run("bookies", "place", "bookie-1", "--clear", "--json").json["rack"] is None
    run("bookies", "policy", "--min-racks", "2", "--enforce", "none", "--hosts", "different")


def test_ledger_shows_the_rules_that_it_breaks(run: Run, client: BlockingClient) -> None:
    with client.create_ledger() as ledger:
        ledger.append(b"x")
    assert "every rule is kept" in run("ledgers", "show", ledger.id).done
    for bookie in range(3):
        run("bookies", "place", f"bookie-{bookie}", "--rack", "r1")
    assert "from entry 0: 1 of 2 racks" in run("ledgers", "show", ledger.id).done
    shown = run("ledgers", "show", ledger.id, "--json").json
    assert shown["fragments"][0]["misplaced"] == ["racks"]
    for bookie in range(3):
        run("bookies", "place", f"bookie-{bookie}", "--clear")
