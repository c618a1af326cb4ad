"""`ledgerlog doctor`: checks this machine, and gives advice if a check finds a problem."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from ledgerlog_spark.cli.options import DEFAULT_URI, GivenUri, chosen_uri, registration
from ledgerlog_spark.cli.output import AsJson, console, print_json
from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    LedgerLogError,
    MetadataUnavailableError,
)
from ledgerlog_spark.local.cluster import USUAL_PORT, zookeeper_answers
from ledgerlog_spark.local.requirement import install_command
from ledgerlog_spark.local.zookeeper import find_jars, find_java, port_is_free
from ledgerlog_spark.model import BookieInfo

PACKAGES = ("crc32c", "grpcio", "kazoo", "lz4", "pyarrow", "pyspark", "uvloop")
CLUSTER_BYTES_MIN = 2 << 30
"""Free bytes on the disk for a local cluster. Each bookie keeps `free_bytes_min` bytes free."""
CONNECT_TIMEOUT_SECONDS = 2.0
ADVICE_INDENT = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. If there is a problem, `advice` contains the remedy."""

    what: str
    state: str  # `ok`, `warning` (it works with limits), or `missing` (a part will not work)
    found: str
    advice: str = ""

    @classmethod
    def of(cls, what: str, found: str, advice: str, *, is_good: bool) -> Finding:
        """Return a finding `ok` without advice if `is_good`, otherwise a `warning` with advice."""
        return cls(what, "ok", found) if is_good else cls(what, "warning", found, advice)


def doctor(
    uri: GivenUri = DEFAULT_URI,
    executors: Annotated[
        bool,
        typer.Option(
            "--executors", help="Also start Spark, and check the packages on its executors."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check Java, packages, ports, disk, the cluster, and the Python of Spark's tasks.

    The exit code is 1 if something that ledgerlog needs is missing.
    """
    findings: list[Finding] = []
    checks = (_python, _packages, _jar, _zookeeper, _port, _disk, _open_files, _worker_python)
    for check in checks:
        findings += check()
    findings += _cluster(uri)
    if executors:
        findings += _executors()
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        signs = {
            "ok": "[green]ok[/]",
            "warning": "[yellow]warning[/]",
            "missing": "[red]missing[/]",
        }
        for f in findings:
            found = escape(f.found)
            console.print(f"{signs[f.state]:>14}  [bold]{f.what}[/]  {found}", markup=True)
            if f.advice:
                console.print(Padding(f.advice, (0, 0, 0, ADVICE_INDENT), expand=False))
    if any(f.state == "missing" for f in findings):
        raise typer.Exit(1)


def _python() -> Iterator[Finding]:
    yield Finding.of(
        "Python",
        f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}",
        "ledgerlog is tested with Python 3.11 to 3.13",
        is_good=(3, 11) <= sys.version_info[:2] <= (3, 13),
    )


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield Finding(f"package {name}", "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(f"package {name}", "missing", "", install_command(name))


def _jar() -> Iterator[Finding]:
    from ledgerlog_spark.datasource.jar import built_for, fits

    with contextlib.suppress(metadata.PackageNotFoundError):
        spark, built = metadata.version("pyspark"), built_for()
        found = "no jar" if built is None else f"a jar for Spark {built}, and PySpark {spark}"
        advice = (
            'scans of format("ledger") run in Python, which is slower: build the jar of this '
            "version of Spark with `make shim`"
        )
        yield Finding.of("JVM engine", found, advice, is_good=fits(spark))


def _zookeeper() -> Iterator[Finding]:
    jars = "ZooKeeper in PySpark", lambda: f"{len(find_jars())} jars"
    for what, find in (("Java", find_java), jars):
        try:
            yield Finding(what, "ok", find())
        except ConfigurationError as error:
            yield Finding(what, "missing", "", str(error))


def _port() -> Iterator[Finding]:
    what = f"port {USUAL_PORT}"
    if port_is_free(USUAL_PORT):
        yield Finding(what, "ok", "free for a local cluster")
    elif zookeeper_answers(USUAL_PORT):
        yield Finding(what, "ok", "used by a ZooKeeper server")
    else:
        advice = "`ledgerlog local up` uses another port and prints the URI of the cluster"
        yield Finding(what, "warning", "used by a program that is not ZooKeeper", advice)


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(".").free
    yield Finding.of(
        "disk",
        f"{free / 1e9:,.1f} GB free here",
        "bookies become read-only when the disk is nearly full: free some space",
        is_good=free >= CLUSTER_BYTES_MIN,
    )


def _open_files() -> Iterator[Finding]:
    try:
        import resource

        from bookie_server.descriptors import LIMIT_ADVISED, LIMIT_MIN
    except ImportError:  # this operating system has no limit for open files
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    is_unlimited = hard == resource.RLIM_INFINITY
    yield Finding.of(
        "open files",
        "no limit" if is_unlimited else f"{hard:,} at most",
        f"with fewer than {LIMIT_ADVISED:,}, a bookie accepts fewer connections; with fewer than "
        f"{LIMIT_MIN}, it does not start: raise the hard limit (`ulimit -Hn`, or LimitNOFILE= of a "
        "systemd unit)",
        is_good=is_unlimited or hard >= LIMIT_ADVISED,
    )


def _worker_python() -> Iterator[Finding]:
    chosen = os.environ.get("PYSPARK_PYTHON")
    found = shutil.which(chosen or "python3") or "nothing"
    same = os.path.realpath(found) == os.path.realpath(sys.executable)
    in_same_environment = os.path.dirname(found) == os.path.dirname(sys.executable)  # noqa: PTH120
    yield Finding.of(
        "Python of Spark's tasks",
        found,
        f"Spark's tasks would run {found}: set PYSPARK_PYTHON={sys.executable}, "
        "or call ledgerlog_spark.configure(builder)",
        is_good=same and in_same_environment,
    )


def _cluster(given: str) -> Iterator[Finding]:
    uri = ""
    try:
        uri = chosen_uri(given)
        writable, read_only, infos = asyncio.run(_look_at_cluster(uri))
    except LedgerLogError as error:
        if not (uri and isinstance(error, MetadataUnavailableError)):
            yield Finding("cluster", "warning", "", str(error))
            return
        advice = (
            "start a cluster with `ledgerlog local up`, or pass the --metadata-service-uri of a "
            "running cluster"
        )
        yield Finding("cluster", "warning", f"no answer from {uri}", advice)
        return
    yield Finding.of(
        "cluster",
        f"{writable} writable bookies, {read_only} read-only, at {uri}",
        "writes will fail: start bookies, or read the log files of the stopped bookies",
        is_good=bool(writable),
    )
    for info in infos:
        try:
            socket.create_connection((info.host, info.port), CONNECT_TIMEOUT_SECONDS).close()
        except OSError as error:
            yield Finding(
                f"bookie {info.bookie_id}",
                "warning",
                f"{info.host}:{info.port} cannot be reached from here: {error}",
                "the bookie may be down: a bookie stays registered until its session ends. Run "
                "`ledgerlog local status`. If the bookie runs, check the network and its "
                "--advertised-address",
            )


async def _look_at_cluster(uri: str) -> tuple[int, int, list[BookieInfo]]:
    """Return the numbers of writable and of read-only bookies, and all their registrations."""
    async with registration(uri) as store:
        writable, read_only = await store.writable(), await store.read_only()
        infos: list[BookieInfo] = []
        for bookie_id in (*writable, *read_only):
            with contextlib.suppress(BookieUnavailableError):  # the registration has just ended
                infos.append(await store.info(bookie_id))
        return len(writable), len(read_only), infos


def _executors() -> Iterator[Finding]:
    try:
        found = _look_from_tasks()
    except Exception as error:  # noqa: BLE001 - Spark, Py4J and the JVM raise errors of many types
        reason = str(error).strip().partition("\n")[0]
        remedy = "make sure that Spark can run a job with one task, and retry"
        yield Finding("Spark", "missing", f"{type(error).__name__}: {reason}", remedy)
        return
    for host, python, versions in found:
        missing = [name for name, version in versions if version is None]
        same = python == sys.version_info[:2]
        advice = [f"install on every executor: {', '.join(missing)}"] if missing else []
        if not same:
            advice.append("use the same Python for the driver and the tasks: set PYSPARK_PYTHON")
        yield Finding(
            f"tasks on {host}",
            "ok" if same and not missing else "missing",
            f"Python {python[0]}.{python[1]}, " + ", ".join(f"{n} {v}" for n, v in versions if v),
            "; ".join(advice),
        )


Looked = tuple[str, tuple[int, int], tuple[tuple[str, str | None], ...]]


def _look_from_tasks() -> list[Looked]:
    """Return the host, Python version and package versions of each executor, without duplicates."""
    from pyspark.sql import SparkSession

    import ledgerlog_spark

    builder = SparkSession.builder.appName("ledgerlog doctor")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    ledgerlog_spark.configure(builder)
    session = builder.getOrCreate()
    try:
        context = session.sparkContext
        slots = context.defaultParallelism
        look = _task(("ledgerlog", *PACKAGES))
        return sorted(set(context.range(slots, numSlices=slots).map(look).collect()))
    finally:
        session.stop()


def _task(names: tuple[str, ...]) -> Callable[[int], Looked]:
    """Return the function that runs in a task.

    Spark sends the code of an inner function to the executor. To call a function of a module, the
    executor would have to import ledgerlog, which may not be installed there.
    """

    def look(_number: int) -> Looked:
        import platform
        import sys
        from importlib import metadata

        versions: list[tuple[str, str | None]] = []
        for name in names:
            try:
                versions.append((name, metadata.version(name)))
            except metadata.PackageNotFoundError:
                versions.append((name, None))
        python = (sys.version_info.major, sys.version_info.minor)
        return platform.node(), python, tuple(versions)

    return look
