"""`ledgerlog bookies`: lists the bookies of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, group, registration
from ledgerlog_spark.cli.output import AsJson, print_fields, print_json, print_listing
from ledgerlog_spark.errors import BookieUnavailableError

app = group("Show the bookies of a cluster.", "ledgerlog bookies list")


async def _all(uri: str) -> list[dict[str, Any]]:
    async with registration(uri) as store:
        writable, read_only = await store.writable(), await store.read_only()
        names = sorted({*writable, *read_only, *await store.known()})
        found: list[dict[str, Any]] = []
        for name in names:
            state = "writable" if name in writable else "read-only" if name in read_only else "down"
            each = {"bookie_id": name, "state": state, "address": None, "grpc_port": None}
            found.append({**each, "properties": {}})
            with contextlib.suppress(BookieUnavailableError):
                info = await store.info(name)
                found[-1] |= {"address": f"{info.host}:{info.port}", "grpc_port": info.grpc_port}
                found[-1]["properties"] = dict(info.properties)
        return found


@app.command("list", epilog="Example: ledgerlog bookies list --json")
def list_bookies(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """List all bookies that have ever joined the cluster, with their current states."""
    print_listing(
        asyncio.run(_all(uri)),
        lambda b: (b["bookie_id"], b["state"], b["address"], _text(b["grpc_port"])),
        title=f"bookies of {uri}",
        columns=("bookie", "state", "address", "gRPC port"),
        as_json=as_json,
    )


@app.command("info", epilog="Example: ledgerlog bookies info bookie-0")
def info(
    bookie_id: Annotated[str, typer.Argument(help="Bookie ID. `bookies list` shows all.")],
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Show the registration of one bookie."""
    bookies = {b["bookie_id"]: b for b in asyncio.run(_all(uri))}
    found = bookies.get(bookie_id)
    if found is None:
        near = difflib.get_close_matches(bookie_id, bookies, 1)
        raise BookieUnavailableError(
            f"bookie {bookie_id!r} has never joined the cluster at {uri}"
            + (f"; did you mean {near[0]!r}?" if near else "; `ledgerlog bookies list` shows all"),
            bookie_id=bookie_id,
            definite=True,
            retriable=False,
        )
    if as_json:
        print_json(found)
        return
    properties = found.pop("properties")
    shown = {**found, "grpc_port": _text(found["grpc_port"]), **properties}
    print_fields(f"bookie {bookie_id}", shown)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
