"""`ledgerlog logs sweep|merge`: deletes expired data of logs, and merges small ranges."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledgerlog_spark.cli.logs.lookup import names_of, opened
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, connect
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    picked,
    print_listing,
)
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.upkeep.merging import Merged
from ledgerlog_spark.upkeep.upkeep import Kept

app = typer.Typer()
RETRIABLE = 4
WAIT_SECONDS = 60.0

T = TypeVar("T")
LogNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Names of logs; by default all logs.")
]
Wait = Annotated[
    float,
    typer.Option(
        metavar="N",
        help="Maximum time to wait in seconds, while another process maintains logs.",
        min=0,
    ),
]


def _bar(as_json: bool) -> Progress:
    """Make a progress bar that disappears at the end. If `as_json` is True, no bar is shown."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=as_json,
    )


def _existing(client: BlockingLogClient, names: Sequence[str] | None) -> list[str] | None:
    """Check that the named logs exist, and return their names. None stands for all logs."""
    return [opened(client, name).name for name in names] if names else None


def _to_merge(client: BlockingLogClient, names: Sequence[str] | None) -> list[str]:
    """Return the names of the logs to merge: the given names, or all logs that can be merged."""
    from ledgerlog_spark.upkeep.merging import check_mergeable, is_mergeable

    if names:
        logs = [opened(client, name) for name in names]
        for log in logs:
            check_mergeable(log.state().head)
        return [log.name for log in logs]
    return [name for name in names_of(client) if is_mergeable(opened(client, name).state().head)]


def _held(
    client: BlockingLogClient, work: Callable[[LedgerClient], Coroutine[Any, Any, list[T] | None]]
) -> list[T]:
    """Return the results of `work`. If another process has the lease, end the command."""
    from ledgerlog_spark.upkeep.upkeep import holder

    done = client.run(work)
    if done is not None:
        return done
    other = client.run(holder) or {}
    process = f"process {other.get('pid', '?')} on {other.get('host', '?')}"
    Console(stderr=True).print(
        f"{process} is maintaining the logs, so nothing was changed; retry later", soft_wrap=True
    )
    raise typer.Exit(RETRIABLE)


@app.command("sweep", epilog="Example: ledgerlog logs sweep --json")
def sweep(
    names: LogNames = None,
    wait: Wait = WAIT_SECONDS,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Delete expired rows and versions, and ledgers that no version needs.

    The command is safe at any time, even while logs are written and read.
    """
    from ledgerlog_spark.upkeep.upkeep import Upkeep

    with connect(uri) as client:
        wanted = _existing(client, names)
        with _bar(as_json) as progress:
            task = progress.add_task("sweeping", total=len(wanted) if wanted else None)

            async def swept(ledgers: LedgerClient) -> list[Kept] | None:
                upkeep = Upkeep(ledgers, policy=None, on_log=lambda _: progress.advance(task))
                return await upkeep.run(wanted, wait_seconds=wait)

            kept = _held(client, swept)
    print_listing(
        [_swept(done) for done in kept],
        itemgetter(*_SWEPT),
        title=f"logs of {uri}",
        columns=["starts at" if key == "start_offset" else key.replace("_", " ") for key in _SWEPT],
        as_json=as_json,
    )
    if any(done.errors for done in kept):
        raise typer.Exit(1)


_SWEPT = (
    "log", "start_offset", "ledgers_unlisted", "ledgers_deleted", "pages_deleted", "problem",
)  # fmt: skip


def _swept(done: Kept) -> dict[str, Any]:
    kept = done.swept.ledgers_kept if done.swept else ()
    problems = [
        f"the log is deleted, but {len(kept)} of its ledgers could not be sealed, such as ledger "
        f"{each}: start the bookies of these ledgers, or run `ledgerlog ledgers delete`"
        for each in kept[:1]
    ]
    return {
        "log": done.log,
        "start_offset": done.truncated.start_offset if done.truncated else None,
        **done.counts(),
        "pages_deleted": done.swept.pages_deleted if done.swept else 0,
        "problem": "; ".join((*map(str, done.errors), *problems)) or None,
    }


@app.command("merge", epilog="Example: ledgerlog logs merge flights")
def merge(
    names: LogNames = None,
    target_mib: Annotated[
        int, typer.Option(metavar="N", help="Maximum size of a merged range, in MiB.", min=1)
    ] = 256,
    ranges_min: Annotated[
        int,
        typer.Option(metavar="N", help="Minimum number of neighbouring ranges to merge.", min=2),
    ] = 2,
    compression: Annotated[
        str, typer.Option(metavar="NAME", help="Compression: zstd, lz4 or none.")
    ] = "zstd",
    seal: Annotated[
        bool,
        typer.Option("--seal", help="First close open ledgers. Streams then use new ledgers."),
    ] = False,
    wait: Wait = WAIT_SECONDS,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Merge small ranges into large ledgers. Offsets and versions do not change.

    The command is safe while logs are written and read. The old ledgers are
    deleted after `deletedRetentionMs`. Leader logs cannot be merged:
    `rollBytes` and `rollMs` set the size of their ledgers.
    """
    from ledgerlog_spark.arrow.stream_codec import write_options
    from ledgerlog_spark.upkeep.merge_plan import MergePolicy
    from ledgerlog_spark.upkeep.merging import LogMerger
    from ledgerlog_spark.upkeep.upkeep import leased

    write_options(compression)  # raises an error for a wrong name, before anything is changed
    policy = MergePolicy(target_bytes=target_mib << 20, ranges_min=ranges_min)
    with connect(uri) as client:
        wanted = _to_merge(client, names)
        with _bar(as_json) as progress:

            async def merged(ledgers: LedgerClient) -> list[Merged] | None:
                async with leased(ledgers, wait_seconds=wait) as is_held:
                    if not is_held:
                        return None
                    return [await one(ledgers, name) for name in wanted]

            async def one(ledgers: LedgerClient, name: str) -> Merged:
                task = progress.add_task(f"merging {name}", total=None)
                merger = LogMerger(
                    await logs_of(ledgers).open(name),
                    ledgers,
                    policy,
                    compression=compression,
                    seals=seal,
                    on_progress=lambda done, total: progress.update(
                        task, completed=done, total=total
                    ),
                )
                return await merger.merge()

            done = _held(client, merged)
    if not as_json and not any(each.ledgers or each.lost for each in done):
        console.print(_nothing_merged(wanted, ranges_min), soft_wrap=True)
        return
    print_listing(
        [picked(each, *_MERGED) for each in done],
        itemgetter(*_MERGED),
        title=f"logs of {uri}",
        columns=[key.replace("_", " ") for key in _MERGED],
        as_json=as_json,
    )


def _nothing_merged(names: Sequence[str], ranges_min: int) -> str:
    if not names:
        return "there is nothing to merge: the cluster has no transactional log"
    where = f"log {names[0]}" if len(names) == 1 else f"{len(names):,} logs"
    return (
        f"there is nothing to merge in {where}: a merge needs {ranges_min} neighbouring small "
        "ranges of closed ledgers"
    )


_MERGED = ("log", "ranges_before", "ranges_after", "ledgers", "rows", "size_bytes", "lost")
