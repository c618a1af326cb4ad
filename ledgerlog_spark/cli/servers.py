"""`ledgerlog zookeeper run` and `ledgerlog bookie run`: one server in the foreground."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from ledgerlog_spark.cli.output import console
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

zookeeper = typer.Typer(help="ZooKeeper from PySpark's jars.", no_args_is_help=True)
bookie = typer.Typer(help="One bookie.", no_args_is_help=True)


@zookeeper.callback()
def _zookeeper_group() -> None:
    """ZooKeeper from PySpark's jars."""


@bookie.callback()
def _bookie_group() -> None:
    """One bookie."""


@zookeeper.command("run", epilog="Example: ledgerlog zookeeper run --directory zk --port 2181")
def run_zookeeper(
    directory: Annotated[Path, typer.Option("--directory", "-d", help="Its data.")],
    port: Annotated[int, typer.Option(help="TCP port on 127.0.0.1.")] = 2181,
) -> None:
    """Run a ZooKeeper server until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with ZooKeeperProcess(directory, port=port) as server:
        console.print(f"ZooKeeper serves {server.service_uri} (pid {server.pid}); Ctrl-C stops it")
        while server.is_running and not stopped.wait(1.0):
            continue
        if not stopped.is_set():
            console.print(f"ZooKeeper ended by itself; read {server.log_path}")
            raise typer.Exit(1)


@bookie.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    epilog="Example: ledgerlog bookie run --directory data --port 3181",
)
def run_bookie(context: typer.Context) -> None:
    """Run a bookie until Ctrl-C or SIGTERM; all options are those of `python -m bookie_server`."""
    command = [sys.executable, "-m", "bookie_server", *context.args]
    os.execv(command[0], command)  # noqa: S606 (this very interpreter)
