"""`ledgerlog ledgers accept-loss`: gives up unreadable entries of a ledger."""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from typing import Annotated

import typer

from ledgerlog_spark.cli.ledgers.commands import LedgerId
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, Yes, confirm, metadata
from ledgerlog_spark.cli.output import AsJson, counted, print_outcome
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.tools.loss_acceptance import (
    ReportedLoss,
    accept_loss,
    reported_loss,
    require_unreadable,
)
from ledgerlog_spark.transport.v2.transport import V2Transport
from ledgerlog_spark.wire.ledger_loss import LedgerLoss

RANGES_SHOWN_MAX = 10
READ_TIMEOUT_MS = ClientSettings().read_timeout_ms

app = typer.Typer()


@app.command(
    "accept-loss",
    epilog='Example: ledgerlog ledgers accept-loss 17 --reason "disks of b1 and b2 burnt"',
)
def accept(
    ledger_id: LedgerId,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason why the loss is accepted. It is recorded.")
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also give up entries although a bookie that may have them does not answer.",
        ),
    ] = False,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Give up the entries of a ledger that auto-recovery could not read anywhere.

    All copies are read once more. If a copy is intact, the command fails.
    Otherwise the entries, the time, the reason and your name are recorded in
    ZooKeeper, and auto-recovery no longer tries to read these entries. The
    ledger does not become shorter: reads of these entries still fail. Without
    --force, the command fails while a bookie may still have an entry.
    """
    if not reason.strip():
        raise ConfigurationError("--reason is empty: write why the loss is accepted")
    loss, losses = asyncio.run(_accept(uri, ledger_id, reason, is_forced=force, yes=yes))
    fields = {
        "ledger_id": ledger_id,
        "entries_count": loss.entries_count,
        "ranges": loss.ranges,
        "acceptances": len(losses.acceptances),
    }
    print_outcome(fields, f"gave up {_text(loss)}", as_json=as_json)


async def _accept(
    uri: str, ledger_id: int, reason: str, *, is_forced: bool, yes: bool
) -> tuple[ReportedLoss, LedgerLoss]:
    async with metadata(uri) as stores:
        loss = await reported_loss(stores, ledger_id, is_forced=is_forced)
        if not yes:
            typer.echo(f"{_text(loss)} are given up for ever", err=True)
            confirm(f"accept the loss of ledger {ledger_id}", otherwise="nothing was given up")
        transport = V2Transport(stores.registration.info)
        try:
            await require_unreadable(transport, loss, timeout_ms=READ_TIMEOUT_MS)
        finally:
            await transport.aclose()
        losses = await accept_loss(
            stores,
            loss,
            is_forced=is_forced,
            accepted_ms=time.time_ns() // 1_000_000,
            accepted_by=f"{getpass.getuser()}@{socket.gethostname()}",
            reason=reason,
        )
        return loss, losses


def _text(loss: ReportedLoss) -> str:
    shown = ", ".join(
        f"{first}" if first == last else f"{first} to {last}"
        for first, last in loss.ranges[:RANGES_SHOWN_MAX]
    )
    more = ", ..." if len(loss.ranges) > RANGES_SHOWN_MAX else ""
    entries = counted(loss.entries_count, "entry", "entries")
    return f"{entries} of ledger {loss.ledger_id} ({shown}{more})"
