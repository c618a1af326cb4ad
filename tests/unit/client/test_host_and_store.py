"""For each outcome of a request to the store, the machine gets exactly one right reply."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    LedgerLogError,
    LedgerNotFoundError,
    MetadataFormatError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.messages import (
    BookiesListed,
    CasMetadata,
    ListBookies,
    LoadMetadata,
    MetadataOutcome,
    Start,
)
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree
from tests.unit.client.test_machine_host import METADATA, Hosted, at_start

EFFECTS = [
    LoadMetadata(1, sync_first=False),
    LoadMetadata(1, sync_first=True),
    CasMetadata(1, METADATA, Version(1, 1)),
    CasMetadata(1, METADATA, Version(1, 1), (Identity("b1", "token"),)),
    ListBookies(1),
    ReadIdentities(1, ("b1",)),
]
IDS = ["load", "synced load", "write", "write with identities", "list", "identities"]
FAILURES: dict[type[LedgerLogError] | None, MetadataOutcome] = {
    None: MetadataOutcome.UNKNOWN,
    MetadataUnavailableError: MetadataOutcome.UNAVAILABLE,
    MetadataUnknownError: MetadataOutcome.UNKNOWN,
    MetadataVersionError: MetadataOutcome.CONFLICT,
    MetadataFormatError: MetadataOutcome.UNREADABLE,
    LedgerNotFoundError: MetadataOutcome.GONE,
}
"""The result of a write if the store raises this error, or does not answer (None)."""


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: each.__name__ if each else "silence")
@pytest.mark.parametrize("effect", EFFECTS, ids=IDS)
async def test_every_request_is_answered_once_and_only_a_write_can_be_in_doubt(
    world: ClientWorld, effect: Any, failure: type[LedgerLogError] | None
) -> None:
    async def failing(*_: Any) -> Any:
        if failure is None:
            await asyncio.sleep(3_600)
        else:
            raise failure("so it is", ledger_id=1, path="/ledgers")

    hosted = Hosted(world, at_start(effect))
    services = hosted.host._services
    store: Any = SimpleNamespace(load=failing, write=failing, replace=failing, sync=failing)
    known: Any = SimpleNamespace(writable=failing, watch_writable=lambda _: None)
    services.ledgers = services.identities = store
    services.bookies.writable._registration = known
    hosted.host.post(Start())
    await asyncio.sleep(2 * services.settings.metadata_timeout_ms / 1e3)
    start, *replies = hosted.machine.events
    assert start == Start()
    assert hosted.crashes == []
    (reply,) = replies
    if isinstance(effect, ListBookies):
        assert reply == BookiesListed(1, ())
    elif isinstance(effect, ReadIdentities):
        assert reply == IdentitiesRead(1, None)
    elif isinstance(effect, CasMetadata):
        assert reply.outcome is FAILURES[failure]
    else:
        is_doubtful = FAILURES[failure] in (MetadataOutcome.UNKNOWN, MetadataOutcome.CONFLICT)
        wanted = MetadataOutcome.UNAVAILABLE if is_doubtful else FAILURES[failure]
        assert reply.outcome is wanted


@pytest.mark.parametrize("sync_first", [False, True])
async def test_a_load_that_has_to_be_synchronised_is(world: ClientWorld, sync_first: bool) -> None:
    hosted = Hosted(world, at_start(LoadMetadata(1, sync_first=sync_first)))
    memory_tree(hosted.stores).hold_reads()
    _, other = world.client_and_stores()
    await other.ledgers.create(1, METADATA)
    hosted.host.post(Start())
    reply = (await hosted.events(2))[1]
    assert reply.outcome is (MetadataOutcome.OK if sync_first else MetadataOutcome.GONE)


async def test_identities_of_bookies_with_a_cookie_are_read(world: ClientWorld) -> None:
    name = world.names[0]
    hosted = Hosted(world, at_start(ReadIdentities(1, (name, "nobody"))))
    hosted.host.post(Start())
    reply = (await hosted.events(2))[1]
    found = await hosted.stores.identities.load(name)
    assert found is not None
    assert reply == IdentitiesRead(1, (Identity(name, found),))


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_record_is_written_only_for_the_same_bookies(
    world: ClientWorld, *, is_same: bool
) -> None:
    """PROTOCOL.md#C25."""
    name = world.names[0]
    _, stores = world.client_and_stores()
    created = await stores.ledgers.create(1, METADATA)
    found = await stores.identities.load(name)
    assert found is not None
    if not is_same:
        await stores.registration.write_cookie(name, b"another", found.cookie)
    cas = CasMetadata(1, METADATA.in_recovery(), created.version, (Identity(name, found),))
    hosted = Hosted(world, at_start(cas))
    hosted.host.post(Start())
    reply = (await hosted.events(2))[1]
    outcome = MetadataOutcome.OK if is_same else MetadataOutcome.BOOKIE_CHANGED
    assert reply.outcome is outcome
    stored = (await stores.ledgers.load(1)).value
    assert stored == (METADATA.in_recovery() if is_same else METADATA)
