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
    ListBookies(1),
]
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
@pytest.mark.parametrize("effect", EFFECTS, ids=["load", "synced load", "write", "list"])
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
    store: Any = SimpleNamespace(load=failing, write=failing, sync=failing)
    known: Any = SimpleNamespace(writable=failing, watch_writable=lambda _: None)
    services.ledgers, services.bookies.writable._registration = store, known
    hosted.host.post(Start())
    await asyncio.sleep(2 * services.settings.metadata_timeout_ms / 1e3)
    start, *replies = hosted.machine.events
    assert start == Start()
    assert hosted.crashes == []
    (reply,) = replies
    if isinstance(effect, ListBookies):
        assert reply == BookiesListed(1, ())
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
