"""Reads the ledgers that name a bookie, their bytes on this bookie, and the other bookies."""

from __future__ import annotations

import asyncio
import contextlib

from ledgerlog_spark.errors import BookieUnavailableError, MetadataFormatError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.topologies import place_of, policy_of
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.protocol.autorecovery.vacate.refusals import Holdings, Surroundings
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.wire.topology import Topology

READS_MAX = 256
"""Maximum number of concurrent reads of the metadata store."""


async def holdings(stores: MetadataStores, bookie_id: str) -> Holdings:
    """Read all ledgers, and add up the bytes that they have on a bookie."""
    found = Holdings(bookie_id)
    await stores.ledgers.sync()
    async for walked in stores.ledgers.walk():
        if isinstance(walked.found, MetadataFormatError):
            raise walked.found  # a ledger that cannot be read may name the bookie
        found.add(walked.found.value)
    return found


async def surroundings(stores: MetadataStores, bookie_id: str) -> Surroundings:
    """Read the state of the cluster for the vacation of a bookie."""
    registration = stores.registration
    await registration.sync()
    writable, read_only = await registration.writable(), await registration.read_only()
    known = await registration.known()
    topology = await stores.topologies.read()
    set_places = Topology() if topology is None else topology.value
    names = sorted({*writable, *read_only, *known, bookie_id, *set_places.bookies})
    infos: dict[str, BookieInfo | None] = {}
    for first in range(0, len(names), READS_MAX):
        some = names[first : first + READS_MAX]
        read = await asyncio.gather(*(_info(stores, name) for name in some))
        infos.update(zip(some, read, strict=True))
    vacations = await stores.vacations.all()
    return Surroundings(
        is_enabled=await stores.recovery_switch.is_enabled(),
        known=frozenset(known),
        registered=frozenset((*writable, *read_only)),
        writable=tuple(writable),
        free_bytes={name: info.free_bytes if info else None for name, info in infos.items()},
        others=tuple(
            name
            for name, found in sorted(vacations.items())
            if name != bookie_id and not found.value.is_over
        ),
        bookies=BookieMap({name: place_of(info, name, set_places) for name, info in infos.items()}),
        policy=policy_of(set_places),
    )


async def _info(stores: MetadataStores, name: str) -> BookieInfo | None:
    with contextlib.suppress(BookieUnavailableError):
        return await stores.registration.info(name)
    return None
