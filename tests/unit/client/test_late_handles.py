"""Handles whose call was on its way when their client was closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.model import Quorum
from tests.fixtures.client_world import ClientWorld


async def test_a_writer_that_is_created_during_the_close_leaves_no_task(world: ClientWorld) -> None:
    client = world.client()
    create, is_made, may_go_on = client.services.ledgers.create, asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any) -> Any:
        created = await create(*arguments)
        is_made.set()
        await may_go_on.wait()
        return created

    before = asyncio.all_tasks()
    creating = asyncio.ensure_future(
        client.create_registered_ledger(slowly, LedgerSpec(Quorum(3, 3, 2)))
    )
    await is_made.wait()
    await client.aclose()
    may_go_on.set()
    handle = await creating
    with pytest.raises(LedgerLogError):
        await handle.append(b"late")
    assert asyncio.all_tasks() == before


async def test_a_reader_that_is_opened_during_the_close_is_refused(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = world.client(), world.client()
    written = await other.create_ledger()
    load, is_made, may_go_on = client.services.ledgers.load, asyncio.Event(), asyncio.Event()

    async def slowly(ledger_id: int) -> Any:
        found = await load(ledger_id)
        is_made.set()
        await may_go_on.wait()
        return found

    monkeypatch.setattr(client.services.ledgers, "load", slowly)
    opening = asyncio.ensure_future(client.open_ledger(written.id))
    await is_made.wait()
    await client.aclose()
    may_go_on.set()
    with pytest.raises(LocalProtocolError, match="closed"):
        await opening
