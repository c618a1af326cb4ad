"""`ledgerlog logs check`: verifies the metadata of logs, and the entries of their ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.logs.lookup import missing
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, connect, metadata
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    counted,
    picked,
    print_fields,
    print_json,
    print_table,
    spinner,
)
from ledgerlog_spark.errors import ConfigurationError, LogNotFoundError
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.maintenance.check import LogCheck
from ledgerlog_spark.tools.findings import Severity, ToolFinding
from ledgerlog_spark.tools.log_check import CheckedLog, LogListings, Owners

ORPHANS_SHOWN_MAX = 20

app = typer.Typer()


@app.command("check", epilog="Example: ledgerlog logs check flights --every-entry")
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a log. `logs list` shows all.")
    ] = None,
    all_logs: Annotated[bool, typer.Option("--all", help="Check all logs.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only the metadata. Contact no bookie.")
    ] = False,
    every_entry: Annotated[
        bool,
        typer.Option(
            "--every-entry", help="Verify all entries, not only the first and last of each range."
        ),
    ] = False,
    delete_orphans: Annotated[
        bool,
        typer.Option(
            "--delete-orphans",
            help="Mark orphaned ledgers older than `stagingTtlMs`, for deletion by the sweeper.",
        ),
    ] = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Verify that entries have enough replicas, and report orphaned ledgers.

    Before that, the command verifies the head and all pages of the log, its
    versions and offsets, and that each listed ledger exists and has the
    listed entries. By default, the first and the last entry of each range are
    verified. Without --delete-orphans, the command changes nothing. It never
    seals a ledger. The exit code is 1 if rows are lost or have too few
    replicas, or if the metadata is wrong.
    """
    if (name is None) == (not all_logs):
        raise ConfigurationError("pass the name of a log, or --all")
    if offline and every_entry:
        raise ConfigurationError("--offline and --every-entry exclude each other: pass one of them")
    with connect(uri) as client:
        try:
            listings, strangers, owners = asyncio.run(_check_metadata(uri, name))
        except LogNotFoundError:
            if name is None:
                raise
            raise missing(client, name) from None
        results = [
            _check_entries(client, each, owners, offline=offline, every_entry=every_entry)
            for each in listings
        ]
        marked = _delete_orphans(client, results) if delete_orphans else None
    if as_json:
        fields = [_fields(each, marked) for each in results]
        others = [_finding(each) for each in strangers]
        print_json({"logs": fields, "findings": others} if all_logs else fields[0])
    else:
        for each in results:
            _print(each, marked)
        _print_findings("the cluster", strangers)
    raise typer.Exit(1 if any(each.is_wrong for each in results) else 0)


@dataclass(frozen=True, slots=True)
class _Result:
    """The result for one log. `entries` is None if the log's list cannot be read."""

    listing: CheckedLog
    entries: LogCheck | None

    @property
    def is_wrong(self) -> bool:
        is_damaged = self.entries is not None and self.entries.is_damaged
        severities = {each.severity for each in self.listing.findings}
        return is_damaged or Severity.WRONG in severities


async def _check_metadata(
    uri: str, name: str | None
) -> tuple[list[CheckedLog], list[ToolFinding], Owners]:
    """Check the metadata of one log, or of all logs, and find the owners of all ledgers."""
    checked: list[CheckedLog] = []
    async with metadata(uri) as stores:
        listings = LogListings(stores)
        with console.status("reading the metadata of all ledgers", spinner=spinner()) as status:
            owners = await listings.owners(
                lambda done: status.update(f"metadata of {done:,} ledgers read")
            )
            for each in await stores.logs.names() if name is None else [name]:
                status.update(f"checking the metadata of log {each}")
                try:
                    checked.append(await listings.check(each))
                except LogNotFoundError:  # the log was deleted after the names were read
                    if name is not None:
                        raise
            strangers = await listings.strangers(owners) if name is None else []
    return checked, strangers, owners


def _check_entries(
    client: BlockingLogClient,
    listing: CheckedLog,
    owners: Owners,
    *,
    offline: bool,
    every_entry: bool,
) -> _Result:
    if not listing.is_readable:
        return _Result(listing, None)
    log = client.logs.open_by_id(listing.name, listing.log_id)
    with console.status(f"checking {listing.name}", spinner=spinner()) as status:

        def shown(done: int, total: int) -> None:
            status.update(f"{done:,} of {total:,} ledgers of log {listing.name} checked")

        try:
            entries = log.check(
                every_entry=every_entry,
                reads_entries=not offline,
                own_ledgers=owners.by_log.get(listing.log_id, set()),
                on_progress=shown,
            )
        except LogNotFoundError:  # the log was just deleted
            return _Result(listing, None)
    return _Result(listing, entries)


def _delete_orphans(client: BlockingLogClient, results: list[_Result]) -> dict[str, Sequence[int]]:
    """Mark the orphans of the logs for deletion, and return their ids by log name."""
    names = [each.listing.name for each in results if each.entries is not None]
    return {name: client.logs.open(name).delete_orphans() for name in names}


_CHECKED = (
    "ledger_id", "state", "ranges", "last_entry_id", "entries", "copies", "copies_wanted",
    "is_damaged",
)  # fmt: skip


def _fields(result: _Result, marked: dict[str, Sequence[int]] | None) -> dict[str, Any]:
    listing, entries = result.listing, result.entries
    ledgers = [] if entries is None else entries.ledgers
    return {
        "log": listing.name,
        "is_damaged": result.is_wrong,
        **picked(listing, "is_readable", "items", "pages"),
        "findings": [_finding(each) for each in listing.findings],
        "ledgers": [
            {**picked(each, *_CHECKED), "finding": each.finding or None} for each in ledgers
        ],
        **(picked(entries, "staged", "marked", "orphans") if entries is not None else {}),
        "orphans_marked": (marked or {}).get(listing.name, ()),
    }


def _finding(finding: ToolFinding) -> dict[str, Any]:
    return {
        "ledger_id": finding.ledger_id,
        "severity": finding.severity.value,
        "finding": finding.what,
        "advice": finding.advice or None,
    }


def _print(result: _Result, marked: dict[str, Sequence[int]] | None) -> None:
    listing, entries = result.listing, result.entries
    name = listing.name
    if entries is not None:
        print_table(
            f"ledgers of log {name}",
            ("ledger", "state", "ranges", "last listed", "entries verified", "replicas", "finding"),
            [
                (str(c.ledger_id), c.state, c.ranges, c.last_entry_id, c.entries,
                 f"{c.copies} of {c.copies_wanted}" if c.entries else None, c.finding or "sound")
                for c in entries.ledgers
            ],
        )  # fmt: skip
        others = {"being written": entries.staged, "to be deleted": entries.marked}
        others["orphaned"] = entries.orphans
        print_fields("other ledgers", {key: len(ids) for key, ids in others.items()})
        if entries.orphans:
            shown = ", ".join(map(str, entries.orphans[:ORPHANS_SHOWN_MAX]))
            console.print(
                f"orphaned ledgers: {shown}; pass --delete-orphans to delete the old ones"
            )
    if marked is not None:
        ledgers = counted(len(marked.get(name, ())), "ledger is", "ledgers are")
        console.print(f"{ledgers} marked; the sweeper deletes them later")
    _print_findings(f"log {name}", listing.findings)
    pages = counted(listing.pages, "page", "pages")
    sound = "sound" if not listing.findings else f"{len(listing.findings)} findings"
    console.print(
        f"metadata of log {name}: the head, {pages}, {counted(listing.items, 'range', 'ranges')}: "
        f"{sound}",
        soft_wrap=True,
    )


def _print_findings(where: str, findings: Sequence[ToolFinding]) -> None:
    if findings:
        rows = [(each.severity.value, f"{each.what}\n{each.advice}") for each in findings]
        print_table(f"findings about {where}", ("severity", "finding, and what to do"), rows)
