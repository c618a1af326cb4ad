"""`python -m tests.interop [--only WORDS]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ledgerlog_spark.local.cluster import local_cluster
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from tests.interop.apache_bookies import ApacheBookies
from tests.interop.apache_tools import PULSAR as PULSAR_PROJECT
from tests.interop.apache_tools import ApacheTools, SkippedError, apache_tools
from tests.interop.bookie_in_limbo import bookie_in_limbo
from tests.interop.bookie_loss import bookie_loss
from tests.interop.client_process import COMMANDS, Clients
from tests.interop.dying_writers import BATCHING, dying_writers
from tests.interop.healers import Healers
from tests.interop.healing import healing_on_apache, healing_on_ours
from tests.interop.living_writers import living_writers
from tests.interop.pulsar import PULSAR, pulsar
from tests.interop.stage import (
    JAVA,
    OURS,
    STRIPED,
    STRIPED_OVER_THREE,
    WHOLE,
    Bookies,
    OurBookies,
    Scenario,
    Stage,
    Tally,
)
from tests.interop.version_3 import VERSION_3, version_3

OUR_BOOKIES = 5
OUR_BOOKIES_IN_MIXED = 2
APACHE_BOOKIES = 4
APACHE_BOOKIES_IN_MIXED = 2
REASON_LENGTH_MAX = 400
WIDTH_WITHOUT_TERMINAL = 130


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one scenario."""

    bookies: str
    scenario: Scenario
    tally: Tally
    seconds: float
    failure: str

    @property
    def is_ok(self) -> bool:
        """Whether the scenario ended, and nothing was lost, changed or invented."""
        return not self.failure and self.tally.is_clean


class Run:
    """All scenarios of one run, cluster after cluster."""

    def __init__(self, tools: ApacheTools, directory: Path, only: str) -> None:
        self.rows: list[Row] = []
        self._tools = tools
        self._directory = directory
        self._only = only
        self._played = 0

    def on_our_bookies_and_mixed(self) -> None:
        """Use our ZooKeeper and bookies, then two of our bookies and two Apache bookies."""
        alone = self._chosen(
            "ledgerlog",
            [
                *dying_writers(((JAVA, JAVA), (JAVA, OURS), (OURS, JAVA))),
                *living_writers(),
                *bookie_loss(JAVA, (JAVA, OURS), (WHOLE, STRIPED)),
                *bookie_in_limbo(),
                *healing_on_ours(),
                *version_3(),
            ],
        )
        mixed = self._chosen("mixed", _mixed_scenarios())
        if not alone and not mixed:
            return
        with local_cluster(OUR_BOOKIES, self._directory / "ours") as cluster:
            uri = cluster.metadata_service_uri
            bookies = OurBookies(cluster, Healers(self._tools, uri, self._directory))
            with self._clients(cluster.metadata_service_uri) as clients:
                self._play("ledgerlog", bookies, clients, alone)
            if mixed:
                with ExitStack() as stack:
                    directory = self._directory / "mixed"
                    directory.mkdir()
                    apache = ApacheBookies(
                        self._tools,
                        cluster.metadata_service_uri,
                        directory,
                        count=APACHE_BOOKIES_IN_MIXED,
                    )
                    stack.callback(apache.close)
                    apache.start()
                    for bookie_id in bookies.ids[OUR_BOOKIES_IN_MIXED:]:
                        bookies.stop(bookie_id)
                    clients = stack.enter_context(self._clients(cluster.metadata_service_uri))
                    self._play("mixed", apache, clients, mixed)

    def on_our_bookies_with_pulsar(self) -> None:
        """Use our ZooKeeper and bookies, and brokers of Pulsar.

        Raises:
            SkippedError: Maven cannot resolve Pulsar.
        """
        scenarios = self._chosen("ledgerlog", pulsar())
        if not scenarios:
            return
        tools = apache_tools(PULSAR_PROJECT)
        with local_cluster(OUR_BOOKIES, self._directory / "pulsar") as cluster:
            uri = cluster.metadata_service_uri
            bookies = OurBookies(cluster, Healers(self._tools, uri, self._directory))
            clients = Clients({PULSAR: tools.broker(uri)}, self._directory)
            try:
                self._play("ledgerlog", bookies, clients, scenarios)
            finally:
                clients.close()

    def on_apache_bookies(self) -> None:
        """Use Apache bookies on a separate ZooKeeper, formatted by Apache's shell."""
        scenarios = self._chosen(
            "apache",
            [
                *dying_writers(((OURS, OURS), (OURS, JAVA), (JAVA, OURS))),
                *living_writers(),
                *bookie_loss(OURS, (OURS, JAVA), (WHOLE, STRIPED_OVER_THREE)),
                *healing_on_apache(),
            ],
        )
        if not scenarios:
            return
        directory = self._directory / "apache"
        with ExitStack() as stack:
            zookeeper = stack.enter_context(ZooKeeperProcess(directory / "zookeeper"))
            uri = zookeeper.service_uri
            bookies = ApacheBookies(self._tools, uri, directory, count=APACHE_BOOKIES)
            stack.callback(bookies.close)
            bookies.format()
            bookies.start()
            clients = stack.enter_context(self._clients(uri))
            self._play("apache", bookies, clients, scenarios)

    def _chosen(self, bookies: str, scenarios: list[Scenario]) -> list[Scenario]:
        return [s for s in scenarios if self._only in f"{bookies}: {s.what} ({s.ledger})"]

    @contextmanager
    def _clients(self, uri: str) -> Iterator[Clients]:
        commands = {
            JAVA: self._tools.client(uri),
            BATCHING: self._tools.client(uri, batch_recovery=True),
            VERSION_3: self._tools.client(uri, version_3=True),
            OURS: (*COMMANDS, uri),
        }
        clients = Clients(commands, self._directory)
        try:
            yield clients
        finally:
            clients.close()

    def _play(
        self, name: str, bookies: Bookies, clients: Clients, scenarios: list[Scenario]
    ) -> None:
        with Progress(transient=True) as progress:
            for scenario in progress.track(scenarios, description=f"{name} bookies"):
                self._played += 1
                stage = Stage(self._played, bookies, clients)
                began = time.monotonic()
                failure = ""
                try:
                    scenario.play(stage)
                except Exception as error:  # noqa: BLE001 (a row of the table, and the exit code)
                    failure = f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
                    clients.forget()
                seconds = time.monotonic() - began
                row = Row(name, scenario, stage.tally, seconds, failure)
                self.rows.append(row)
                if not row.is_ok:
                    progress.console.print(
                        f"{name}: {scenario.what} ({scenario.ledger}): {failure or stage.tally}",
                        markup=False,
                    )


def _mixed_scenarios() -> list[Scenario]:
    roles = {"java dies, ours recovers", "ours dies, java recovers", "ours fences java"}
    ledgers = {f"{WHOLE} CRC32C", f"{STRIPED} CRC32C", f"{STRIPED} MAC"}
    everything = [*dying_writers(((JAVA, OURS), (OURS, JAVA))), *living_writers()]
    return [s for s in everything if s.what in roles and s.ledger in ledgers]


def _print_table(rows: list[Row]) -> None:
    table = Table("bookies", "what happens", "ledger", "entries", "in doubt", "seconds", "outcome")
    for row in rows:
        outcome = "[green]ok[/]" if row.is_ok else "[red]failed[/]"
        table.add_row(
            row.bookies,
            row.scenario.what,
            row.scenario.ledger,
            f"{row.tally.entries:,}",
            f"{row.tally.in_doubt:,}" if row.tally.in_doubt else "",
            f"{row.seconds:.1f}",
            outcome,
        )
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)).print(table)


def _end(number: int, _frame: object) -> None:
    """Stop everything that was started. Later signals are ignored."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> int:
    """Return 0 if every scenario succeeded, or if the tools are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="play scenarios with these words, such as 'apache: ours dies'"
    )
    chosen = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)
    try:
        tools = apache_tools()
    except SkippedError as reason:
        print(f"interop skipped: {reason}")
        return 0
    directory = Path(tempfile.mkdtemp(prefix="ledgerlog-interop-"))
    run = Run(tools, directory, chosen.only)
    is_whole = False
    try:
        run.on_our_bookies_and_mixed()
        try:
            run.on_our_bookies_with_pulsar()
        except SkippedError as reason:
            print(f"scenarios with Pulsar skipped: {reason}")
        run.on_apache_bookies()
        is_whole = True
    finally:
        _print_table(run.rows)
        if is_whole and not all(row.is_ok for row in run.rows):
            print(f"what the processes said is in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    total = Tally()
    for row in run.rows:
        total.add(row.tally)
    if total.overstated:
        print(f"{total.overstated} ledgers closed by Java's recovery with too large a length")
    failed = sum(not row.is_ok for row in run.rows)
    print(
        f"interop: {len(run.rows)} scenarios, {total.entries:,} entries, {total.lost} lost, "
        f"{total.changed} changed, {total.invented} invented"
        + (f", {failed} scenarios FAILED" if failed else "")
    )
    return 1 if failed or not run.rows else 0


if __name__ == "__main__":
    sys.exit(main())
