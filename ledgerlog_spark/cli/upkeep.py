"""`ledgerlog upkeep run`: the service that maintains the logs of a cluster."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ledgerlog_spark.cli.cluster import DEFAULT_URI, ServiceUri

EXAMPLE = "Example: ledgerlog upkeep run --interval 60 >> upkeep.log"
INTERVAL_SECONDS = 60.0

app = typer.Typer(
    help="Run the service that merges logs and deletes expired data.",
    epilog=EXAMPLE,
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """The group of `ledgerlog upkeep`."""


@app.command("run", epilog=EXAMPLE)
def run(
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between two passes.", min=1)
    ] = INTERVAL_SECONDS,
    once: Annotated[bool, typer.Option("--once", help="Run one pass and end; for cron.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="With --once: time to wait while another process works.", min=0
        ),
    ] = 0.0,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Maintain all logs of a cluster until Ctrl-C or SIGTERM; print JSON lines.

    The service deletes expired rows and versions, merges small ranges, and
    deletes ledgers that no log needs. A lease in ZooKeeper selects one
    process; others wait. Run it on two machines to survive the loss of one.
    It can be killed at any time.

    With --once the exit code is 1 if a log could not be maintained, and 4 if
    another process holds the lease.
    """
    from ledgerlog_spark.upkeep.service import UpkeepService, standard_output

    if once:
        with standard_output(drain_seconds=None) as write_line:
            service = UpkeepService(uri, write_line)
            code = asyncio.run(service.run_once(wait_seconds=wait))
    else:
        with standard_output() as write_line:
            service = UpkeepService(uri, write_line)
            code = asyncio.run(service.run(interval_seconds=interval))
    raise typer.Exit(code)
