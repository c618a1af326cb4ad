"""`ledgerlog ledgers check`: verifies the metadata and the copies of ledgers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, metadata
from ledgerlog_spark.cli.output import AsJson, console, counted, print_json, print_table, spinner
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.tools.findings import Severity, ToolFinding
from ledgerlog_spark.tools.ledger_check import LedgerCheck, LedgersReport, states_text
from ledgerlog_spark.transport.v2.transport import V2Transport

LIMIT = 100

app = typer.Typer()


@app.command("check", epilog="Example: ledgerlog ledgers check --all")
def check(
    ledger_id: Annotated[
        int | None,
        typer.Argument(help="Ledger ID. `ledgers list` shows all.", min=0, metavar="LEDGER_ID"),
    ] = None,
    all_ledgers: Annotated[bool, typer.Option("--all", help="Check all ledgers.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only the metadata. Contact no bookie.")
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also print findings that need no action.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of findings to print.", min=1)
    ] = LIMIT,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Verify the metadata of ledgers, and that their bookies have all copies.

    The command verifies that each record can be decoded, that its fragments
    are in order, that the bookies of an ensemble differ and have cookies, and
    that the end and the length of a closed ledger agree. Then each bookie lists
    its entries, and the lists are compared with the metadata. No entry is
    read, and no ledger is fenced or changed. The exit code is 1 if something
    is wrong.
    """
    if (ledger_id is None) == (not all_ledgers):
        raise ConfigurationError("pass the ID of a ledger, or --all")
    report = asyncio.run(_check(uri, ledger_id, offline, limit, notes))
    if as_json:
        print_json(_fields(report))
    else:
        _print(report, offline=offline)
    raise typer.Exit(1 if report.is_wrong else 0)


async def _check(
    uri: str, ledger_id: int | None, offline: bool, limit: int, notes: bool
) -> LedgersReport:
    async with metadata(uri) as stores, AsyncExitStack() as stack:
        transport = None
        if not offline:
            transport = V2Transport(stores.registration.info)
            stack.push_async_callback(transport.aclose)
        running = LedgerCheck(
            stores.ledgers,
            stores.registration,
            transport,
            AcceptedEntries(stores.accepted_losses).of_ledger,
            findings_max=limit,
            notes=notes,
        )
        if ledger_id is not None:
            await running.one(ledger_id)
        else:
            with console.status("checking", spinner=spinner()) as status:
                await running.all(lambda done: status.update(f"{done:,} ledgers checked"))
        return running.report


def _fields(report: LedgersReport) -> dict[str, Any]:
    return {
        "ledgers": report.states.total(),
        "states": dict(report.states),
        "sound": report.sound,
        "copies_checked": report.copies_checked,
        **{f"{each.value}_count": report.counts[each] for each in Severity},
        "findings": [_finding(each) for each in report.findings],
    }


def _finding(finding: ToolFinding) -> dict[str, Any]:
    return {
        "ledger_id": finding.ledger_id,
        "severity": finding.severity.value,
        "finding": finding.what,
        "advice": finding.advice or None,
    }


def _print(report: LedgersReport, *, offline: bool) -> None:
    if report.findings:
        rows = [
            (
                None if each.ledger_id is None else str(each.ledger_id),
                each.severity.value,
                f"{each.what}\n{each.advice}" if each.advice else each.what,
            )
            for each in report.findings
        ]
        print_table("findings", ("ledger", "severity", "finding, and what to do"), rows)
    counts, shown = report.counts, len(report.findings)
    hidden = counts.total() - shown
    total = counted(report.states.total(), "ledger", "ledgers")
    console.print(f"{total} ({states_text(report.states)}), {report.sound:,} sound", soft_wrap=True)
    console.print(
        f"{counts[Severity.WRONG]:,} wrong, "
        f"{counted(counts[Severity.WARNING], 'warning', 'warnings')}, "
        f"{counted(counts[Severity.NOTE], 'note', 'notes')}; {hidden:,} not shown",
        soft_wrap=True,
    )
    if offline:
        console.print("the bookies were not contacted, so copies are not checked", soft_wrap=True)
