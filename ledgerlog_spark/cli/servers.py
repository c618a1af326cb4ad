"""`ledgerlog zookeeper|bookie|upkeep run`: runs one server in the foreground."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, group
from ledgerlog_spark.cli.output import console
from ledgerlog_spark.cli.stop_signals import StopSignals
from ledgerlog_spark.lines import DRAIN_SECONDS
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.upkeep.service import INTERVAL_SECONDS

ZOOKEEPER_EXAMPLE = "ledgerlog zookeeper run --directory zk --port 2181"
BOOKIE_EXAMPLE = (
    "ledgerlog bookie run --directory data/b1 --port 3181 "
    "--metadata-service-uri zk://127.0.0.1:2181/ledgers"
)
UPKEEP_EXAMPLE = "ledgerlog upkeep run --interval 60 >> upkeep.log"
LOOK_SECONDS = 0.5

zookeeper = group("Run the ZooKeeper server that PySpark contains.", ZOOKEEPER_EXAMPLE)
bookie = group(
    "Run one bookie, or examine, repair or delete the files of a stopped bookie.", BOOKIE_EXAMPLE
)
upkeep = group("Run the service that merges logs and deletes expired data.", UPKEEP_EXAMPLE)


@zookeeper.command("run", epilog=f"Example: {ZOOKEEPER_EXAMPLE}")
def run_zookeeper(
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIR", help="Directory of the data.")
    ],
    port: Annotated[
        int, typer.Option(metavar="N", help="TCP port on 127.0.0.1.", min=1, max=65_535)
    ] = 2181,
) -> None:
    """Run a ZooKeeper server until Ctrl-C or SIGTERM."""
    with StopSignals(), ZooKeeperProcess(directory, port=port) as server:
        console.print(
            f"ZooKeeper serves {server.service_uri} (pid {server.pid}); Ctrl-C stops it",
            soft_wrap=True,
        )
        try:
            while server.is_running:
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            return
        console.print(f"ZooKeeper has ended unexpectedly; read {server.log_path}", soft_wrap=True)
        raise typer.Exit(1)


@bookie.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    epilog=f"Example: {BOOKIE_EXAMPLE}",
)
def run_bookie(context: typer.Context) -> None:
    """Run a bookie until Ctrl-C or SIGTERM. It has the options of `python -m bookie_server`."""
    from bookie_server.__main__ import settings_parser

    parser = settings_parser()  # --help and usage errors show the name of this command
    parser.prog = "ledgerlog bookie run"
    parser.epilog = f"Example: {BOOKIE_EXAMPLE}"
    parser.parse_args(context.args)
    command = [sys.executable, "-m", "bookie_server", *context.args]
    os.execv(command[0], command)  # noqa: S606 (the interpreter that runs this program)


@upkeep.command("run", epilog=f"Example: {UPKEEP_EXAMPLE}")
def run_upkeep(
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between two passes.", min=1)
    ] = INTERVAL_SECONDS,
    once: Annotated[
        bool, typer.Option("--once", help="Run one pass and exit, for example under cron.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="With --once: maximum time to wait while another process has the lease.",
            min=0,
        ),
    ] = 0.0,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Maintain all logs of a cluster until Ctrl-C or SIGTERM. Print JSON lines.

    The service deletes expired rows and versions, merges small ranges, and
    deletes ledgers that no log needs. Only the process that has a lease in
    ZooKeeper works, and other processes wait. So you can run the service on
    two machines, and one of these machines may fail. A process can be killed
    at any time.

    With --once, the exit code is 1 if a log could not be maintained, and 4 if
    another process has the lease.
    """
    from ledgerlog_spark.upkeep.service import UpkeepService, standard_output

    with standard_output(drain_seconds=None if once else DRAIN_SECONDS) as write_line:
        service = UpkeepService(uri, write_line)
        running = (
            service.run_once(wait_seconds=wait) if once else service.run(interval_seconds=interval)
        )
        code = asyncio.run(running)
    raise typer.Exit(code)
