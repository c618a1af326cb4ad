"""A client that is closed while its leader takes over or rolls leaves no ledger unlisted."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.state.records import OpenLedger
from tests.unit.leader.bench import Bench
from tests.unit.leader.test_leader_log import filled
from tests.unit.log.leader_world import LeaderWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.client.client import LedgerClient

REQUESTS_MAX = 60


class Interrupted:
    """Closes a client while its n-th request to the store is pending."""

    def __init__(self, client: LedgerClient, stores: Any, left: int) -> None:
        self.closing: asyncio.Task[None] | None = None
        self._client = client
        self._left = left
        tree = stores.tree
        for name in ("_view", "_write"):
            setattr(tree, name, self._slow(getattr(tree, name)))

    def _slow(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*how: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.closing = asyncio.create_task(self._client.aclose())
            await asyncio.sleep(0.01)
            done = await call(*how, **named)
            await asyncio.sleep(0.01)
            return done

        return called


async def unlisted(world: LeaderWorld) -> set[int]:
    """Existing ledgers that the log does not list and that no sweep will find."""
    client, stores = world.client_and_stores()
    log = await Logs(store=stores.logs, ledgers=client).open("orders")
    head = (await log.state()).head
    listed = {ledger.ledger_id for ledger in head.open_ledgers}
    listed |= {item.ledger_id for item in (await log.snapshot()).items}
    listed |= {mark.ledger_id for mark in await stores.logs.producers.marked(log.log_id)}
    return {ledger_id async for ledger_id in client.list_ledgers()} - listed


async def play(world: LeaderWorld, requests: int, *, rolls: bool) -> bool:
    """Play, and return whether the client was closed before the end."""
    client, stores = world.client_and_stores()
    log = await Logs(store=stores.logs, ledgers=client).open("orders")
    interrupted = Interrupted(client, stores, requests)
    with contextlib.suppress(LedgerLogError):
        leader = await log.lead(ClientSettings())
        await leader.append(b"one")
        if rolls:
            await leader.roll()
        await leader.close()
    if interrupted.closing is None:
        return False
    await interrupted.closing
    return True


@pytest.mark.parametrize("rolls", [False, True])
async def test_client_that_is_closed_at_any_moment_leaves_no_ledger_unlisted(
    world: LeaderWorld, rolls: bool
) -> None:
    first = await world.lead()
    await first.append(b"zero")
    first.abandon()
    requests, is_interrupted = 0, True
    while is_interrupted:
        requests += 1
        assert requests < REQUESTS_MAX
        is_interrupted = await play(world, requests, rolls=rolls)
        assert await unlisted(world) == set(), f"closed at request {requests}"
    assert requests > 10


@pytest.mark.parametrize(("close_timeout_ms", "seconds"), [(3_000, 3), (30_000, 5)])
async def test_close_does_not_wait_for_a_store_that_does_not_answer(
    world: LeaderWorld, close_timeout_ms: int, seconds: int
) -> None:
    client, stores = world.client_and_stores(close_timeout_ms=close_timeout_ms)
    log = await Logs(store=stores.logs, ledgers=client).open((await world.log()).name)
    is_asked = asyncio.Event()

    async def never(*_: object, **__: object) -> Any:
        is_asked.set()
        await asyncio.Event().wait()

    client.create_registered_ledger = never
    leading = asyncio.create_task(log.lead(ClientSettings()))
    await is_asked.wait()
    began = asyncio.get_running_loop().time()
    await client.aclose()
    assert seconds <= asyncio.get_running_loop().time() - began < seconds + 1
    with pytest.raises(LocalProtocolError, match="cancelled"):
        await leading
    with pytest.raises(LocalProtocolError, match="closed"):
        await log.lead(ClientSettings())


@pytest.mark.parametrize("asked", [lm.CreateLedger, m.Sync, m.ReadHead, m.WriteHead])
@pytest.mark.parametrize("is_overtaken", [False, True])
def test_roll_that_is_given_up_leaves_no_ledger_that_is_not_listed(
    asked: type, is_overtaken: bool
) -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.answer_until(asked)
    if is_overtaken:
        bench.leader()
    leader.tell(lm.GiveUp(LocalProtocolError("the client was closed")))
    leader.settle()
    listed = {*bench.open_ids, *(item.ledger_id for item in bench.log.items())}
    assert listed.isdisjoint(bench.dropped)
    assert sorted((*listed, *bench.dropped)) == sorted(bench.ledgers)


def test_ledger_whose_first_attempt_got_no_answer_is_not_dropped() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    leader.lose_reply(applied=False)
    leader.tell(lm.GiveUp(LocalProtocolError("the client was closed")))
    leader.settle()
    assert bench.dropped == []


@pytest.mark.parametrize("is_listed", [False, True])
async def test_ledger_of_a_leader_that_died_before_it_was_listed_is_swept(
    world: LeaderWorld, is_listed: bool
) -> None:
    client, stores = world.client_and_stores()
    logs = Logs(store=stores.logs, ledgers=client)
    log = await world.log(stagingTtlMs="60000", deletedRetentionMs="1000")
    leader = await world.lead()
    await leader.append(b"one")
    made = await client.create_registered_ledger(
        partial(stores.logs.producers.make_ledger, log.log_id), LedgerSpec(Quorum(3, 3, 2))
    )
    if is_listed:
        found = await stores.logs.read_head(log.log_id)
        assert found is not None
        opened = OpenLedger(made.id, found.value.end_offset, found.value.commit_time_ms)
        head = replace(
            found.value, token="9" * 32, open_ledgers=(*found.value.open_ledgers, opened)
        )
        write = m.WriteHead(head.token, head, found.version, listed=(made.id,))
        await stores.logs.write_head(log.log_id, write)
    assert (await log.check()).staged == (() if is_listed else (made.id,))
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 0, "a leader may list it"
    now_ms = world.nodes._clock_ms
    world.nodes._clock_ms = lambda: now_ms() + 61_000
    swept = await logs.sweeper().sweep(log.log_id)
    assert swept.ledgers_deleted == (not is_listed)
    assert (made.id in {i async for i in client.list_ledgers()}) is is_listed
