"""`ledgerlog logs set|history|restore|truncate|delete`: versions and properties of a log."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated

import typer
from rich.progress import Progress

from ledgerlog_spark.cli.logs.lookup import LogName, describe_version, opened, time_ms
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, Yes, confirm, connect
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    print_fields,
    print_json,
    print_listing,
    print_outcome,
    print_table,
)
from ledgerlog_spark.errors import ConfigurationError, LogKindError, VersionNotAvailableError
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.properties import LogProperties, user_properties
from ledgerlog_spark.protocol.log.state.records import LogKind

app = typer.Typer()
END_OF_TIME_MS = 1 << 62
OfTime = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Select the version that was the newest at this time, such as '2026-01-31 12:00'.",
    ),
]


@app.command(
    "set", epilog="Example: ledgerlog logs set flights retentionMs=86400000 --unset rollMs"
)
def set_properties(
    name: LogName,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROPERTY=VALUE", help="Properties to set; by default, show all properties."
        ),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Restore the default of a property.")
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Change properties of a log, or show all its properties. No new version is created.

    Changes of ensemble, quorums and digest apply to new ledgers only. A
    change of retention takes effect at the next sweep.
    """
    wanted: dict[str, str | None] = dict.fromkeys(unset or ())
    wanted |= dict(pair_of_property(change) for change in changes or ())
    with connect(uri) as client:
        log = opened(client, name)
        stored = (
            log.set_properties(wanted) if wanted else user_properties(log.state().head.properties)
        )
    properties = LogProperties.from_mapping(stored).to_full_mapping()
    if as_json:
        print_json({"name": name, "properties": properties, "set": sorted(stored)})
        return
    print_table(
        f"properties of log {name}",
        ("property", "value", ""),
        [(key, value, "set" if key in stored else "default") for key, value in properties.items()],
    )


def pair_of_property(change: str) -> tuple[str, str]:
    """Split PROPERTY=VALUE into its key and its value."""
    key, equals, value = change.partition("=")
    if not equals:
        raise ConfigurationError(
            f"{change!r} is not of the form PROPERTY=VALUE; to restore a default, run "
            "`ledgerlog logs set LOG --unset PROPERTY`",
            key=change,
        )
    return key.strip(), value.strip()


@app.command("history", epilog="Example: ledgerlog logs history flights --at '2026-01-31 12:00'")
def history(
    name: LogName, at: OfTime = None, uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False
) -> None:
    """List the readable versions of a log, oldest first, or show the newest version at a time."""
    with connect(uri) as client:
        log = opened(client, name)
        # If the log has no versions, this call raises an error, even if no time was given.
        newest = log.version_at(time_ms(at, "--at") if at is not None else END_OF_TIME_MS)
        versions = [newest] if at is not None else list(log.history())
    print_listing(
        [describe_version(version) for version in versions],
        itemgetter(*_SHOWN),
        title=f"versions of log {name}",
        columns=("version", "operation", "start offset", "end offset", "rows", "committed"),
        as_json=as_json,
    )


_SHOWN = ("version", "operation", "start_offset", "end_offset", "rows", "commit_time")


@app.command("restore", epilog="Example: ledgerlog logs restore flights 12 --yes")
def restore(
    name: LogName,
    version: Annotated[
        int | None,
        typer.Argument(metavar="VERSION", help="Version number. `logs history` shows all."),
    ] = None,
    at: OfTime = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also replace rows that other jobs commit during the restore."
        ),
    ] = False,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Create a new version with the rows of an older version.

    The replaced version stays readable for `versionRetentionMs`.
    """
    from ledgerlog_spark.upkeep.rows import restore as restored

    if (version is None) == (at is None):
        raise ConfigurationError("pass either VERSION or --at TIME")
    with connect(uri) as client:
        log = opened(client, name)
        number = log.version_at(time_ms(at, "--at")).version if at is not None else version
        assert number is not None
        if not yes:
            older, newest = log.snapshot(number).interval, log.snapshot().interval
            confirm(
                f"replace the {newest.rows:,} rows of version {newest.version} of log {name} "
                f"with the {older.rows:,} rows of version {number}",
                otherwise=f"log {name} was not restored",
            )
        done = client.run(
            lambda ledgers: restored(
                logs_of(ledgers).open_by_id(name, log.log_id),
                ledgers,
                number,
                overwrite_if_changed=force,
            )
        )
    is_changed = done.status is CommitStatus.COMMITTED
    text = f"log {name} is restored: version {done.version} has the rows of version {number}"
    if done.status is CommitStatus.NOTHING_TO_COMMIT:
        text = f"log {name} already has the rows of version {number}"
    result = {"name": name, "restored_version": number, "version": done.version}
    print_outcome({**result, "is_changed": is_changed}, text, as_json=as_json)


@app.command("truncate", epilog="Example: ledgerlog logs truncate flights --offset 1000000")
def truncate(
    name: LogName,
    offset: Annotated[
        int | None, typer.Option(metavar="N", help="Offset of the first row to keep.", min=0)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Delete rows that are older than this time, such as 2026-01-31. If the log has "
            "no version of that time, only whole ranges are deleted. A leader log has no versions.",
        ),
    ] = None,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest rows of a log, and all versions that contain any of these rows."""
    if (offset is None) == (before is None):
        raise ConfigurationError("pass either --offset or --before")
    with connect(uri) as client:
        log = opened(client, name)
        first = offset if offset is not None else _end_at(log, before or "")
        head = log.state().head
        rows = min(first, head.end_offset) - head.start_offset
        if not yes:
            confirm(
                f"delete {max(0, rows):,} rows of log {name}, and all versions that contain any "
                "of these rows",
                otherwise=f"log {name} was not truncated",
            )
        with Progress(console=console, transient=True, disable=as_json) as progress:
            task = progress.add_task("deleting ledgers", total=None)
            done = log.truncate(
                first, on_progress=lambda count, _: progress.update(task, completed=count)
            )
    is_leader_log = head.kind is LogKind.LEADER
    was, is_now = ((each.start_offset, each.oldest_version) for each in (head, done))
    found = {
        "name": name,
        "version": None if is_leader_log else done.version,
        "start_offset": done.start_offset,
        "oldest_version": None if is_leader_log else done.oldest_version,
        "ledgers_unlisted": len(done.unlisted),
        "is_changed": bool(done.unlisted) or was != is_now,
    }
    if found["is_changed"] and not as_json:
        del found["is_changed"]
        print_fields(f"log {name} is truncated", found)
        return
    unchanged = f"log {name} already begins at offset {done.start_offset:,}; nothing was deleted"
    print_outcome(found, unchanged, as_json=as_json)


def _end_at(log: BlockingLog, before: str) -> int:
    """Return the offset after the last row that the log had at a time.

    If the log has no version of that time, the result is the end offset of the newest range whose
    rows are all older than the time. A log has no version of a time if its versions have expired,
    or if it is a leader log.
    """
    wall_ms = time_ms(before, "--before")
    try:
        return log.version_at(wall_ms).end_offset
    except (LogKindError, VersionNotAvailableError):
        items = log.snapshot().items
        ends = [item.end_offset for item in items if 0 < item.newest_ms <= wall_ms]
        return max(ends, default=0)


@app.command("delete", epilog="Example: ledgerlog logs delete flights --yes")
def delete(
    name: LogName, yes: Yes = False, uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False
) -> None:
    """Delete a log. A new log can have the same name immediately.

    The sweeper deletes the ledgers of the log after `deletedRetentionMs`.
    """
    with connect(uri) as client:
        log = opened(client, name)
        head = log.state().head
        rows = head.end_offset - head.start_offset
        if not yes:
            confirm(
                f"delete log {name} with {rows:,} rows and all its versions",
                otherwise=f"log {name} was not deleted",
            )
        log.delete()
    grace_ms = LogProperties.from_mapping(head.properties).deleted_retention_ms
    print_outcome(
        {"name": name, "log_id": log.log_id, "is_deleted": True},
        f"log {name} is deleted. Its streams and tails stop. Running batch reads have "
        f"{grace_ms / 3_600_000:g} h to finish; after that, the sweeper deletes the ledgers",
        as_json=as_json,
    )
