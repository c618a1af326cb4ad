"""`ledgerlog upkeep run`: the process that keeps the logs of a cluster small."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from ledgerlog_spark.cli.output import DEFAULT_URI, ServiceUri

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
    once: Annotated[bool, typer.Option("--once", help="One pass, then end; for cron.")] = False,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="With --once: wait for another process.", min=0),
    ] = 0.0,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Keep up all logs of a cluster until Ctrl-C or SIGTERM; one JSON object a line.

    It drops rows that retention no longer keeps, merges small ranges, deletes expired versions and
    ledgers that no log needs. One process at a time works, under a lease; others wait, so two of
    them on two machines survive the loss of one. Safe beside readers and writers, and to kill.

    With --once the exit code is 1 when a log could not be kept up, 4 when another process works.
    """
    from ledgerlog_spark.upkeep.service import UpkeepService

    service = UpkeepService(uri, _write_line)
    if once:
        raise typer.Exit(asyncio.run(service.run_once(wait_seconds=wait)))
    raise typer.Exit(asyncio.run(service.run(interval_seconds=interval)))


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
