"""`ledgerlog autorecovery run`: runs the auditor and a replication worker as a process."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri
from ledgerlog_spark.metadata.registration import checked_bookie_id

RUN_EXAMPLE = "ledgerlog autorecovery run --rate 50 >> autorecovery.log"
MEBIBYTE = 1 << 20

app = typer.Typer()


@app.command("run", epilog=f"Example: {RUN_EXAMPLE}")
def run_autorecovery(
    rate: Annotated[
        float,
        typer.Option(
            metavar="MIB",
            help="Maximum number of MiB that are copied in a second; 0 means no limit.",
            min=0,
        ),
    ] = 0.0,
    check_rate: Annotated[
        float,
        typer.Option(
            metavar="MIB",
            help="Maximum number of MiB that the digest check reads in a second.",
            min=0.1,
        ),
    ] = 16.0,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", help="Maximum number of ledgers that are healed at a time.", min=1, max=64
        ),
    ] = 8,
    member: Annotated[
        str,
        typer.Option(
            "--id", metavar="HOST:PORT", help="ID of this process in the nodes of auto-recovery."
        ),
    ] = "",
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Heal a cluster until Ctrl-C or SIGTERM. Print JSON lines.

    The process finds ledgers that lack copies, and copies their entries to
    other bookies. Several such processes may run: one of them audits, and all
    of them copy entries. They work together with the auto-recovery of Apache
    BookKeeper. A process can be killed at any time.
    """
    from ledgerlog_spark.autorecovery.audit.service import settings_at
    from ledgerlog_spark.autorecovery.daemon import AutoRecoveryDaemon, default_id
    from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
    from ledgerlog_spark.upkeep.service import standard_output

    if member:
        checked_bookie_id(member)  # nodes contain this id instead of the id of a bookie
    settings = WorkerSettings(jobs_max=jobs, bytes_per_second_max=int(rate * MEBIBYTE))
    with standard_output() as write_line:
        audit = settings_at(int(check_rate * MEBIBYTE))
        daemon = AutoRecoveryDaemon(uri, member or default_id(), write_line, settings, audit)
        asyncio.run(daemon.run())
