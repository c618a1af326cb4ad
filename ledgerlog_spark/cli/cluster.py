"""`ledgerlog cluster init|info|nuke`: creates, shows or deletes the metadata of a cluster."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, Yes, confirm, group, metadata
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    counted,
    print_fields,
    print_json,
    print_outcome,
    spinner,
)
from ledgerlog_spark.errors import MetadataFormatError
from ledgerlog_spark.metadata.clusters import FoundCluster
from ledgerlog_spark.metadata.ledgers.layout import BY_NAME
from ledgerlog_spark.metadata.registration import DELETING
from ledgerlog_spark.metadata.stores import MetadataStores

NAMED_MAX = 10

app = group("Create, show or delete the metadata of a cluster.", "ledgerlog cluster info")


@app.command("init", epilog="Example: ledgerlog cluster init -u zk://127.0.0.1:2181/ledgers")
def init(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Create the metadata of a new cluster. Fail if a cluster exists.

    The first bookie of a cluster also creates the metadata, if it is missing.
    The scheme of the URI determines the layout of the ledgers. `zk` and
    `zk+hierarchical` mean the hierarchical layout. `zk+longhierarchical` means
    the layout whose paths have all digits of an ID. `zk+flat` means the flat
    layout.
    """

    async def work() -> tuple[str, str]:
        async with metadata(uri) as stores:
            return await stores.clusters.create(stores.layout), _layout_of(stores)

    instance_id, layout = asyncio.run(work())
    text = (
        f"the cluster {instance_id} is created at {uri}; start its bookies with `ledgerlog bookie "
        f"run --metadata-service-uri {uri}`"
    )
    outcome = {"uri": uri, "instance_id": instance_id, "layout": layout}
    print_outcome(outcome, text, as_json=as_json)


@app.command("info", epilog="Example: ledgerlog cluster info --json")
def info(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Show the id and the layout of a cluster, its bookies, and its numbers of ledgers and logs."""

    async def work() -> dict[str, Any]:
        async with metadata(uri) as stores:
            return await _info(stores)

    found = asyncio.run(work())
    if as_json:
        print_json(found)
        return
    recovery = found["auto_recovery"]
    fields = {name: found[name] for name in ("instance_id", "layout", "ledgers", "logs")}
    fields |= {
        "auto-recovery": "enabled" if recovery["is_enabled"] else "disabled",
        "auditor": recovery["auditor"],
        "ledgers with lost bookies": recovery["is_under_replicated"],
    }
    bookies = {f"bookies {name}": _names(ids) for name, ids in found["bookies"].items()}
    print_fields(f"cluster {uri}", {**fields, **bookies})


async def _info(stores: MetadataStores) -> dict[str, Any]:
    registration = stores.registration
    await registration.sync()
    instance_id = await registration.instance_id()
    writable, read_only = await registration.writable(), await registration.read_only()
    away = sorted({*await registration.known()} - {*writable, *read_only})
    return {
        "instance_id": instance_id,
        "layout": _layout_of(stores),
        "ledgers": sum([1 async for _ in stores.ledgers.ids()]),
        "logs": len(await stores.logs.names()),
        "bookies": {"writable": [*writable], "read-only": [*read_only], "away": away},
        "auto_recovery": await _auto_recovery(stores),
    }


async def _auto_recovery(stores: MetadataStores) -> dict[str, Any]:
    marked = False
    async for _ in stores.marks.walk():
        marked = True
        break
    return {
        "is_enabled": await stores.recovery_switch.is_enabled(),
        "auditor": await stores.auditor_election.current(),
        "is_under_replicated": marked,
    }


def _layout_of(stores: MetadataStores) -> str:
    (name,) = (name for name, layout in BY_NAME.items() if layout == stores.layout)
    return name


def _names(ids: list[str]) -> str:
    if not ids:
        return "0"
    more = ", ..." if len(ids) > NAMED_MAX else ""
    return f"{len(ids):,}: {', '.join(ids[:NAMED_MAX])}{more}"


@app.command("nuke", epilog="Example: ledgerlog cluster nuke --instance-id 6e2ab57c --delete")
def nuke(
    instance_id: Annotated[
        str,
        typer.Option(metavar="ID", help="Instance ID of the cluster, as `cluster info` shows it."),
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the metadata; default: only show it.")
    ] = False,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Delete the metadata of a cluster: all its ledgers and logs are lost for ever.

    Without --delete, the command only shows what it would delete. It fails if
    the cluster has another instance ID, or if a bookie is registered. The
    directories of the bookies are not changed: delete each directory with
    `ledgerlog bookie format`. After an interruption, run the same command
    again.
    """
    asyncio.run(_nuke(uri, instance_id, is_dry=not delete, yes=yes, as_json=as_json))


async def _nuke(uri: str, instance_id: str, *, is_dry: bool, yes: bool, as_json: bool) -> None:
    async with metadata(uri) as stores:
        clusters = stores.clusters
        checked = await clusters.check(instance_id)
        found = {**_counts(checked), "ledgers": await _ledgers(stores)}
        if is_dry:
            text = (
                f"would delete {_lost(found)} of the cluster {instance_id} at {uri}; nothing was "
                "changed. Pass --delete to delete them for ever"
            )
            print_outcome({**found, "is_deleted": False}, text, as_json=as_json)
            return
        if not yes:
            confirm(
                f"delete {_lost(found)} of the cluster {instance_id} at {uri} for ever",
                otherwise="nothing was deleted",
            )
        with console.status("deleting", spinner=spinner()) as status:

            def shown(count: int) -> None:
                status.update(f"{count:,} nodes deleted")

            nodes = await clusters.delete(instance_id, shown)
    text = (
        f"the cluster {instance_id} at {uri} is deleted: {_lost(found)}. Delete the directory of "
        "each bookie with `ledgerlog bookie format`"
    )
    print_outcome({**found, "nodes": nodes, "is_deleted": True}, text, as_json=as_json)


def _counts(found: FoundCluster) -> dict[str, Any]:
    return {
        "instance_id": found.instance.value.removeprefix(DELETING),
        "is_being_deleted": found.is_being_deleted,
        "logs": len(found.logs),
        "bookies": list(found.bookies),
    }


async def _ledgers(stores: MetadataStores) -> int | None:
    """Return the number of ledgers, or None if a node has a name that no ledger can have."""
    try:
        return sum([1 async for _ in stores.ledgers.ids()])
    except MetadataFormatError:
        return None


def _lost(found: dict[str, Any]) -> str:
    ledgers = found["ledgers"]
    shown = "the ledgers" if ledgers is None else counted(ledgers, "ledger", "ledgers")
    return (
        f"{shown}, {counted(found['logs'], 'log', 'logs')} and "
        f"{counted(len(found['bookies']), 'cookie', 'cookies')}"
    )
