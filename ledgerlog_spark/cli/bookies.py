"""`ledgerlog bookies`: lists the bookies of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark.cli.control_service import ControlServices
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, group, metadata, registration
from ledgerlog_spark.cli.output import AsJson, print_fields, print_json, print_listing
from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.topologies import place_of
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.wire.repair_notes import Vacation
from ledgerlog_spark.wire.topology import Topology

if TYPE_CHECKING:
    from ledgerlog_spark.transport import control_pb2 as pb

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


async def _with_figures(uri: str, bookies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the bookies with their places, and the figures that running bookies report."""
    async with metadata(uri) as stores, ControlServices(stores.registration) as services:
        topology = await stores.topologies.read()
        places = Topology() if topology is None else topology.value
        vacations = await stores.vacations.all()
        running = [each for each in bookies if each["grpc_port"] is not None]
        names = [each["bookie_id"] for each in running]
        replies = dict(zip(names, await asyncio.gather(*map(services.info, names)), strict=True))
        return [
            {
                **each,
                "vacation": _phase(vacations.get(each["bookie_id"])),
                **await _place(stores, each["bookie_id"], places),
                **_figures(replies.get(each["bookie_id"])),
            }
            for each in bookies
        ]


async def _place(stores: MetadataStores, bookie_id: str, topology: Topology) -> dict[str, Any]:
    info = None
    with contextlib.suppress(BookieUnavailableError):
        info = await stores.registration.info(bookie_id)
    return asdict(place_of(info, bookie_id, topology))


def _phase(vacation: Versioned[Vacation] | None) -> str | None:
    """Return the kind and the phase of the bookie's vacation, or None if there is no vacation."""
    if vacation is None:
        return None
    return f"{vacation.value.kind.value}: {vacation.value.phase.value}"


def _figures(reply: pb.GetInfoReply | None) -> dict[str, Any]:
    """Return the figures of a bookie. The value of a figure that it did not report is None."""
    if reply is None:
        return dict.fromkeys(FIGURES)
    is_measured = reply.total_bytes > 0
    return {
        "free_bytes": reply.free_bytes if is_measured else None,
        "total_bytes": reply.total_bytes if is_measured else None,
        "ledgers": reply.ledgers_count if is_measured else None,
        "ledgers_in_limbo": reply.ledgers_in_limbo,
        "failure": reply.failure or None,
    }


VERBOSE = ("bookie_id", "state", "vacation", "address", "host", "rack", "region")
FIGURES = ("free_bytes", "total_bytes", "ledgers", "ledgers_in_limbo", "failure")


@app.command("list", epilog="Example: ledgerlog bookies list --verbose")
def list_bookies(
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also show the disks, the ledgers and the place of each bookie."
        ),
    ] = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """List all bookies that have ever joined the cluster, with their current states.

    With --verbose, each running bookie reports its figures. Bookies of Apache
    BookKeeper and of older releases report no figures.
    """
    found = asyncio.run(_all(uri))
    columns: tuple[str, ...] = ("bookie", "state", "address", "gRPC port")
    if verbose:
        found = asyncio.run(_with_figures(uri, found))
        columns = ("bookie", "state", "leaves", "address", "host", "rack", "region", "free", "size",
                   "ledgers", "in limbo", "failure")  # fmt: skip
    print_listing(
        found,
        _verbose_row if verbose else _row,
        title=f"bookies of {uri}",
        columns=columns,
        as_json=as_json,
    )


def _row(bookie: dict[str, Any]) -> tuple[object, ...]:
    return bookie["bookie_id"], bookie["state"], bookie["address"], _text(bookie["grpc_port"])


def _verbose_row(bookie: dict[str, Any]) -> tuple[object, ...]:
    return (
        *(bookie[name] for name in VERBOSE),
        _gigabytes(bookie["free_bytes"]),
        _gigabytes(bookie["total_bytes"]),
        *(bookie[name] for name in ("ledgers", "ledgers_in_limbo", "failure")),
    )


def _gigabytes(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 1e9:,.1f} GB"


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
