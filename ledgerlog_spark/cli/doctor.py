"""`ledgerlog doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated

import typer
from rich.markup import escape

from ledgerlog_spark.cli.output import DEFAULT_URI, AsJson, ServiceUri, console, print_json
from ledgerlog_spark.errors import ConfigurationError, LedgerLogError
from ledgerlog_spark.local.cluster import USUAL_PORT
from ledgerlog_spark.local.zookeeper import find_jars, find_java, port_is_free

PACKAGES = ("crc32c", "grpcio", "kazoo", "lz4", "pyarrow", "pyspark", "uvloop")
FREE_BYTES_MIN = 2 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: `ok`, `warning` (works, with a limit) or `missing` (something will not work).
        advice: What to do, empty when nothing.
    """

    what: str
    state: str
    found: str
    advice: str = ""


def doctor(
    uri: ServiceUri = DEFAULT_URI,
    executors: Annotated[
        bool, typer.Option(help="Start Spark and look for the packages where its tasks run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check Java, packages, ports, disk, the cluster, and what Spark's tasks will find."""
    findings: list[Finding] = []
    for check in (_python, _packages, _java, _zookeeper_jars, _port, _disk, _worker_python):
        findings += check()
    findings += _cluster(uri)
    if executors:
        findings += _executors()
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        signs = {"ok": "[green]ok[/]", "warning": "[yellow]look[/]", "missing": "[red]missing[/]"}
        for f in findings:
            console.print(f"{signs[f.state]:>14}  [bold]{f.what}[/]  {escape(f.found)}")
            if f.advice:
                console.print(f"          {escape(f.advice)}")
    if any(f.state == "missing" for f in findings):
        raise typer.Exit(1)


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding(
        "Python",
        "ok" if good else "warning",
        f"{version} at {sys.executable}",
        "" if good else "ledgerlog is tested with Python 3.11 to 3.13",
    )


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield Finding(f"package {name}", "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            extra = "ledgerlog[spark]" if name == "pyspark" else "ledgerlog"
            yield Finding(f"package {name}", "missing", "", f"pip install '{extra}'")


def _java() -> Iterator[Finding]:
    yield _tried("Java", find_java)


def _zookeeper_jars() -> Iterator[Finding]:
    yield _tried("ZooKeeper in PySpark", lambda: f"{len(find_jars())} jars")


def _tried(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, "ok", check())
    except ConfigurationError as error:
        return Finding(what, "missing", "", str(error))


def _port() -> Iterator[Finding]:
    if port_is_free(USUAL_PORT):
        yield Finding(f"port {USUAL_PORT}", "ok", "free for a local cluster")
    else:
        yield Finding(
            f"port {USUAL_PORT}",
            "warning",
            "in use",
            "a local cluster takes another port and prints the URI to use",
        )


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(".").free
    yield Finding(
        "disk",
        "ok" if free >= FREE_BYTES_MIN else "warning",
        f"{free / 1e9:,.1f} GB free here",
        "" if free >= FREE_BYTES_MIN else "bookies turn read-only when a directory runs full",
    )


def _worker_python() -> Iterator[Finding]:
    chosen = os.environ.get("PYSPARK_PYTHON")
    found = shutil.which(chosen or "python3") or "nothing"
    same = os.path.realpath(found) == os.path.realpath(sys.executable)
    in_same_environment = os.path.dirname(found) == os.path.dirname(sys.executable)  # noqa: PTH120
    good = same and in_same_environment
    yield Finding(
        "Python of Spark's tasks",
        "ok" if good else "warning",
        found,
        ""
        if good
        else f"Spark's tasks would run {found}: set PYSPARK_PYTHON={sys.executable}, "
        "or let ledgerlog_spark.configure(builder) do it",
    )


def _cluster(uri: str) -> Iterator[Finding]:
    import asyncio

    from ledgerlog_spark.connect import registration

    async def look() -> str:
        async with registration(uri) as store:
            writable, read_only = await store.writable(), await store.read_only()
            return f"{len(writable)} writable bookies, {len(read_only)} read-only, at {uri}"

    try:
        yield Finding("cluster", "ok", asyncio.run(look()))
    except LedgerLogError as error:
        yield Finding(
            "cluster",
            "warning",
            "",
            f"{error} Start one with `ledgerlog local up`, or give --metadata-service-uri.",
        )


def _executors() -> Iterator[Finding]:
    from pyspark.sql import SparkSession

    import ledgerlog_spark

    builder = SparkSession.builder.appName("ledgerlog doctor")
    ledgerlog_spark.configure(builder)
    session = builder.getOrCreate()
    try:
        slots = session.sparkContext.defaultParallelism
        for host, found in session.sparkContext.range(slots, numSlices=slots).map(_look).collect():
            missing = [name for name, version in found if version is None]
            yield Finding(
                f"task on {host}",
                "missing" if missing else "ok",
                ", ".join(f"{n} {v}" for n, v in found if v),
                f"install on every executor: {', '.join(missing)}" if missing else "",
            )
    finally:
        session.stop()


def _look(_number: int) -> tuple[str, list[tuple[str, str | None]]]:
    """Runs in a Spark task."""
    import socket

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return socket.gethostname(), [(n, version(n)) for n in ("ledgerlog", *PACKAGES)]
