"""`logs create|append|tail`: a first record from a shell, as with Kafka's console tools."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.fixtures.command_line import COMMAND, ROOT
from tests.fixtures.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.clients import BlockingLogClient
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def values(run: Run, log: str, count: int, *options: object) -> list[str]:
    shown = run("logs", "tail", log, *options, "--max-records", count, "--json")
    assert shown.code == 0, shown.err
    return [json.loads(line)["value"] for line in shown.out.splitlines()]


def test_records_of_arguments_and_lines_come_out_in_order(
    run: Run, stdin: Callable[[bytes], None]
) -> None:
    created = run("logs", "create", "orders", "rollBytes=1048576")
    assert created.code == 0, created.err
    assert "logs append orders" in created.out
    assert run("logs", "append", "orders", "one", "two").out == (
        "2 records were appended to log orders: offsets 0 to 1\n"
    )
    lines = [f"line {number}".encode() for number in range(5_000)]
    stdin(b"\n".join(lines) + b"\r\nwithout an end")
    appended = run("logs", "append", "orders", "--json").json
    assert appended == {
        "name": "orders",
        "records": 5_001,
        "first_offset": 2,
        "last_offset": 5_002,
    }
    expected = ["one", "two", *(line.decode() for line in lines), "without an end"]
    assert values(run, "orders", 5_003, "--from-beginning") == expected
    assert values(run, "orders", 1, "--offset", 5_002) == ["without an end"]


def test_a_log_that_is_missing_is_created_by_an_append_and_not_by_a_tail(run: Run) -> None:
    assert run("logs", "tail", "made-by-append", "--from-beginning").code != 0
    assert run("logs", "append", "made-by-append", "first").code == 0
    assert values(run, "made-by-append", 1, "--from-beginning") == ["first"]


def test_nothing_to_append_says_so(run: Run, stdin: Callable[[bytes], None]) -> None:
    stdin(b"")
    assert "no record was appended" in run("logs", "append", "nothing").out


def test_leader_that_is_deposed_when_all_is_acknowledged_has_done_its_work(
    run: Run, client: BlockingLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Taken:
        """Standard input. Another leader takes the log over between the last line and the end."""

        def readline(self, _size: int) -> bytes:
            return next(lines)

    def given() -> Iterator[bytes]:
        yield b"first\n"
        batches = client.open_log("duel").tail_batches(0)
        assert [record.value for record in next(batches)] == [b"first"]
        others.append(client.open_log("duel", lead=True))
        yield b""

    others: list[BlockingLeader] = []
    lines = given()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False, buffer=Taken()))
    appended = run("logs", "append", "duel")
    assert appended.out == "1 record was appended to log duel: offsets 0 to 0\n"
    assert "has another leader" in appended.err
    assert "may be" not in appended.err
    assert appended.code == 0
    assert others[0].append(b"second").offset == 1
    others[0].close()


def test_log_whose_name_is_refused_has_nothing_appended(run: Run) -> None:
    refused = run("logs", "append", "bad name!", "x")
    assert (refused.code, refused.out) == (2, "")
    assert "bad name!" in refused.err


def test_bytes_pass_through_a_pipe_as_they_are(run: Run, stdin: Callable[[bytes], None]) -> None:
    stdin(b"\xff\x00 binary\nplain\n")
    run("logs", "append", "binary")
    shown = run("logs", "tail", "binary", "--from-beginning", "--max-records", 2)
    assert shown.out.encode(errors="surrogateescape") == b"\xff\x00 binary\nplain\n"
    as_json = run("logs", "tail", "binary", "--from-beginning", "--max-records", 1, "--json")
    assert json.loads(as_json.out)["value_base64"] == "/wAgYmluYXJ5"


def test_rows_of_a_leader_are_printed_as_json(run: Run, client: BlockingLogClient) -> None:
    schema = pa.schema([("n", pa.int64()), ("city", pa.string())])
    with client.open_log("rows-of-a-leader", lead=True, schema=schema) as log:
        log.append_rows(pa.table({"n": [1, 2], "city": ["Oslo", None]}, schema=schema))
    shown = run("logs", "tail", "rows-of-a-leader", "--from-beginning", "--max-records", 2)
    assert [json.loads(line) for line in shown.out.splitlines()] == [
        {"n": 1, "city": "Oslo"},
        {"n": 2, "city": None},
    ]


def test_log_of_spark_is_refused_with_what_reads_and_writes_it(run: Run, log: str) -> None:
    for refused in (run("logs", "append", log, "x"), run("logs", "tail", log)):
        assert refused.code != 0
        assert "Spark" in refused.err
        assert "Traceback" not in refused.err


def tail_of(log: str, cluster: Cluster) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "logs", "tail", log, "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {SERVICE_URI_VARIABLE: cluster.metadata_service_uri, "PYTHONPATH": str(ROOT)},
    )


def test_tail_follows_until_ctrl_c_and_prints_no_traceback(run: Run, cluster: Cluster) -> None:
    run("logs", "append", "followed", "before")
    tail = tail_of("followed", cluster)
    assert tail.stdout is not None
    assert tail.stdout.readline() == "before\n"
    run("logs", "append", "followed", "after")
    assert tail.stdout.readline() == "after\n"
    tail.send_signal(signal.SIGINT)
    _, errors = tail.communicate(timeout=PATIENCE_SECONDS)
    assert (tail.returncode, errors.strip()) == (130, "interrupted")


def test_tail_ends_when_nobody_reads_its_output_any_more(run: Run, cluster: Cluster) -> None:
    run("logs", "append", "piped", "the only one")
    with tail_of("piped", cluster) as tail:  # closes the pipes
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == "the only one\n"
        tail.stdout.close()
        assert tail.wait(PATIENCE_SECONDS) == 1
        assert tail.stderr.read() == ""


def test_person_at_a_terminal_sees_what_was_appended_until_ctrl_c(
    run: Run, cluster: Cluster
) -> None:
    ours, theirs = pty.openpty()
    typed = subprocess.Popen(
        [*COMMAND, "logs", "append", "typed"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {SERVICE_URI_VARIABLE: cluster.metadata_service_uri, "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    assert typed.stdout is not None
    assert "Ctrl-D" in typed.stdout.readline()
    os.write(ours, b"a line\n")
    assert values(run, "typed", 1, "--offset", 0) == ["a line"]
    typed.send_signal(signal.SIGINT)
    output, errors = typed.communicate(timeout=PATIENCE_SECONDS)
    os.close(ours)
    assert output == "1 record was appended to log typed: offsets 0 to 0\n"
    assert errors.strip() == "interrupted"
