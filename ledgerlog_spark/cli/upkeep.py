"""`ledgerlog upkeep run`: the process that keeps the logs of a cluster small."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ledgerlog_spark.cli.cluster import DEFAULT_URI, ServiceUri

EXAMPLE = "Example: ledgerlog upkeep run --interval 60 >> upkeep.log"
INTERVAL_SECONDS = 60.0

app = typer.Typer(
    help="Merge, expire and delete in the background.", epilog=EXAMPLE, no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Merge, expire and delete in the background."""


@app.command("run", epilog=EXAMPLE)
def run(
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Pause between two passes.", min=1)
    ] = INTERVAL_SECONDS,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and end; for cron.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Time to wait for another process, with --once.", min=0
        ),
    ] = 0.0,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Maintain all logs of a cluster until Ctrl-C or SIGTERM; print a JSON object per line.

    Deletes rows beyond their retention, merges small ranges, and deletes
    expired versions and ledgers that no log needs. A lease lets one process
    work while others wait: run two on two machines to survive the loss of
    one. It is safe beside readers and writers, and safe to kill.

    With --once the exit code is 1 if a log could not be maintained, 4 if
    another process works.
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
