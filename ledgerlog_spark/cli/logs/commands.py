"""`ledgerlog logs`: lists logs, shows their versions, and reads their rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import filesize

from ledgerlog_spark.cli.drawing import DrawnLedger, draw_ledgers
from ledgerlog_spark.cli.logs.lookup import (
    LogName,
    describe_version,
    json_text,
    names_of,
    opened,
    shown_cell,
    time_text,
)
from ledgerlog_spark.cli.options import (
    DEFAULT_URI,
    PasswordFile,
    ServiceUri,
    connect,
    group,
    password_explained,
    password_from,
)
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    counted,
    json_lines,
    picked,
    print_fields,
    print_json,
    print_listing,
    print_table,
)
from ledgerlog_spark.errors import LedgerNotFoundError, LogNotFoundError, MetadataFormatError
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.protocol.log.state.records import (
    NO_SCHEMA,
    Item,
    LogContent,
    LogKind,
    LogSnapshot,
)

if TYPE_CHECKING:
    import pyarrow as pa

app = group("Create, read, write and maintain logs.", "ledgerlog logs show flights")

OfVersion = Annotated[
    int | None,
    typer.Option("--version", metavar="N", help="Version of the log; by default the newest."),
]

LOOKS_MAX = 5
"""Maximum number of times that a log's list is read again while its ledgers are being deleted."""


def _summary(name: str, snapshot: LogSnapshot) -> dict[str, Any]:
    return {
        "name": name,
        "log_id": snapshot.log_id,
        "kind": snapshot.kind.name.lower(),
        "content": snapshot.content.name.lower(),
        "version": None if snapshot.kind is LogKind.LEADER else snapshot.interval.version,
        **picked(snapshot.interval, "start_offset", "end_offset", "rows"),
        "items": len(snapshot.items),
        "ledgers": len({item.ledger_id for item in snapshot.items}),
        "size_bytes": sum(item.size_bytes for item in snapshot.items),
        "commit_time": time_text(snapshot.interval.commit_time_ms),
    }


@app.command("list", epilog="Example: ledgerlog logs list --json")
def list_logs(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """List all logs with their versions, rows and sizes."""
    with connect(uri) as client:
        found = list(_all(client))
    columns = ("log", "version", "rows", "ledgers", "bytes", "last write")
    print_listing(found, _row, title=f"logs of {uri}", columns=columns, as_json=as_json)


def _all(client: BlockingLogClient) -> Iterator[dict[str, Any]]:
    """Yield a summary of each log.

    Omit logs that were just deleted, and report unreadable metadata.
    """
    for name in names_of(client):
        try:
            yield _summary(name, client.logs.open(name).snapshot())
        except LogNotFoundError:
            continue
        except MetadataFormatError as error:
            yield {"name": name, "version": "unreadable", "error": str(error)}


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    keys = ("name", "version", "rows", "ledgers", "size_bytes", "commit_time")
    return tuple(found.get(key) for key in keys)


@app.command("show", epilog="Example: ledgerlog logs show flights")
def show(
    name: LogName,
    version: OfVersion = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Show the schema and versions of a log, and draw its ledgers and their bookies."""
    with connect(uri) as client:
        log = opened(client, name)
        snapshot, drawn = _seen(client, log, version)
        history = () if snapshot.kind is LogKind.LEADER else log.history()
        bookies = sorted({b for d in drawn for f in d.fragments for b in f.ensemble})
        absent = client.run(lambda one: one.services.absent_bookies())
    away = [bookie_id for bookie_id in bookies if bookie_id in absent]
    summary = {**_summary(name, snapshot), "bookies_away": away}
    schema = [f"{field.name} {field.type}" for field in _fields(snapshot)]
    if as_json:
        ranges = [picked(item, *_OF_RANGE) for item in snapshot.items]
        versions = [describe_version(version) for version in history]
        print_json({**summary, "schema": schema, "ranges": ranges, "versions": versions})
        return
    summary["bookies_away"] = _away_text(away)
    print_fields(f"log {name}", {**summary, "schema": ", ".join(schema) or None})
    if history:
        shown = [describe_version(version) for version in history]
        columns = ("version", "operation", "start offset", "end offset", "committed")
        print_table("versions", columns, map(itemgetter(*_OF_VERSION), shown))
    console.print(draw_ledgers(drawn, bookies=bookies, away=away, width=console.width))


def _away_text(away: Sequence[str]) -> str | None:
    """Return a text about the copies that are missing because bookies are away.

    The result is None if no bookie is away.
    """
    if not away:
        return None
    return (
        f"{', '.join(away)}: entries of a bookie that is away have fewer copies until this bookie "
        "is back or replaced"
    )


def _seen(
    client: BlockingLogClient, log: BlockingLog, version: int | None
) -> tuple[LogSnapshot, list[DrawnLedger]]:
    """Return a version of a log, and the ledgers for the picture of this version.

    If a listed ledger does not exist, the log's list is read again, because a merge may have
    replaced the ledger.
    """
    snapshot = log.snapshot(version)
    drawn = drawn_ledgers(client, snapshot)
    for _ in range(LOOKS_MAX):
        if all(ledger.fragments for ledger in drawn):
            break
        before, snapshot = snapshot, log.snapshot(version)
        if snapshot.items == before.items:
            break
        drawn = drawn_ledgers(client, snapshot)
    return snapshot, drawn


_OF_VERSION = ("version", "operation", "start_offset", "end_offset", "commit_time")


def drawn_ledgers(client: BlockingLogClient, snapshot: LogSnapshot) -> list[DrawnLedger]:
    """Return each listed ledger once, with the numbers of rows and bytes that the log lists."""
    by_ledger: dict[int, list[Item]] = {}
    for item in snapshot.items:
        by_ledger.setdefault(item.ledger_id, []).append(item)
    drawn = []
    for ledger_id, items in by_ledger.items():
        rows, size = sum(i.rows for i in items), sum(i.size_bytes for i in items)
        label = f"{counted(rows, 'row', 'rows')}, {filesize.decimal(size)}"
        try:
            fragments = client.ledger_metadata(ledger_id).fragments
        except LedgerNotFoundError:
            drawn.append(DrawnLedger(ledger_id, (), 0, f"{label}, listed but deleted"))
            continue
        last = max(item.last_entry_id for item in items)
        drawn.append(DrawnLedger(ledger_id, fragments, last + 1, label))
    return drawn


_OF_RANGE = (
    "ledger_id", "first_entry_id", "last_entry_id", "first_offset", "rows", "size_bytes",
)  # fmt: skip


def _fields(snapshot: LogSnapshot) -> list[pa.Field]:
    """Return the columns of the version's schema.

    A log of rows has no columns before its first write.
    """
    from ledgerlog_spark.arrow.leader_batches import RECORDS_SCHEMA
    from ledgerlog_spark.arrow.stream_codec import decode_schema

    if snapshot.content is LogContent.RECORDS:
        return list(RECORDS_SCHEMA)
    if snapshot.interval.schema_id == NO_SCHEMA or snapshot.schema is None:
        return []
    return list(decode_schema(snapshot.schema))


@app.command("read", epilog="Example: ledgerlog logs read flights --rows 20")
def read(
    name: LogName,
    rows: Annotated[int, typer.Option(metavar="N", help="Maximum number of rows.", min=1)] = 10,
    version: OfVersion = None,
    password_file: PasswordFile = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: Annotated[bool, json_lines("row")] = False,
) -> None:
    """Print the first rows of a log, without Spark."""
    password = password_from(password_file)
    with connect(uri) as client, password_explained(password_file):
        log = opened(client, name)
        snapshot = log.snapshot(version)
        found: list[dict[str, Any]] = []
        for batch in _batches(log, snapshot, password):
            found += batch.slice(0, rows - len(found)).to_pylist()
            if len(found) >= rows:
                break
    if as_json:
        for row in found:
            sys.stdout.write(json.dumps(row, default=json_text) + "\n")
        return
    columns = [field.name for field in _fields(snapshot)]
    if not columns:
        console.print(f"log {name} has no rows and no schema yet")
        return
    is_leader_log = snapshot.kind is LogKind.LEADER
    print_table(
        f"{len(found):,} of {snapshot.interval.rows:,} rows of log {name}"
        + ("" if is_leader_log else f", version {snapshot.interval.version}"),
        columns,
        [[shown_cell(row.get(column)) for column in columns] for row in found],
    )


def _batches(log: BlockingLog, snapshot: LogSnapshot, password: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the version in order, as batches."""
    from ledgerlog_spark.log.reading.listed_rows import EntryForm, RowCutter, decoded_rows

    form = EntryForm.of(snapshot.kind, snapshot.content)
    wanted = range(snapshot.interval.start_offset, snapshot.interval.end_offset)
    for item in snapshot.items:
        entries = log.read_range(
            item.ledger_id, item.first_entry_id, item.last_entry_id, password=password
        )
        payloads = (entry.payload for batch in entries for entry in batch)
        schema = snapshot.schemas.get(item.schema_id, b"")
        cutter = RowCutter.of(log.name, item, wanted)
        for rows in decoded_rows(form, schema, payloads, range_offset=item.first_offset):
            kept = cutter.take(rows.first_row, rows.batch.num_rows, len(rows.entries))
            if kept:
                yield rows.batch.slice(kept.start, len(kept))
        cutter.finish()
