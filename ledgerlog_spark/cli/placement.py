"""`ledgerlog bookies place` and `policy`: the places of bookies, and the rules for new entries."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, metadata
from ledgerlog_spark.cli.output import AsJson, print_fields, print_json, print_listing
from ledgerlog_spark.errors import BookieUnavailableError, ConfigurationError
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.topologies import place_of, policy_of
from ledgerlog_spark.model import BookieInfo, checked_place_name
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.wire.topology import Topology

app = typer.Typer()

ENFORCED = ("racks", "regions", "free-bytes", "quarantine")


@app.command("place", epilog="Example: ledgerlog bookies place bookie-0 --rack r7 --region east")
def place(
    bookie_id: Annotated[str, typer.Argument(help="Bookie ID. `bookies list` shows all.")],
    rack: Annotated[str | None, typer.Option(metavar="NAME", help="Rack of the bookie.")] = None,
    region: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Region of the bookie, such as a data center."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Computer of the bookie, if its address does not show it. Two bookies with the "
            "same name are on one computer.",
        ),
    ] = None,
    clear: Annotated[
        bool,
        typer.Option(
            "--clear", help="First delete the place of the bookie that this command set earlier."
        ),
    ] = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Set the place of a bookie. It overrides the place in the bookie's own settings.

    Clients use the new place within a minute. Entries that are stored already
    are not moved by this command.
    """
    given = {"rack": rack, "region": region, "host": host}
    place = {name: checked_place_name(value) for name, value in given.items() if value is not None}
    if not place and not clear:
        raise ConfigurationError("pass --rack, --region, --host or --clear")

    async def change(stores: MetadataStores) -> None:
        before, version = await _read(stores)
        names = await _names(stores, before)
        if bookie_id not in names:
            near = difflib.get_close_matches(bookie_id, names, 1)
            raise BookieUnavailableError(
                f"bookie {bookie_id!r} has never joined the cluster at {uri}"
                + (f"; did you mean {near[0]!r}?" if near else ""),
                bookie_id=bookie_id,
                definite=True,
                retriable=False,
            )
        known = dict(before.bookies)
        merged = {**({} if clear else known.pop(bookie_id, {})), **place}
        known.pop(bookie_id, None)
        if merged:
            known[bookie_id] = merged
        await stores.topologies.write(Topology(known, before.policy), version)

    checked_bookie_id(bookie_id)
    found = asyncio.run(_changed(uri, change))
    shown = next((each for each in found["bookies"] if each["bookie_id"] == bookie_id), None)
    shown = shown or {"bookie_id": bookie_id, "host": None, "rack": None, "region": None}
    if as_json:
        print_json(shown)
    else:
        print_fields(f"bookie {bookie_id}", shown)


@app.command("policy", epilog="Example: ledgerlog bookies policy --min-racks 3 --enforce racks")
def policy(
    min_racks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Minimum number of racks for the copies of an entry."),
    ] = None,
    min_regions: Annotated[
        int | None,
        typer.Option(metavar="N", help="Minimum number of regions for the copies of an entry."),
    ] = None,
    enforce: Annotated[
        str | None,
        typer.Option(
            metavar="RULES",
            help="Rules that are never given up: racks, regions, free-bytes or quarantine, "
            "separated by commas, or none.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="HOSTS",
            help="different, or same. With same, one computer may have two copies if there are "
            "too few computers.",
        ),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Show or change the rules for the bookies of new entries, and show where all bookies are.

    If no option is given, nothing is changed. Clients use new rules within a
    minute.
    """
    given = {
        "min_racks_per_write_quorum": min_racks,
        "min_regions_per_write_quorum": min_regions,
        "allow_same_host": _allowed_hosts(hosts),
        **_enforced(enforce),
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    PlacementPolicy(**wanted)  # type: ignore[arg-type]

    async def change(stores: MetadataStores) -> None:
        if not wanted:
            return
        before, version = await _read(stores)
        await stores.topologies.write(
            Topology(before.bookies, {**before.policy, **wanted}), version
        )

    found = asyncio.run(_changed(uri, change))
    if as_json:
        print_json(found)
        return
    print_fields(f"placement of {uri}", {name: str(v) for name, v in found["policy"].items()})
    print_listing(
        found["bookies"],
        lambda b: (b["bookie_id"], b["region"], b["rack"], b["host"], b["free_bytes"]),
        title="bookies",
        columns=("bookie", "region", "rack", "host", "free bytes"),
        as_json=False,
    )


def _allowed_hosts(hosts: str | None) -> bool | None:
    """Return the value of the policy's field `allow_same_host`, from the option `--hosts`."""
    if hosts not in (None, "same", "different"):
        raise ConfigurationError(f"--hosts {hosts!r}: pass same or different", value=hosts)
    return None if hosts is None else hosts == "same"


def _enforced(rules: str | None) -> dict[str, bool]:
    """Return the policy's fields `enforce_...`, from the option `--enforce`."""
    if rules is None:
        return {}
    names = [] if rules == "none" else [name.strip() for name in rules.split(",")]
    if unknown := [name for name in names if name not in ENFORCED]:
        raise ConfigurationError(
            f"--enforce {unknown[0]!r}: the rules are {', '.join(ENFORCED)}, or none", value=rules
        )
    return {f"enforce_{name.replace('-', '_')}": name in names for name in ENFORCED}


async def _read(stores: MetadataStores) -> tuple[Topology, Any]:
    found = await stores.topologies.read()
    return (Topology(), None) if found is None else (found.value, found.version)


async def _changed(uri: str, change: Any) -> dict[str, Any]:
    async with metadata(uri) as stores:
        await change(stores)
        topology, _ = await _read(stores)
        names = await _names(stores, topology)
        bookies = [await _bookie(stores, name, topology) for name in names]
        rules = policy_of(topology)
        return {
            "policy": {one.name: getattr(rules, one.name) for one in fields(rules)},
            "bookies": bookies,
        }


async def _names(stores: MetadataStores, topology: Topology) -> list[str]:
    """Return all bookies that ever joined the cluster, and all bookies in the topology."""
    registered = stores.registration
    names = {*await registered.writable(), *await registered.read_only()}
    return sorted(names | {*await registered.known(), *topology.bookies})


async def _bookie(stores: MetadataStores, name: str, topology: Topology) -> dict[str, Any]:
    info: BookieInfo | None = None
    with contextlib.suppress(BookieUnavailableError):  # the bookie may be down
        info = await stores.registration.info(name)
    place = asdict(place_of(info, name, topology))
    return {"bookie_id": name, **place, "free_bytes": None if info is None else info.free_bytes}
