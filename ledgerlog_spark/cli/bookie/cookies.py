"""`ledgerlog bookie cookie show|create|fix|delete`: shows and changes a bookie's identity."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, Yes, confirm, group, metadata
from ledgerlog_spark.cli.output import AsJson, console, print_json, print_outcome, print_table
from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from bookie_server.tools.cookies import Held, Stored
    from ledgerlog_spark.wire.cookie import Cookie

app = group(
    "Show and mend the cookies of a bookie, which bind it to its directory.",
    "ledgerlog bookie cookie show data/bookie-0",
)
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of a bookie that does not run.")
]


@app.command("show", epilog="Example: ledgerlog bookie cookie show data/bookie-0")
def show(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Directory of the bookie.")
    ] = None,
    bookie_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Bookie ID; default: the owner of DIR."),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Compare the cookie and the counters of a directory with the metadata store.

    The bookie may run. The exit code is 1 if the bookie would not start with
    the directory.
    """
    from bookie_server.tools.cookies import differences, held_in

    held = None if directory is None else held_in(directory.absolute())
    stored = asyncio.run(_look(uri, _chosen(held, bookie_id)))
    if directory is not None:
        # The bookie may run. It writes its MANIFEST before its record in the metadata store. So the
        # record is read first, and then the MANIFEST.
        held = held_in(directory.absolute())
    found = differences(stored, held)
    columns = {"metadata store": _stored_fields(stored)}
    if held is not None:
        columns[held.path] = _held_fields(held)
    if as_json:
        names = ("metadata_store", "directory")
        print_json(
            {
                "bookie_id": stored.bookie_id,
                "state": stored.state,
                **dict(zip(names, columns.values(), strict=False)),
                "differences": found,
            }
        )
    else:
        fields = dict.fromkeys(name for column in columns.values() for name in column)
        rows = [(name, *(column.get(name) for column in columns.values())) for name in fields]
        print_table(f"bookie {stored.bookie_id} ({stored.state})", ("field", *columns), rows)
        for difference in found:
            console.print(difference, soft_wrap=True)
        if not found and held is not None:
            console.print(f"bookie {stored.bookie_id} can start with {held.path}", soft_wrap=True)
    raise typer.Exit(1 if found else 0)


def _chosen(held: Held | None, bookie_id: str | None) -> str:
    if bookie_id is not None:
        return bookie_id
    if held is None:
        raise ConfigurationError("pass the directory of a bookie, or --bookie-id")
    if held.cookie is None:
        raise ConfigurationError(
            f"{held.path} has no cookie that can be read, so pass --bookie-id", path=held.path
        )
    return held.cookie.bookie_id


async def _look(uri: str, bookie_id: str) -> Stored:
    from bookie_server.tools.cookies import stored_about

    async with metadata(uri) as stores:
        return await stored_about(stores, bookie_id)


def _stored_fields(stored: Stored) -> dict[str, Any]:
    known = stored.known
    fields = _cookie_fields(stored.cookie)
    if known is None:
        return fields
    if len(known.directories) == 1:
        fields |= asdict(known.directories[0])
    elif known.directories:
        for name in ("directory_id", "starts", "changes"):
            fields[name] = ", ".join(str(getattr(each, name)) for each in known.directories)
    return {**fields, "is_retired": known.is_retired}


def _held_fields(held: Held) -> dict[str, Any]:
    identity = held.identity
    fields = _cookie_fields(held.cookie)
    if identity is None:
        return fields
    counters = {"starts": identity.starts, "changes": identity.changes}
    return {**fields, "directory_id": identity.directory_id or None, **counters}


def _cookie_fields(cookie: Cookie | None) -> dict[str, Any]:
    if cookie is None:
        return dict.fromkeys(("bookie_id", "instance_id", "ledger_directories"))
    return {
        "bookie_id": cookie.bookie_id,
        "instance_id": cookie.instance_id,
        "ledger_directories": ", ".join(cookie.ledger_directories),
    }


@app.command("create", epilog="Example: ledgerlog bookie cookie create data/bookie-0")
def create(directory: Directory, uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Write the cookie of a directory into the metadata store, which has lost it.

    The command also brings back a bookie that `delete` took out of service.
    The directory must have its cookie. The directory must not be older than
    the state in the metadata store.
    """
    from bookie_server.tools.cookies import create as run_create

    path = directory.absolute()

    async def work() -> Stored:
        async with metadata(uri) as stores:
            return await run_create(stores, path)

    stored = asyncio.run(work())
    text = f"the metadata store has the cookie of bookie {stored.bookie_id} again"
    if stored.cookie is not None and str(path) not in stored.cookie.ledger_directories:
        text += f"; it names another path, so now run `ledgerlog bookie cookie fix {path}`"
    print_outcome({"bookie_id": stored.bookie_id, "directory": str(path)}, text, as_json=as_json)


@app.command("fix", epilog="Example: ledgerlog bookie cookie fix /mnt/new/bookie-0")
def fix(
    directory: Directory,
    bookie_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Refuse the directory of any other bookie."),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Write the new path of a moved directory into its files and the metadata store.

    The bookie must not run. Its ID does not change. If only the address or
    port of the bookie has changed, start it with its old --bookie-id instead.
    An empty directory, an older copy and the directory of another bookie are
    refused.
    """
    from bookie_server.tools.cookies import fix as run_fix

    path = directory.absolute()

    async def work() -> list[str]:
        async with metadata(uri) as stores:
            return await run_fix(stores, path, bookie_id)

    changed = asyncio.run(work())
    text = (
        f"changed for {path}: {', '.join(changed)}"
        if changed
        else f"the cookies already name {path}; nothing was changed"
    )
    print_outcome({"directory": str(path), "changed": changed}, text, as_json=as_json)


@app.command("delete", epilog="Example: ledgerlog bookie cookie delete bookie-0")
def delete(
    bookie_id: Annotated[
        str, typer.Argument(metavar="ID", help="ID of the bookie whose data is lost.")
    ],
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Delete the cookie of a bookie whose data is lost, to take the bookie out of service.

    The copies of entries on this bookie count as lost. Auto-recovery copies
    the entries from other bookies to new bookies. No bookie can start with
    this ID and an empty directory. If the data is found again, `create` brings
    the bookie back.
    """
    from bookie_server.tools.cookies import delete as run_delete
    from bookie_server.tools.cookies import require_down, stored_about

    async def work() -> None:
        async with metadata(uri) as stores:
            stored = await stored_about(stores, bookie_id)
            require_down(stored)
            if not yes:
                typer.echo(
                    f"bookie {bookie_id} is taken out of service. Its copies of entries count as "
                    "lost, and its ID cannot be used again",
                    err=True,
                )
                confirm(f"delete the cookie of {bookie_id}", otherwise="nothing was changed")
            await run_delete(stores, stored)

    asyncio.run(work())
    print_outcome(
        {"bookie_id": bookie_id, "deleted": True},
        f"bookie {bookie_id} is out of service; start the next bookie with another --bookie-id",
        as_json=as_json,
    )
