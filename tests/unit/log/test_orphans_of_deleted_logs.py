"""The ledger of a leader that died before it listed the ledger, after the log is deleted."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest

from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.errors import LedgerNotFoundError, LocalProtocolError, LogNotFoundError
from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.unit.log.log_world import DAY_MS, LogWorld


async def test_deleted_leader_log_takes_its_orphans_with_it_and_nobody_elses(
    world: LogWorld,
) -> None:
    logs, client = world.logs(), world.client()
    log = await logs.create("orders", kind=LogKind.LEADER, content=LogContent.RECORDS)
    other = await logs.create("others", kind=LogKind.LEADER, content=LogContent.RECORDS)
    orphan, theirs, nobodys = [
        await client.create_ledger(custom_metadata=custom)
        for custom in (
            {LOG_ID_KEY: log.log_id.encode()},
            {LOG_ID_KEY: other.log_id.encode()},
            {},
        )
    ]
    await logs.delete("orders")
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 0, "not before its time"
    world.skip(2 * DAY_MS)
    swept = await logs.sweeper().sweep(log.log_id)
    assert swept.is_removed
    assert swept.ledgers_deleted == 1
    with pytest.raises(LedgerNotFoundError):
        await world.client().ledger_metadata(orphan.id)
    for ledger in (theirs, nobodys):
        assert not (await world.client().ledger_metadata(ledger.id)).is_closed


@pytest.mark.parametrize("step", ["marked", "children", "delete producers", "delete unlisted"])
async def test_ledger_that_a_leader_makes_during_the_last_sweep_is_deleted_by_the_next_one(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Or the ledger is not created, because the parent node of its mark does not exist."""
    logs, client = world.logs(), world.client()
    log = await logs.create("orders", kind=LogKind.LEADER, content=LogContent.RECORDS)
    await logs.delete("orders")
    world.skip(2 * DAY_MS)
    store: Any = logs.store
    place = store.producers if step == "marked" else store._tree
    method, _, node = step.partition(" ")
    call = getattr(place, method)
    made = []

    async def late(path: str, *how: Any) -> Any:
        found = await call(path, *how)
        if step == "marked" or path.endswith(node or "unlisted"):
            with contextlib.suppress(LogNotFoundError):
                made.append(
                    await client.create_registered_ledger(
                        partial(store.producers.make_ledger, log.log_id),
                        LedgerSpec(Quorum(3, 3, 2)),
                    )
                )
            monkeypatch.setattr(place, method, call)
        return found

    monkeypatch.setattr(place, method, late)
    swept = await logs.sweeper().sweep(log.log_id)
    assert swept.is_removed is (step == "delete unlisted")
    assert bool(made) is (step != "delete unlisted")
    if made:
        assert (await logs.sweeper().sweep(log.log_id)).is_removed
    assert [i async for i in client.list_ledgers()] == []


async def test_mark_that_another_pass_makes_meanwhile_leaves_the_rest_to_the_next_pass(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await logs.delete("flights")
    world.skip(2 * DAY_MS)
    store: Any = logs.store
    marked = store.producers.marked

    async def marked_behind(log_id: str) -> Any:
        found = await marked(log_id)
        monkeypatch.setattr(store.producers, "marked", marked)
        await store._tree.create(store._paths.mark(log_id, 99), b"listed")
        return found

    monkeypatch.setattr(store.producers, "marked", marked_behind)
    assert not (await logs.sweeper().sweep(log.log_id)).is_removed
    assert (await logs.sweeper().sweep(log.log_id)).is_removed


async def test_client_that_is_closed_before_the_last_records_go_ends_the_sweep(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is not that of another pass, because this client makes no next pass."""
    logs = world.logs()
    log = await logs.create("flights")
    await logs.delete("flights")
    world.skip(2 * DAY_MS)
    store: Any = logs.store
    children, asked = store._tree.children, 0

    async def closed(path: str) -> Any:
        nonlocal asked
        asked += path == store._paths.marks(log.log_id)
        if asked > 1:
            raise LocalProtocolError("the client was closed: connect again")
        return await children(path)

    monkeypatch.setattr(store._tree, "children", closed)
    with pytest.raises(LocalProtocolError, match="closed"):
        await logs.sweeper().sweep(log.log_id)
    monkeypatch.setattr(store._tree, "children", children)
    assert (await logs.sweeper().sweep(log.log_id)).is_removed
