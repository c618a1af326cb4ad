"""No command seals or recovers a ledger, unless its name says so: each runs beside live writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docs.generate.commands import commands
from ledgerlog_spark.model import LedgerState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.clients import BlockingLogClient
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SEALS = {"ledgers seal"}

FILES = "reads or changes the files of a stopped bookie, or its cookie"
SERVER = "a server, which runs until it is stopped"
LOCAL = "starts or ends the processes of a cluster of its own"
NOT_RUN = {
    **dict.fromkeys(
        ("bookie check", "bookie dump", "bookie rebuild-index", "bookie format", "bookie upgrade",
         "bookie downgrade", "bookie inspect manifest", "bookie inspect journal",
         "bookie inspect entrylog", "bookie inspect index", "bookie inspect ledger",
         "bookie cookie create", "bookie cookie fix"), FILES),
    **dict.fromkeys(("zookeeper run", "bookie run", "autorecovery run"), SERVER),
    **dict.fromkeys(
        ("demo", "local up", "local down", "local kill", "local start", "local list",
         "local status"), LOCAL),
    "cluster nuke": "refuses while a bookie is registered",
    "logs append": "becomes the leader of the log, as its help states",
    "logs tail": "runs until Ctrl-C; its tests let it end by --max-records",
    "logs delete": "deletes the log of the test",
    "bookies drain": "empties a bookie",
    "bookies decommission": "empties a bookie",
    "bookies recover": "closes ledgers whose bookies are lost, as its help states",
}  # fmt: skip
"""Commands that this test does not run, with the reason."""

LEDGER = "{ledger}"
LOG = "{log}"
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "simpletest": ("--entries", "5"),
    "doctor": (),
    "bookie cookie show": ("--bookie-id", "bookie-0"),
    "bookie cookie delete": ("bookie-0", "--yes"),
    "bookie limbo list": ("--bookie-id", "bookie-0"),
    "bookie limbo accept": (LEDGER, "--bookie-id", "bookie-0", "--reason", "none", "--yes"),
    "bookie limbo raise": ("--bookie-id", "bookie-0", "--reason", "none", "--yes"),
    "cluster init": (),
    "cluster info": (),
    "bookies list": ("--verbose",),
    "bookies info": ("bookie-0",),
    "bookies sanity": ("bookie-0",),
    "bookies place": ("bookie-0", "--clear"),
    "bookies policy": (),
    "ledgers list": (),
    "ledgers show": (LEDGER, "--replicas"),
    "ledgers read": (LEDGER,),
    "ledgers delete": (LEDGER,),
    "ledgers check": ("--all",),
    "ledgers export": (LEDGER,),
    "ledgers import": ("{file}", "--yes"),
    "ledgers accept-loss": (LEDGER, "--reason", "none", "--yes"),
    "logs list": (),
    "logs show": (LOG,),
    "logs read": (LOG,),
    "logs create": ("another",),
    "logs set": (LOG, "retentionMs=1000000000000"),
    "logs history": (LOG,),
    "logs restore": (LOG, "0"),
    "logs truncate": (LOG, "--offset", "0"),
    "logs sweep": (LOG,),
    "logs merge": (),
    "logs check": (LOG, "--every-entry", "--delete-orphans"),
    "upkeep run": ("--once",),
    "autorecovery status": ("--ledger", LEDGER),
    "autorecovery queue": (),
    "autorecovery enable": (),
    "autorecovery disable": (),
    "autorecovery audit": (),
    "autorecovery delay": ("60",),
}


def test_each_command_is_run_or_has_a_reason() -> None:
    known = {*ARGUMENTS, *NOT_RUN, *SEALS}
    assert sorted(set(commands()) - known) == []
    assert all(NOT_RUN.values())


def test_no_command_stops_a_writer_or_a_leader(
    run: Run, client: BlockingLogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    file = tmp_path / "record.json"
    writer = client.create_ledger()
    writer.append(b"first")
    with client.open_log("led", lead=True) as leader:
        leader.append(b"first")
        run("ledgers", "export", writer.id, "--output", file)
        values = {LEDGER: str(writer.id), LOG: "led", "{file}": str(file)}
        for words, arguments in ARGUMENTS.items():
            run(*words.split(), *(values.get(each, each) for each in arguments))
            state = client.ledger_metadata(writer.id).state
            assert state is LedgerState.OPEN, f"`{words}` changed the state to {state.name}"
            writer.append(words.encode())  # fails if a bookie has fenced the ledger
            leader.append(words.encode())
    assert run("ledgers", "seal", writer.id, "--json").json["state"] == "CLOSED"
    assert run("autorecovery", "enable").code == 0


def test_the_command_that_seals_stops_the_writer(run: Run, client: BlockingClient) -> None:
    writer = client.create_ledger()
    writer.append(b"first")
    run("ledgers", "seal", writer.id)
    assert client.ledger_metadata(writer.id).state is LedgerState.CLOSED
    with pytest.raises(Exception, match=r"fenced|closed|recover"):
        writer.append(b"second")
