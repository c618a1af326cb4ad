"""`ledgerlog ledgers`: ledgers as they are, without their logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.drawing import DrawnLedger, draw_ledgers
from ledgerlog_spark.cli.output import (
    DEFAULT_URI,
    AsJson,
    ServiceUri,
    console,
    print_fields,
    print_json,
    print_table,
)
from ledgerlog_spark.connect import connect
from ledgerlog_spark.errors import ConfigurationError, LocalProtocolError
from ledgerlog_spark.log.blocking import BlockingLogs
from ledgerlog_spark.model import LedgerMetadata

app = typer.Typer(help="Ledgers of a cluster.", no_args_is_help=True)

LedgerId = Annotated[int, typer.Argument(help="As `ledgers list` shows it.", min=0)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(help="File with the ledger's password; the empty password when not given."),
]


def password_from(path: Path | None) -> bytes:
    """A password from a file, one newline at its end excluded."""
    if path is None:
        return b""
    try:
        return path.read_bytes().removesuffix(b"\n")
    except OSError as error:
        raise ConfigurationError(
            f"the password file {path} cannot be read: {error.strerror}", path=str(path)
        ) from error


def describe(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """A ledger's record for `--json`; the password is left out."""
    return {
        "ledger_id": ledger_id,
        "state": metadata.state.name,
        "ensemble_size": metadata.quorum.ensemble_size,
        "write_quorum": metadata.quorum.write_quorum,
        "ack_quorum": metadata.quorum.ack_quorum,
        "digest_type": metadata.digest_type.name,
        "last_entry_id": metadata.last_entry_id if metadata.is_closed else None,
        "length_bytes": metadata.length if metadata.is_closed else None,
        "created_ms": metadata.created_ms,
        "custom": {k: v.decode(errors="backslashreplace") for k, v in metadata.custom.items()},
        "fragments": [
            {"first_entry_id": f.first_entry_id, "ensemble": list(f.ensemble)}
            for f in metadata.fragments
        ],
    }


@app.command("list", epilog="Example: ledgerlog ledgers list --json")
def list_ledgers(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """List all ledgers with state, quorum, entries and fragments."""
    with connect(uri) as client:
        found = [describe(i, client.ledger_metadata(i)) for i in client.list_ledgers()]
    if as_json:
        print_json(found)
        return
    print_table(
        f"ledgers of {uri}",
        ("ledger", "state", "E/Qw/Qa", "entries", "bytes", "fragments"),
        [
            (
                str(f["ledger_id"]),
                f["state"],
                f"{f['ensemble_size']}/{f['write_quorum']}/{f['ack_quorum']}",
                None if f["last_entry_id"] is None else f["last_entry_id"] + 1,
                f["length_bytes"],
                len(f["fragments"]),
            )
            for f in found
        ],
    )


@app.command("show", epilog="Example: ledgerlog ledgers show 3")
def show(ledger_id: LedgerId, uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Show one ledger's record and draw its fragments."""
    with connect(uri) as client:
        metadata = client.ledger_metadata(ledger_id)
        with client.open_ledger(ledger_id, password=metadata.password) as ledger:
            last = ledger.last_add_confirmed
    found = describe(ledger_id, metadata)
    if as_json:
        print_json({**found, "last_add_confirmed": last})
        return
    fragments = found.pop("fragments")
    print_fields(f"ledger {ledger_id}", {**found, "last_add_confirmed": str(last)})
    drawn = DrawnLedger(ledger_id, metadata.fragments, last + 1, metadata.state.name)
    bookies = sorted({b for f in fragments for b in f["ensemble"]})
    console.print(draw_ledgers([drawn], bookies=bookies, width=console.width))


@app.command("read", epilog="Example: ledgerlog ledgers read 3 --first 0 --last 9 --raw > dump")
def read(
    ledger_id: LedgerId,
    first: Annotated[int, typer.Option(help="First entry.", min=0)] = 0,
    last: Annotated[
        int | None, typer.Option(help="Last entry, inclusive; the last confirmed one if not given.")
    ] = None,
    raw: Annotated[bool, typer.Option(help="Write payloads to stdout, nothing between them.")] = (
        False
    ),
    password_file: PasswordFile = None,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Print entries, or dump their payloads. Never fences: a live writer goes on."""
    with (
        connect(uri) as client,
        client.open_ledger(ledger_id, password=password_from(password_file)) as ledger,
    ):
        end = ledger.last_add_confirmed if last is None else last
        if end < first:
            console.print(f"no entries: the last confirmed one is {ledger.last_add_confirmed}")
            return
        for entry in ledger.read(first, end):
            if raw:
                sys.stdout.buffer.write(entry.payload)
                continue
            text = bytes(entry.payload[:60]).decode(errors="backslashreplace")
            shown = text if text.isprintable() else bytes(entry.payload[:24]).hex(" ")
            console.print(
                f"{entry.entry_id:>10}  {len(entry.payload):>10,} B  {shown}", markup=False
            )


@app.command("seal", epilog="Example: ledgerlog ledgers seal 3")
def seal(
    ledger_id: LedgerId,
    password_file: PasswordFile = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Fence a ledger, recover its end and close it. A live writer loses it."""
    with connect(uri) as client:
        # Through the logs: never below what a log lists of the ledger.
        metadata = BlockingLogs(client).seal(ledger_id, password=password_from(password_file))
    if as_json:
        print_json(describe(ledger_id, metadata))
        return
    console.print(
        f"ledger {ledger_id} is closed: {metadata.last_entry_id + 1:,} entries, "
        f"{metadata.length:,} bytes"
    )


@app.command("delete", epilog="Example: ledgerlog ledgers delete 3 --yes")
def delete(
    ledger_id: LedgerId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Delete a ledger. One that belongs to a log is refused."""
    with connect(uri) as client:
        metadata = client.ledger_metadata(ledger_id)
        owner = BlockingLogs(client).owner(ledger_id)
        if owner is not None:
            raise LocalProtocolError(
                f"ledger {ledger_id} belongs to log {owner!r}, whose rows it may hold: the log's "
                "sweeper deletes it when no version needs it",
                ledger_id=ledger_id,
                log=owner,
            )
        if not yes:
            typer.confirm(
                f"delete ledger {ledger_id} ({metadata.state.name}, "
                f"{len(metadata.fragments)} fragments)?",
                abort=True,
            )
        client.delete_ledger(ledger_id)
    console.print(f"ledger {ledger_id} is deleted; bookies free its space later")
