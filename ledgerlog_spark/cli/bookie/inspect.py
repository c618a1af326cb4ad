"""`ledgerlog bookie inspect`: shows the files of a stopped bookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark.cli.bookie.files import LIMIT, Directory, nothing_changed, with_directory
from ledgerlog_spark.cli.options import group
from ledgerlog_spark.cli.output import AsJson, console, print_fields, print_json, print_table

if TYPE_CHECKING:
    from bookie_server.tools.directory import RestingDirectory
    from bookie_server.tools.excerpts import Excerpt

inspect = group(
    "Show the files of a stopped bookie.", "ledgerlog bookie inspect manifest data/bookie-0"
)


File = Annotated[
    str, typer.Argument(metavar="FILE", help="ID or name of a file, as in `inspect manifest`.")
]
Limit = Annotated[int, typer.Option(metavar="N", help="Maximum number of rows to print.", min=1)]


def start_option(what: str) -> Any:
    """Return the option `--from`, with which a command prints a part of a long list."""
    return typer.Option("--from", metavar="N", help=f"Begin with this {what}.", min=0)


def _print_excerpt(excerpt: Excerpt, title: str, columns: dict[str, str], *, as_json: bool) -> None:
    """Print the rows: as a table with some columns for people, or as JSON with all fields."""
    if as_json:
        print_json({"rows": excerpt.rows, "next": excerpt.following})
        return
    rows = [[_cell(row[name]) for name in columns] for row in excerpt.rows]
    print_table(title, list(columns.values()), rows)
    if excerpt.following is not None:
        console.print(f"there are further rows; to print them, pass --from {excerpt.following}")


def _cell(value: object) -> object:
    """Convert an integer to text without thousands separators, as commands accept it."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


FILE_COLUMNS = {
    "file_id": "file",
    "slot": "slot",
    "state": "state",
    "first_sequence": "first sequence",
    "last_sequence": "last sequence",
    "live_bytes": "live bytes",
    "data_end": "data end",
    "finish_offset": "index at",
    "has_damage": "damaged",
    "is_present": "present",
}
RECORD_COLUMNS = {
    "sequence": "sequence",
    "kind": "kind",
    "ledger_id": "ledger",
    "first_entry_id": "first",
    "last_entry_id": "last",
    "body_bytes": "bytes",
    "file_id": "file",
    "offset": "offset",
    "origin_sequence": "origin",
    "durable_upto": "durable up to",
    "state": "state",
}
PIECE_COLUMNS = {
    "piece": "piece",
    "ledger_id": "ledger",
    "first_entry_id": "first",
    "last_entry_id": "last",
    "origin_sequence": "origin",
    "record_offset": "record at",
    "place": "place",
}
JOURNAL_FILE_COLUMNS = {
    "name": "journal file",
    "size_bytes": "bytes",
    "groups": "groups",
    "first_sequence": "first sequence",
    "last_sequence": "last sequence",
    "is_needed": "needed",
    "damage": "damage",
    "state": "state",
    "reason": "reason",
}
COPY_COLUMNS = {
    "offset": "offset",
    "copy": "copy",
    "size_bytes": "bytes",
    "first_sequence": "first sequence",
    "last_sequence": "last sequence",
    "file_id": "file",
    "slot": "slot",
    "file_offset": "offset in slot",
    "needed_from": "needed from",
    "state": "state",
}
LEDGER_COLUMNS = {
    "ledger_id": "ledger",
    "is_fenced": "fenced",
    "last_add_confirmed": "LAC",
    "tombstone": "tombstone",
    "is_unverified": "unverified",
    "check_epoch": "check epoch",
    "in_limbo": "in limbo",
}
RANGE_COLUMNS = {
    "file_id": "file",
    "slot": "slot",
    "file_state": "state",
    "first_entry_id": "first",
    "last_entry_id": "last",
}


@inspect.command("manifest", epilog="Example: ledgerlog bookie inspect manifest data/bookie-0")
def inspect_manifest(
    directory: Directory,
    start: Annotated[int, start_option("file ID")] = 0,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Show the MANIFEST: its counters, and the files that it lists."""
    from bookie_server.tools import inspect as tools

    async def work(opened: RestingDirectory) -> tuple[dict[str, Any], Excerpt]:
        return tools.manifest_fields(opened), tools.manifest_files(opened, start, limit)

    fields, excerpt = with_directory(directory, work)
    if as_json:
        print_json({**fields, "rows": excerpt.rows, "next": excerpt.following})
        return
    run = fields.pop("run")
    shown = {**fields, "run": run and run["mode"], "free_slots": ", ".join(fields["free_slots"])}
    print_fields(f"MANIFEST of {directory}", {name: _cell(value) for name, value in shown.items()})
    _print_excerpt(excerpt, "files", FILE_COLUMNS, as_json=False)


@inspect.command("journal", epilog="Example: ledgerlog bookie inspect journal data/bookie-0")
def inspect_journal(
    directory: Directory,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Name of a journal file whose copies are shown."),
    ] = None,
    start: Annotated[int, start_option("sequence, or offset in the journal file,")] = 0,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Show the journal: its files, and the records of open entry-log files in their order.

    When the bookie starts, it writes the needed copies of groups from the
    journal files to the entry-log files, and then replays the open entry-log
    files. With FILE, only the copies in this journal file are shown, by
    offset.
    """
    from bookie_server.tools import inspect as tools
    from bookie_server.tools.journal_files import journal_copies, journal_files

    if file is not None:
        with nothing_changed():
            copies = with_directory(
                directory, lambda opened: journal_copies(opened, file, start, limit)
            )
        _print_excerpt(copies, f"copies in {file}", COPY_COLUMNS, as_json=as_json)
        return

    async def work(opened: RestingDirectory) -> tuple[list[dict[str, Any]], Excerpt]:
        return await journal_files(opened), await tools.journal(opened, start, limit)

    with nothing_changed():
        files, excerpt = with_directory(directory, work)
    if as_json:
        print_json({"journal_files": files, "rows": excerpt.rows, "next": excerpt.following})
        return
    if files:
        rows = [[_cell(row[name]) for name in JOURNAL_FILE_COLUMNS] for row in files]
        print_table(f"journal files of {directory}", list(JOURNAL_FILE_COLUMNS.values()), rows)
    _print_excerpt(excerpt, f"records of open files in {directory}", RECORD_COLUMNS, as_json=False)


@inspect.command("entrylog", epilog="Example: ledgerlog bookie inspect entrylog data/bookie-0 3")
def inspect_entry_log(
    directory: Directory,
    file: File,
    start: Annotated[int, start_option("offset")] = 0,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Show the records of one entry-log file, by offset."""
    from bookie_server.tools import inspect as tools

    with nothing_changed():
        excerpt = with_directory(
            directory,
            lambda opened: tools.entry_log(opened, opened.entry_of(file), start, limit),
        )
    _print_excerpt(excerpt, f"records of file {file}", RECORD_COLUMNS, as_json=as_json)


@inspect.command("index", epilog="Example: ledgerlog bookie inspect index data/bookie-0 3")
def inspect_index(
    directory: Directory,
    file: File,
    start: Annotated[int, start_option("number of a piece")] = 0,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Show the index of one finished entry-log file."""
    from bookie_server.tools import inspect as tools

    with nothing_changed():
        excerpt = with_directory(
            directory, lambda opened: tools.index(opened, opened.entry_of(file), start, limit)
        )
    _print_excerpt(excerpt, f"index of file {file}", PIECE_COLUMNS, as_json=as_json)


@inspect.command("ledger", epilog="Example: ledgerlog bookie inspect ledger data/bookie-0 7")
def inspect_ledger(
    directory: Directory,
    ledger_id: Annotated[
        int | None, typer.Argument(metavar="LEDGER_ID", help="ID of a ledger; default: all.", min=0)
    ] = None,
    start: Annotated[int, start_option("ledger ID, or number of a range,")] = 0,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Show the states of all ledgers, or of one ledger with the ranges of its entries."""
    from bookie_server.tools import inspect as tools

    if ledger_id is None:
        with nothing_changed():
            excerpt = with_directory(directory, lambda opened: tools.ledgers(opened, start, limit))
        _print_excerpt(excerpt, f"ledgers in {directory}", LEDGER_COLUMNS, as_json=as_json)
        return
    with nothing_changed():
        fields, excerpt = with_directory(
            directory, lambda opened: tools.ledger(opened, ledger_id, start, limit)
        )
    if as_json:
        print_json({**fields, "rows": excerpt.rows, "next": excerpt.following})
        return
    print_fields(f"ledger {ledger_id}", {name: _cell(value) for name, value in fields.items()})
    _print_excerpt(excerpt, "ranges of entries", RANGE_COLUMNS, as_json=False)
