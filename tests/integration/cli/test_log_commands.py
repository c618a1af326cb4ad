"""`logs set|history|restore|sweep|check|truncate|delete|merge` on a real cluster."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.protocol.log.state.records import WriteMode
from ledgerlog_spark.upkeep.rows import write_range
from ledgerlog_spark.upkeep.upkeep import leased
from tests.fixtures.command_line import COMMAND

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.log.blocking.logs import BlockingLog
    from ledgerlog_spark.log.clients import BlockingLogClient
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SCHEMA = pa.schema([("n", pa.int64())])


async def only(rows: pa.RecordBatch) -> AsyncGenerator[pa.RecordBatch, None]:
    yield rows


def append(client: BlockingClient, log: BlockingLog, *counts: int, **how: Any) -> None:
    """Append one range for each count, with rows that contain their offset."""
    from ledgerlog_spark.log.logs import logs_of

    async def work(ledgers: Any) -> None:
        each = logs_of(ledgers).open_by_id(log.name, log.log_id)
        first = (await each.snapshot()).interval.end_offset
        message = encode_schema(SCHEMA)
        job = await each.begin(schema=message, **how)
        ranges = []
        for count in counts:
            rows = pa.record_batch({"n": range(first, first + count)}, schema=SCHEMA)
            writer = await each.open_range(job, message)
            ranges.append(await write_range(writer, message, only(rows)))
            first += count
        await each.commit(job, ranges)

    client.run(work)


@pytest.fixture
def flights(client: BlockingClient, request: pytest.FixtureRequest) -> BlockingLog:
    """A new log for each test, with three commits of 5 and 5 rows."""
    name = request.node.name.removeprefix("test_")[:60]
    log = BlockingLogs(client).create(name)
    for _ in range(3):
        append(client, log, 5, 5)
    return log


def numbers(run: Run, log: BlockingLog) -> list[int]:
    import json

    lines = run("logs", "read", log.name, "--rows", 1_000, "--json").out.splitlines()
    return [json.loads(line)["n"] for line in lines]


def test_properties_are_set_shown_and_unset(run: Run, flights: BlockingLog) -> None:
    done = run("logs", "set", flights.name, "retentionms=5000", "rollMs=60000", "--json").json
    assert (done["properties"]["retentionMs"], done["set"]) == ("5000", ["retentionMs", "rollMs"])
    done = run("logs", "set", flights.name, "--unset", "rollMs", "--json").json
    assert done["set"] == ["retentionMs"]
    shown = run("logs", "set", flights.name)
    assert "retentionMs" in shown.out
    assert "default" in shown.out
    for wrong, says in (
        ("retention=1", "did you mean retentionMs"),
        ("kind=leader", "fixed"),
        ("rollMs", "PROPERTY=VALUE"),
        ("rollMs=soon", "whole number"),
    ):
        refused = run("logs", "set", flights.name, wrong)
        assert refused.code == 2
        assert says in refused.err


def test_history_is_listed_and_a_time_finds_its_version(run: Run, flights: BlockingLog) -> None:
    versions = run("logs", "history", flights.name, "--json").json
    assert [(v["version"], v["rows"]) for v in versions] == [(0, 0), (1, 10), (2, 20), (3, 30)]
    assert "CREATE" in run("logs", "history", flights.name).out
    (found,) = run("logs", "history", flights.name, "--at", "2999-01-01", "--json").json
    assert found["version"] == 3
    early = run("logs", "history", flights.name, "--at", "2001-01-01")
    assert early.code == 1
    assert "version 0 was committed" in early.err
    assert run("logs", "history", flights.name, "--at", "yesterday").code == 2


def test_version_is_restored(run: Run, client: BlockingClient, flights: BlockingLog) -> None:
    append(client, flights, 1, mode=WriteMode.OVERWRITE)
    refused = run("logs", "restore", flights.name, 2)
    assert refused.code == 2
    assert "--yes" in refused.err
    done = run("logs", "restore", flights.name, 2, "--yes", "--json").json
    assert (done["version"], done["is_changed"]) == (5, True)
    assert numbers(run, flights) == list(range(20))
    assert "already" in run("logs", "restore", flights.name, 5, "--yes").out
    assert run("logs", "restore", flights.name, 99).code == 1
    assert run("logs", "restore", flights.name).code == 2


def test_ranges_are_merged_and_a_version_within_them_is_restored(
    run: Run, client: BlockingClient, flights: BlockingLog
) -> None:
    (done,) = run("logs", "merge", flights.name, "--json").json
    assert (done["ranges_before"], done["ranges_after"], done["rows"]) == (6, 1, 30)
    assert numbers(run, flights) == list(range(30))
    assert len(run("logs", "history", flights.name, "--json").json) == 4
    assert run("logs", "restore", flights.name, 1, "--yes").code == 0
    assert numbers(run, flights) == list(range(10))
    assert flights.name in run("logs", "merge", flights.name).out
    assert (
        f"there is nothing to merge in log {flights.name}" in run("logs", "merge", flights.name).out
    )
    assert run("logs", "merge", "nosuchlog").code == 1


def test_truncation_asks_first_and_says_where_the_log_begins(
    run: Run, flights: BlockingLog
) -> None:
    refused = run("logs", "truncate", flights.name, "--offset", 12)
    assert refused.code == 2
    assert "--yes" in refused.err
    done = run("logs", "truncate", flights.name, "--offset", 12, "--yes", "--json").json
    assert (done["start_offset"], done["version"], done["ledgers_unlisted"]) == (12, 4, 2)
    assert numbers(run, flights) == list(range(12, 30))
    assert run("logs", "truncate", flights.name, "--offset", 31, "--yes").code == 2
    assert run("logs", "truncate", flights.name, "--yes").code == 2
    done = run("logs", "truncate", flights.name, "--before", "2999-01-01", "--yes", "--json").json
    assert done["start_offset"] == 30
    assert numbers(run, flights) == []


def test_leader_log_is_truncated_by_time_and_has_no_history(
    run: Run, client: BlockingLogClient
) -> None:
    leader = client.open_log("orders", lead=True)
    for number in range(3):
        leader.append(b"%d" % number)
        leader.roll()
    refused = run("logs", "history", "orders")
    assert refused.code == 1
    assert "no versions" in refused.err
    early = run("logs", "truncate", "orders", "--before", "2001-01-01", "--yes", "--json").json
    assert (early["start_offset"], early["is_changed"]) == (0, False)
    assert (early["version"], early["oldest_version"]) == (None, None)
    done = run("logs", "truncate", "orders", "--before", "2999-01-01", "--yes", "--json").json
    assert (done["start_offset"], done["ledgers_unlisted"], done["is_changed"]) == (3, 3, True)
    again = run("logs", "truncate", "orders", "--offset", 1, "--yes").out
    assert "already begins at offset 3; nothing was deleted" in again
    leader.append(b"3")
    leader.close()
    refused = run("logs", "merge", "orders")
    assert refused.code == 1
    assert "cannot be merged" in refused.err
    assert "orders" not in {merged["log"] for merged in run("logs", "merge", "--json").json}
    assert not run("logs", "check", "orders", "--every-entry", "--json").json["is_damaged"]


def test_sweep_lets_go_of_what_retention_and_grace_allow(
    run: Run, client: BlockingClient, flights: BlockingLog
) -> None:
    run("logs", "set", flights.name, "retentionMs=1", "deletedRetentionMs=1")
    (done,) = run("logs", "sweep", flights.name, "--json").json
    assert (done["start_offset"], done["ledgers_unlisted"]) == (30, 6)
    (again,) = run("logs", "sweep", flights.name, "--json").json
    assert done["ledgers_deleted"] + again["ledgers_deleted"] == 6
    assert flights.name in run("logs", "sweep").out
    assert (flights.check().ledgers, flights.check().orphans) == ((), ())


def test_upkeep_waits_for_the_process_that_does_it_and_names_it(
    run: Run, client: BlockingClient, flights: BlockingLog
) -> None:
    async def hold(ledgers: Any) -> Any:
        context = leased(ledgers)
        await context.__aenter__()
        return context

    held = client.run(hold)
    try:
        busy = run("logs", "merge", flights.name, "--wait", 0)
        assert busy.code == 4
        assert "is maintaining the logs" in busy.err
        assert run("logs", "sweep", flights.name, "--wait", 0).code == 4
    finally:
        client.run(lambda _: held.__aexit__(None, None, None))
    assert run("logs", "sweep", flights.name, "--wait", 0).code == 0


def test_check_finds_a_log_whole_and_a_deleted_ledger_in_it(
    run: Run, client: BlockingClient, flights: BlockingLog
) -> None:
    sound = run("logs", "check", flights.name, "--every-entry", "--json").json
    assert not sound["is_damaged"]
    assert {c["copies"] for c in sound["ledgers"]} == {3}
    assert "sound" in run("logs", "check", flights.name).out
    client.delete_ledger(sound["ledgers"][2]["ledger_id"])
    broken = run("logs", "check", flights.name)
    assert broken.code == 1
    assert "missing" in broken.out


def test_log_is_deleted_once(run: Run, flights: BlockingLog) -> None:
    assert run("logs", "delete", flights.name).code == 2
    assert run("logs", "delete", flights.name, "--yes", "--json").json["is_deleted"]
    gone = run("logs", "delete", flights.name, "--yes")
    assert gone.code == 1
    assert "does not exist" in gone.err


def test_upkeep_as_a_command_passes_once_or_until_a_signal(
    cluster: Cluster, run: Run, log: str
) -> None:
    (line,) = run("upkeep", "run", "--once").out.splitlines()[-1:]
    assert json.loads(line)["event"] == "pass"
    service = subprocess.Popen(
        [*COMMAND, "upkeep", "run", "--metadata-service-uri", cluster.metadata_service_uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        assert json.loads(service.stdout.readline())["event"] == "started"
        service.terminate()
        out, errors = service.communicate(timeout=30)
    finally:
        service.kill()
    assert (service.returncode, errors) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "ended"
    assert run("logs", "show", log).code == 0


def test_all_logs_are_checked_with_one_pass_over_the_ledgers(
    run: Run, client: BlockingLogClient, log: str
) -> None:
    with client.open_log("checked", lead=True) as leader:
        leader.append(b"one")
        leader.roll()
        leader.append(b"two")
        found = json.loads(run("logs", "check", "--all", "--json").out)  # others may be damaged
        by_name = {each["log"]: each for each in found["logs"]}
        for name in (log, "checked"):
            assert by_name[name]["is_readable"]
            assert by_name[name]["findings"] == []
            assert not by_name[name]["is_damaged"]
        assert [each["state"] for each in by_name["checked"]["ledgers"]] == ["closed", "open"]
        offline = run("logs", "check", log, "--offline", "--json").json
        assert {each["entries"] for each in offline["ledgers"]} == {0}
        assert "1 range: sound" in run("logs", "check", log).done
        leader.append(b"the check sealed nothing")


def test_a_check_needs_one_log_or_all(run: Run) -> None:
    for wrong in ((), ("x", "--all")):
        ended = run("logs", "check", *wrong)
        assert (ended.code, ended.out) == (2, "")
        assert "pass the name of a log, or --all" in ended.err
    both = run("logs", "check", "--all", "--offline", "--every-entry")
    assert both.code == 2
    assert "exclude each other" in both.err
