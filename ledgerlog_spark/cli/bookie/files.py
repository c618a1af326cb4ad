"""`ledgerlog bookie check|dump|rebuild-index|format`: the files of a stopped bookie."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from ledgerlog_spark.cli.bookie.dumped_entries import hex_line, json_line, raw_entry
from ledgerlog_spark.cli.options import Yes, confirm
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    counted,
    json_lines,
    print_json,
    print_outcome,
    print_table,
)
from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from bookie_server.tools.check import Report
    from bookie_server.tools.directory import RestingDirectory
    from bookie_server.tools.entries import DumpResult
    from bookie_server.tools.format import Plan

T = TypeVar("T")

app = typer.Typer()
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of a bookie that does not run.")
]
LIMIT = 100


@contextlib.contextmanager
def nothing_changed() -> Iterator[None]:
    """Mark storage errors in the block as definite, because the command changes nothing."""
    from bookie_server.errors import StorageError

    try:
        yield
    except StorageError as error:
        error.definite = True
        raise


def with_directory(path: Path, work: Callable[[RestingDirectory], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with the locked directory of a stopped bookie."""
    from bookie_server.tools.directory import opened

    async def run() -> T:
        async with opened(path) as directory:
            return await work(directory)

    return asyncio.run(run())


@app.command("check", epilog="Example: ledgerlog bookie check data/bookie-0")
def check(
    directory: Directory,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of defects to print.", min=1)
    ] = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Verify all checksums, index pointers, live bytes, and the MANIFEST of a bookie.

    The exit code is 1 if there is a defect. The last line of the output
    contains the numbers of verified parts.
    """
    from bookie_server.tools.check import check as run_check

    with nothing_changed():
        report = with_directory(directory, lambda opened: run_check(opened, limit))
    if as_json:
        print_json(
            {
                "findings": [asdict(finding) for finding in report.findings],
                "notes": report.notes,
                "wrong": report.wrong,
                **{name: report.seen[name] for name in SEEN},
            }
        )
    else:
        _print_report(report)
    raise typer.Exit(1 if report.wrong else 0)


SEEN = {
    "files": "file",
    "ledgers": "ledger",
    "records": "record",
    "entries": "entry",
    "pieces": "piece",
    "bytes": "byte",
}


def _print_report(report: Report) -> None:
    for finding in report.findings:
        place = "" if finding.offset is None else f" at byte {finding.offset}"
        console.print(f"wrong: {finding.file}{place}: {finding.what}", soft_wrap=True)
    if report.wrong > len(report.findings):
        console.print(f"{report.wrong - len(report.findings):,} further defects; raise --limit")
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
    counts = ", ".join(counted(report.seen[name], one, name) for name, one in SEEN.items())
    console.print(f"{counts}, {report.wrong:,} wrong", soft_wrap=True)


@app.command("dump", epilog="Example: ledgerlog bookie dump data/bookie-0 7 --json > ledger-7")
def dump(
    directory: Directory,
    ledger_id: Annotated[int, typer.Argument(metavar="LEDGER_ID", help="Ledger ID.", min=0)],
    first: Annotated[int, typer.Option(metavar="N", help="ID of the first entry.", min=0)] = 0,
    last: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="ID of the last entry, inclusive; default: the largest.", min=0
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="New file; default: standard output."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the length and the stored bytes of each entry.")
    ] = False,
    as_json: Annotated[bool, json_lines("entry")] = False,
) -> None:
    """Write the entries of one ledger in order, without a running bookie.

    An entry is written as the bookie stores it: 32 bytes of header, the
    digest, and the payload. By default, each line has the entry ID and the
    stored bytes in hex digits. With --raw, each entry is its length in 4
    bytes (big-endian) and the stored bytes. The number of entries, and the IDs
    that are missing or not readable, are written to standard error. The exit
    code is 1 if an entry is not readable, or if a damaged file may have more
    entries.
    """
    if raw and as_json:
        raise ConfigurationError("--raw and --json exclude each other: pass one of them")
    if last is not None and last < first:
        raise ConfigurationError(f"--last {last} is below --first {first}, so there is no entry")
    encode = raw_entry if raw else json_line if as_json else hex_line
    with nothing_changed(), _output(output) as target:
        outcome, warning = with_directory(
            directory, lambda opened: _dump(opened, ledger_id, first, last, target, encode)
        )
        target.flush()
    _report_dump(directory, ledger_id, outcome, warning)
    raise typer.Exit(1 if outcome.unreadable.count or outcome.files_in_doubt else 0)


async def _dump(
    directory: RestingDirectory,
    ledger_id: int,
    first: int,
    last: int | None,
    target: BinaryIO,
    encode: Callable[[int, bytes], bytes],
) -> tuple[DumpResult, str]:
    from bookie_server.tools.directory import unfinished_run
    from bookie_server.tools.entries import LedgerEntries

    entries = LedgerEntries(directory, ledger_id)
    async for entry_id, stored in entries.read(first, last):
        target.write(encode(entry_id, stored))
    return entries.outcome, unfinished_run(directory.manifest)


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        file = path.open("xb")
    except FileExistsError:
        raise ConfigurationError(
            f"{path} exists: pass another --output, or remove the file first", path=str(path)
        ) from None
    with file:
        try:
            yield file
        except BaseException:
            # If the file were kept, a second call of the command would fail because the file
            # exists.
            path.unlink()
            raise


def _report_dump(path: Path, ledger_id: int, outcome: DumpResult, warning: str) -> None:
    from bookie_server.tools.entries import describe_ranges

    counts = f"{outcome.missing.count:,} missing, {outcome.unreadable.count:,} not readable"
    entries = counted(outcome.entries, "entry", "entries")
    lines = [f"{entries}, {outcome.size_bytes:,} bytes, {counts}"]
    if not outcome.is_known:
        lines.append(
            f"{path} has no ledger {ledger_id}; `ledgerlog bookie inspect ledger {path}` shows all"
        )
    if outcome.missing.count:
        lines.append(f"missing: {describe_ranges(outcome.missing)}")
    if outcome.unreadable.count:
        lines.append(f"not readable: {describe_ranges(outcome.unreadable)}")
    if outcome.files_in_doubt:
        files = counted(outcome.files_in_doubt, "file is", "files are")
        lines.append(f"{files} missing or damaged, so an entry that is missing here may exist")
    if warning:
        lines.append(warning)
    for line in lines:
        typer.echo(line, err=True)


@app.command("rebuild-index", epilog="Example: ledgerlog bookie rebuild-index data/bookie-0")
def rebuild_index(
    directory: Directory,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="ID or name of a file; default: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild the damaged indexes of finished files from the records of these files.

    If a record of a file is not readable, the file keeps its damaged index,
    and the exit code is 1. With a new index, a bookie would report the entries
    of this record as absent.
    """
    from bookie_server.tools.rebuild import INTACT, REFUSED, Rebuild, rebuild_indexes

    async def work(opened: RestingDirectory) -> list[Rebuild]:
        return await rebuild_indexes(opened, None if file is None else opened.entry_of(file))

    done = with_directory(directory, work)
    if as_json:
        print_json([asdict(each) for each in done])
    else:
        rows = [(e.slot, e.outcome, e.pieces, e.reason) for e in done if e.outcome != INTACT]
        if rows:
            columns = ("file", "outcome", "pieces", "reason")
            print_table(f"indexes in {directory}", columns, rows)
        counts = {name: sum(e.outcome == name for e in done) for name in (INTACT, "rebuilt")}
        refused = sum(e.outcome == REFUSED for e in done)
        console.print(
            f"{counts[INTACT]:,} intact, {counts['rebuilt']:,} rebuilt, {refused:,} refused"
        )
    raise typer.Exit(1 if any(each.outcome == REFUSED for each in done) else 0)


@app.command("format", epilog="Example: ledgerlog bookie format data/bookie-0")
def format_directory(
    directory: Directory,
    force: Annotated[
        bool, typer.Option("--force", help="Delete the files even if they have entries.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete all files of a bookie from its directory.

    Other files are kept. The ID of the bookie cannot be used again: a bookie
    without its files would report acknowledged entries as absent.
    """
    plan = asyncio.run(_format(directory, force=force, yes=yes))
    for journal in plan.kept_journals:
        message = f"kept the journal files in {journal}, because {directory} may be a copy"
        typer.echo(message, err=True)
    print_outcome(
        {"directory": str(directory), "deleted": plan.names, "deleted_journal": plan.journal_names},
        f"deleted {counted(len(plan.names), 'file', 'files')} of {directory}; start the next "
        "bookie there with another --bookie-id",
        as_json=as_json,
    )


async def _format(path: Path, *, force: bool, yes: bool) -> Plan:
    from bookie_server.tools.directory import locked
    from bookie_server.tools.format import carry_out, plan_format

    async with locked(path) as files:
        plan = await plan_format(files)
        if plan.entries and not force:
            raise ConfigurationError(
                f"{path} has {plan.entries}. Nothing was deleted; pass --force to delete them",
                path=str(path),
            )
        if not yes:
            _describe(path, plan)
            confirm(f"delete these files of {path}", otherwise="nothing was deleted")
        await carry_out(files, plan)
        return plan


NAMES_SHOWN_MAX = 10


def _describe(path: Path, plan: Plan) -> None:
    """Print to standard error which files a format deletes and which it keeps."""
    for where, names in {str(path): plan.names, **plan.journals}.items():
        if names:
            shown = ", ".join(names[:NAMES_SHOWN_MAX])
            rest = f" and {len(names) - NAMES_SHOWN_MAX} more" * (len(names) > NAMES_SHOWN_MAX)
            typer.echo(f"in {where}, delete {shown}{rest}", err=True)
    if plan.entries:
        typer.echo(f"this deletes {plan.entries}", err=True)
    if plan.others:
        typer.echo(f"keep {', '.join(plan.others[:NAMES_SHOWN_MAX])}", err=True)
