"""`ledgerlog local`: manages a cluster of processes on this machine."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.options import LOCAL_DIRECTORY, group
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    print_json,
    print_outcome,
    print_table,
    spinner,
)
from ledgerlog_spark.cli.stop_signals import StopSignals
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.local.cluster import UPKEEP, USUAL_PORT, Cluster
from ledgerlog_spark.local.members import ZOOKEEPER, Member
from ledgerlog_spark.local.running import running_clusters

app = group("Manage a cluster of processes on this machine.", "ledgerlog local up --detach")

Directory = Annotated[
    Path, typer.Option("--directory", "-d", metavar="DIR", help="Directory of the cluster's data.")
]
MemberId = Annotated[
    str, typer.Argument(help="Process: zookeeper, bookie-0, bookie-1, ... or upkeep.")
]
LOOK_SECONDS = 0.5


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return the fields of a cluster in the JSON output of `up`, `down`, `status` and `list`."""
    known = cluster.status()
    return {
        "metadata_service_uri": cluster.metadata_service_uri if known else None,
        "directory": str(cluster.directory),
        "members": [member.as_json() for member in known],
    }


@app.command(epilog="Example: ledgerlog local up --detach")
def up(
    directory: Directory = LOCAL_DIRECTORY,
    bookies: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of bookies. The default is the number at the last start, or 4 for a new "
            "cluster. The number cannot be reduced.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return after the start, and let the processes run.")
    ] = False,
    upkeep: Annotated[
        bool,
        typer.Option(help="Run the upkeep service, which merges logs and deletes expired data."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Start ZooKeeper and bookies. The data of earlier starts is kept.

    Without --detach, the cluster runs until Ctrl-C, which stops all processes
    and keeps the data. If the cluster already runs, the command starts the
    missing processes and returns. By default, commands use the cluster in
    `.ledgerlog` of their working directory.
    """
    cluster = Cluster(directory)
    with StopSignals():
        if as_json:
            started = cluster.up(bookies, upkeep=upkeep, owned=not detach)
            print_json(describe(cluster))
        else:
            with console.status("starting", spinner=spinner()) as progress:
                started = cluster.up(
                    bookies, upkeep=upkeep, owned=not detach, on_progress=progress.update
                )
            _show(cluster)
            _explain(cluster, started, directory)
        if not detach and ZOOKEEPER in started:
            _serve(cluster, is_silent=as_json)
        # `disown` must be the last step. If an error or Ctrl-C occurs before it, the guardian
        # process stops the cluster.
        cluster.disown()


def _serve(cluster: Cluster, *, is_silent: bool) -> None:
    """Wait until ZooKeeper and all bookies have ended. Ctrl-C stops the cluster."""
    try:
        if not is_silent:
            console.print("the cluster is running; Ctrl-C stops it and keeps its data")
        _watch(cluster, is_silent=is_silent)
    except KeyboardInterrupt:
        cluster.down()
        if not is_silent:
            console.print(
                f"the cluster is stopped; its data is in {cluster.directory}", soft_wrap=True
            )
    except BaseException:
        cluster.down()
        raise


def _explain(cluster: Cluster, started: list[str], directory: Path) -> None:
    if ZOOKEEPER not in started:
        done = f"started {', '.join(started)}" if started else "no process was missing"
        console.print(
            f"the cluster is already running: {done}. To stop it, run "
            f"`ledgerlog local down{_named(directory)}`",
            soft_wrap=True,
        )
    if cluster.zookeeper_port != USUAL_PORT:
        console.print(
            f"programs connect to port {USUAL_PORT} by default. To use this cluster, run\n"
            f"  export LEDGERLOG_METADATA_SERVICE_URI={cluster.metadata_service_uri}",
            soft_wrap=True,
        )


def _watch(cluster: Cluster, *, is_silent: bool) -> None:
    """Print each change of the state of a process, until ZooKeeper and all bookies have ended."""
    before = {member.id: member.state for member in cluster.status()}
    while any(state != "down" for member_id, state in before.items() if member_id != UPKEEP):
        time.sleep(LOOK_SECONDS)
        now = {member.id: member.state for member in cluster.status()}
        for member_id, state in now.items():
            if state != before.get(member_id) and not is_silent:
                console.print(f"{member_id} is {state}")
        before = now
    if not is_silent:
        console.print("all processes of the cluster have ended", soft_wrap=True)


@app.command(epilog="Example: ledgerlog local down")
def down(directory: Directory = LOCAL_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop all processes of the cluster, and keep its data."""
    cluster = _existing(directory)
    if as_json:
        cluster.down()
        print_json(describe(cluster))
        return
    ran = bool(cluster.members.running)
    with console.status("stopping", spinner=spinner()) as progress:
        cluster.down(on_progress=progress.update)
    outcome = "the cluster is stopped" if ran else "no process of the cluster was running"
    console.print(f"{outcome}; its data is in {cluster.directory}", soft_wrap=True)


@app.command(epilog="Example: ledgerlog local status --json")
def status(directory: Directory = LOCAL_DIRECTORY, as_json: AsJson = False) -> None:
    """List all processes of the cluster with their states."""
    if as_json:
        print_json(describe(Cluster(directory)))
        return
    _show(_existing(directory))


@app.command("list", epilog="Example: ledgerlog local list")
def list_clusters(as_json: AsJson = False) -> None:
    """List all local clusters that run on this machine."""
    clusters = running_clusters()
    if as_json:
        print_json([describe(cluster) for cluster in clusters])
        return
    if not clusters:
        console.print("no local cluster runs on this machine")
        return
    print_table(
        "local clusters of this machine",
        ("metadata service URI", "running processes", "directory"),
        [
            (
                cluster.metadata_service_uri,
                ", ".join(member.id for member in cluster.members.running),
                str(cluster.directory),
            )
            for cluster in clusters
        ],
    )


@app.command(epilog="Example: ledgerlog local kill bookie-1 --signal STOP")
def kill(
    member: MemberId,
    directory: Directory = LOCAL_DIRECTORY,
    signal_name: Annotated[
        str, typer.Option("--signal", metavar="NAME", help="Signal: KILL, TERM, STOP or CONT.")
    ] = "KILL",
    as_json: AsJson = False,
) -> None:
    """Send a signal to one process; by default SIGKILL."""
    name = signal_name.upper().removeprefix("SIG")
    try:
        number = signal.Signals[f"SIG{name}"]
    except KeyError:
        raise ConfigurationError(
            f"signal {signal_name!r} does not exist; common signals are KILL, TERM, STOP and CONT",
            signal=signal_name,
        ) from None
    killed = _existing(directory).kill(member, number)
    sent = f"sent {number.name} to {killed.id} (pid {killed.pid})"
    print_outcome(killed.as_json(), sent, as_json=as_json)


@app.command(epilog="Example: ledgerlog local start bookie-1")
def start(
    member: MemberId, directory: Directory = LOCAL_DIRECTORY, as_json: AsJson = False
) -> None:
    """Start one process that has stopped."""
    cluster = _existing(directory)
    cluster.members.get(member)
    with StopSignals():
        started = cluster.start(member)
    where = f"serves on port {started.port}" if started.port else "runs"
    text = f"{started.id} {where} (pid {started.pid})"
    print_outcome(started.as_json(), text, as_json=as_json)


def _named(directory: Path) -> str:
    """Return the option --directory as messages show it, or an empty text for the default."""
    return "" if directory == LOCAL_DIRECTORY else f" --directory {directory}"


def _existing(directory: Path) -> Cluster:
    cluster = Cluster(directory)
    if not cluster.status():
        raise ConfigurationError(
            f"there is no cluster in {cluster.directory}: start one with "
            f"`ledgerlog local up{_named(directory)}`, or pass the directory of another cluster "
            "with --directory DIR",
            directory=str(cluster.directory),
        )
    return cluster


def _show(cluster: Cluster) -> None:
    print_table(
        f"cluster at {cluster.metadata_service_uri}, in {cluster.directory}",
        ("role", "id", "port", "pid", "state", "directory"),
        [_row(cluster, member) for member in cluster.status()],
    )


def _row(cluster: Cluster, member: Member) -> tuple[object, ...]:
    where = Path(member.directory)
    if where.is_relative_to(cluster.directory):
        where = where.relative_to(cluster.directory)
    port = str(member.port) if member.port else None  # upkeep has no port
    return member.role, member.id, port, str(member.pid), member.state, str(where)
