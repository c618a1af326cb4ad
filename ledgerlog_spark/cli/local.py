"""`ledgerlog local`: a cluster of processes on this machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.output import AsJson, console, print_json, print_table
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.local.cluster import USUAL_PORT, Cluster

app = typer.Typer(help="A cluster of processes on this machine.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Option("--directory", "-d", help="Where the cluster keeps its data.")
]
DEFAULT_DIRECTORY = Path(".ledgerlog")


def describe(cluster: Cluster) -> dict[str, Any]:
    """What `up --json` and `status --json` print."""
    known = cluster.status()
    return {
        "metadata_service_uri": cluster.metadata_service_uri if known else None,
        "directory": str(cluster.directory),
        "members": [member.as_json() for member in known],
    }


@app.command(epilog="Example: ledgerlog local up --bookies 3 --detach")
def up(
    directory: Directory = DEFAULT_DIRECTORY,
    bookies: Annotated[
        int | None, typer.Option(help="How many bookies; 3, or as many as there were.")
    ] = None,
    detach: Annotated[bool, typer.Option(help="Leave the processes running and return.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start ZooKeeper and bookies; what an earlier start stored is found again."""
    cluster = Cluster(directory)
    try:
        with console.status("starting") as progress:
            cluster.up(bookies, on_progress=progress.update if not as_json else _silent)
    except BaseException:
        cluster.down()
        raise
    if as_json:
        print_json(describe(cluster))
    else:
        _show(cluster)
        if cluster.zookeeper_port != USUAL_PORT:
            console.print(
                f"port {USUAL_PORT} is taken; point programs at this cluster with\n"
                f"  export LEDGERLOG_METADATA_SERVICE_URI={cluster.metadata_service_uri}"
            )
    if detach:
        return
    _wait_for_interrupt(as_json=as_json)
    cluster.down()


def _silent(_what: str) -> None:
    return


def _wait_for_interrupt(*, as_json: bool) -> None:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    if not as_json:
        console.print("serving; Ctrl-C stops the cluster and keeps its data")
    stopped.wait()


@app.command(epilog="Example: ledgerlog local down --directory .ledgerlog")
def down(directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop every process of the cluster; the data stay."""
    cluster = _existing(directory)
    with console.status("stopping") as progress:
        cluster.down(on_progress=progress.update)
    console.print(f"stopped; the data are in {cluster.directory}")


@app.command(epilog="Example: ledgerlog local status --json")
def status(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """List every process: role, id, port, pid, directory, state."""
    cluster = Cluster(directory)
    if as_json:
        print_json(describe(cluster))
        return
    _show(_existing(directory))


@app.command(epilog="Example: ledgerlog local kill bookie-1")
def kill(
    member: Annotated[str, typer.Argument(help="zookeeper, bookie-0, bookie-1, ...")],
    directory: Directory = DEFAULT_DIRECTORY,
    signal_name: Annotated[str, typer.Option("--signal", help="KILL, TERM, STOP, CONT.")] = "KILL",
) -> None:
    """Send a signal to one process, SIGKILL unless told otherwise."""
    name = signal_name.upper().removeprefix("SIG")
    try:
        number = signal.Signals[f"SIG{name}"]
    except KeyError:
        raise ConfigurationError(
            f"no signal {signal_name!r}; common ones are KILL, TERM, STOP and CONT",
            signal=signal_name,
        ) from None
    killed = _existing(directory).kill(member, number)
    console.print(f"sent {number.name} to {killed.id} (pid {killed.pid})")


@app.command(epilog="Example: ledgerlog local start bookie-1")
def start(
    member: Annotated[str, typer.Argument(help="zookeeper, bookie-0, bookie-1, ...")],
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Start one process that is down."""
    cluster = _existing(directory)
    cluster.members.get(member)
    started = cluster.start(member)
    console.print(f"{started.id} serves on port {started.port} (pid {started.pid})")


def _existing(directory: Path) -> Cluster:
    cluster = Cluster(directory)
    if not cluster.status():
        raise ConfigurationError(
            f"there is no cluster in {cluster.directory}; start one with "
            f"`ledgerlog local up --directory {directory}`",
            directory=str(cluster.directory),
        )
    return cluster


def _show(cluster: Cluster) -> None:
    print_table(
        f"cluster at {cluster.metadata_service_uri}",
        ("role", "id", "port", "pid", "state", "directory"),
        [(m.role, m.id, str(m.port), str(m.pid), m.state, m.directory) for m in cluster.status()],
    )
