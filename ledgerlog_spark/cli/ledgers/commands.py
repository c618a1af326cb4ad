"""`ledgerlog ledgers`: shows, reads, seals and deletes single ledgers, independently of logs."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.drawing import DrawnLedger, draw_ledgers
from ledgerlog_spark.cli.ledgers.copies import copies_fields, print_copies, read_copies
from ledgerlog_spark.cli.options import (
    DEFAULT_URI,
    PasswordFile,
    ServiceUri,
    Yes,
    confirm,
    connect,
    group,
    password_explained,
    password_from,
)
from ledgerlog_spark.cli.options import metadata as metadata_of
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    counted,
    json_lines,
    picked,
    print_fields,
    print_json,
    print_listing,
    print_outcome,
)
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerLogError,
    LocalProtocolError,
    MetadataFormatError,
)
from ledgerlog_spark.metadata.ledgers.walk import WalkedLedger
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.placement.adherence import Adherence
from ledgerlog_spark.tools.copies import CopiesReport

app = group("Show, read, seal and delete ledgers.", "ledgerlog ledgers list")

LedgerId = Annotated[
    int, typer.Argument(help="Ledger ID. `ledgers list` shows all.", min=0, metavar="LEDGER_ID")
]


FRAGMENTS_SHOWN_MAX = 5
"""Maximum number of fragments against the placement rules that `ledgers show` describes."""


def describe(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """Return a ledger's metadata for `--json`, without the password."""
    return {
        "ledger_id": ledger_id,
        "state": metadata.state.name,
        **picked(metadata.quorum, "ensemble_size", "write_quorum", "ack_quorum"),
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
def list_ledgers(
    bookie_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="List only ledgers that name this bookie in a fragment."),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """List all ledgers with state, quorum, entries and fragments."""
    found = [
        each for each in asyncio.run(_all(uri)) if bookie_id is None or _names(each, bookie_id)
    ]
    columns = ("ledger", "state", "E/Qw/Qa", "entries", "bytes", "fragments")
    print_listing(found, _row, title=f"ledgers of {uri}", columns=columns, as_json=as_json)


async def _all(uri: str) -> list[dict[str, Any]]:
    async with metadata_of(uri) as stores:
        return [described(walked) async for walked in stores.ledgers.walk()]


def described(walked: WalkedLedger) -> dict[str, Any]:
    """Return the fields of a ledger for `--json`.

    Unreadable metadata has the state `unreadable`.
    """
    ledger_id, found = walked.ledger_id, walked.found
    if isinstance(found, MetadataFormatError):
        return {"ledger_id": ledger_id, "state": "unreadable", "error": str(found)}
    return describe(ledger_id, found.value)


def _names(found: dict[str, Any], bookie_id: str) -> bool:
    """Whether a fragment names this bookie.

    The result is True if the metadata is unreadable.
    """
    fragments = found.get("fragments")
    return fragments is None or any(bookie_id in each["ensemble"] for each in fragments)


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    if "error" in found:
        return str(found["ledger_id"]), found["state"], None, None, None, None
    return (
        str(found["ledger_id"]),
        found["state"],
        f"{found['ensemble_size']}/{found['write_quorum']}/{found['ack_quorum']}",
        None if found["last_entry_id"] is None else found["last_entry_id"] + 1,
        found["length_bytes"],
        len(found["fragments"]),
    )


@app.command("show", epilog="Example: ledgerlog ledgers show 3 --replicas")
def show(
    ledger_id: LedgerId,
    replicas: Annotated[
        bool,
        typer.Option("--replicas", help="Read each copy of each entry, and compare the copies."),
    ] = False,
    first: Annotated[
        int, typer.Option(metavar="N", help="With --replicas: ID of the first entry.", min=0)
    ] = 0,
    last: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --replicas: ID of the last entry; default: the last confirmed entry.",
        ),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Show the metadata of a ledger and draw its fragments. The ledger is not fenced.

    With --replicas, the exit code is 1 if a copy is missing or damaged, or
    could not be read.
    """
    copies: CopiesReport | None = None
    with connect(uri) as client:
        metadata = client.ledger_metadata(ledger_id)
        found = describe(ledger_id, metadata)
        try:
            with client.open_ledger(ledger_id, password=metadata.password) as ledger:
                found["last_add_confirmed"] = ledger.last_add_confirmed
        except LedgerLogError as error:  # bookies may be down: show only the metadata
            if replicas and last is None:
                raise
            found |= {"last_add_confirmed": None, "last_add_confirmed_error": str(error)}
        placement = client.run(lambda one: one.services.bookies.adherence_of(metadata))
        for fragment, adherence in zip(found["fragments"], placement, strict=True):
            fragment["misplaced"] = list(adherence.misplaced)
        if replicas:
            end = found["last_add_confirmed"] if last is None else last
            copies = read_copies(client, ledger_id, metadata, first, end)
    if as_json:
        print_json(found if copies is None else {**found, "replicas": copies_fields(copies)})
    else:
        found["placement"] = _placement(found["fragments"], placement)
        _draw(ledger_id, metadata, found)
        if copies is not None:
            print_copies(ledger_id, copies)
    raise typer.Exit(1 if copies is not None and copies.findings_count else 0)


def _draw(ledger_id: int, metadata: LedgerMetadata, found: dict[str, Any]) -> None:
    fields = {name: _text(value) for name, value in found.items() if name != "fragments"}
    print_fields(f"ledger {ledger_id}", fields)
    last = found["last_add_confirmed"]
    if last is None:
        last = metadata.last_fragment.first_entry_id  # all earlier entries are confirmed
    drawn = DrawnLedger(ledger_id, metadata.fragments, last + 1, metadata.state.name)
    bookies = sorted({name for each in metadata.fragments for name in each.ensemble})
    console.print(draw_ledgers([drawn], bookies=bookies, width=console.width))


def _placement(fragments: list[dict[str, Any]], placement: list[Adherence]) -> str:
    """Return a text about the placement rules that the fragments break, with figures."""
    broken = [
        f"from entry {fragment['first_entry_id']}: {adherence}"
        for fragment, adherence in zip(fragments, placement, strict=True)
        if adherence.misplaced
    ]
    more = (
        [f"{len(broken) - FRAGMENTS_SHOWN_MAX} more"] if len(broken) > FRAGMENTS_SHOWN_MAX else []
    )
    return "; ".join([*broken[:FRAGMENTS_SHOWN_MAX], *more]) or "every rule is kept"


def _text(value: object) -> str | None:
    """Convert a value to text, without thousands separators in ids and entry numbers."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items()) or None
    return None if value is None else str(value)


@app.command("read", epilog="Example: ledgerlog ledgers read 3 --first 0 --last 9 --raw > dump")
def read(
    ledger_id: LedgerId,
    first: Annotated[int, typer.Option(metavar="N", help="ID of the first entry.", min=0)] = 0,
    last: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="ID of the last entry, inclusive. The default is the last confirmed entry.",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the payloads only, without separators.")
    ] = False,
    password_file: PasswordFile = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: Annotated[bool, json_lines("entry")] = False,
) -> None:
    """Print entries, or write their payloads. The ledger is not fenced: a writer can continue."""
    if raw and as_json:
        raise ConfigurationError("--raw and --json exclude each other: pass one of them")
    put = _put_raw if raw else _put_json if as_json else _put_line
    password = password_from(password_file)
    with (
        connect(uri) as client,
        password_explained(password_file),
        client.open_ledger(ledger_id, password=password) as ledger,
    ):
        confirmed = ledger.last_add_confirmed
        end = confirmed if last is None else last
        if end > confirmed:
            raise ConfigurationError(
                f"entry {end} of ledger {ledger_id} is not confirmed; the last confirmed entry is "
                f"{confirmed}",
                ledger_id=ledger_id,
            )
        if end >= first:
            for entry in ledger.read(first, end):
                put(entry.entry_id, bytes(entry.payload))
        elif not (raw or as_json):
            console.print(f"there is no entry to print: the last confirmed entry is {confirmed}")
    sys.stdout.flush()


def _put_raw(_entry_id: int, payload: bytes) -> None:
    sys.stdout.buffer.write(payload)


def _put_json(entry_id: int, payload: bytes) -> None:
    entry = {
        "entry_id": entry_id,
        "size_bytes": len(payload),
        "payload_base64": base64.b64encode(payload).decode(),
    }
    sys.stdout.write(json.dumps(entry) + "\n")


def _put_line(entry_id: int, payload: bytes) -> None:
    text = payload[:60].decode(errors="backslashreplace")
    shown = text if text.isprintable() else payload[:24].hex(" ")
    line = f"{entry_id:>10}  {len(payload):>10,} B  {shown}"
    console.print(line, highlight=False, soft_wrap=True)


@app.command("seal", epilog="Example: ledgerlog ledgers seal 3")
def seal(
    ledger_id: LedgerId,
    password_file: PasswordFile = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Fence a ledger, recover its end and close it. After that, a running writer cannot append."""
    password = password_from(password_file)
    with connect(uri) as client, password_explained(password_file):
        # This command uses `logs.seal`, which never closes the ledger below the last entry that a
        # log lists.
        metadata = client.logs.seal(ledger_id, password=password)
    size = counted(metadata.length, "byte", "bytes")
    text = f"{counted(metadata.last_entry_id + 1, 'entry', 'entries')}, {size}"
    closed = f"ledger {ledger_id} is closed: {text}"
    print_outcome(describe(ledger_id, metadata), closed, as_json=as_json)


@app.command("delete", epilog="Example: ledgerlog ledgers delete 3 --yes")
def delete(
    ledger_id: LedgerId, yes: Yes = False, uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False
) -> None:
    """Delete a ledger that belongs to no log."""
    with connect(uri) as client:
        metadata = client.ledger_metadata(ledger_id)
        owner = client.logs.owner(ledger_id)
        if owner is not None:
            raise LocalProtocolError(
                f"ledger {ledger_id} belongs to log {owner!r} and may contain rows of this log. "
                "`ledgerlog logs sweep` deletes the ledger when no version needs it. If it is an "
                f"orphan, run `ledgerlog logs check {owner} --delete-orphans` first",
                ledger_id=ledger_id,
                log=owner,
            )
        if not yes:
            confirm(
                f"delete ledger {ledger_id} ({metadata.state.name}, "
                f"{len(metadata.fragments)} fragments)",
                otherwise=f"ledger {ledger_id} was not deleted",
            )
        client.delete_ledger(ledger_id)
    print_outcome(
        {"ledger_id": ledger_id, "is_deleted": True},
        f"ledger {ledger_id} is deleted; the bookies free its space later",
        as_json=as_json,
    )
