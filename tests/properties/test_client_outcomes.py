"""The outcomes of appends during random faults, compared with the sealed ledger.

acknowledged          the entry is there, under the id that was returned
failed, definite      it is not there, and never will be
failed, not definite  either; nothing else was promised
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import InternalError, LedgerLogError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.testing.memory.tree import Fault
from tests.fixtures.autojump import run_in_virtual_time
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.examples import examples
from tests.fixtures.metadata_worlds import memory_tree

BOOKIES = [f"bookie-{number}" for number in range(5)]
SETTINGS = ClientSettings(
    linger_ms=20,
    writer=WriterSettings(
        window=Window(entries_max=40),
        add_quorum_timeout_ms=15_000,
        replacement=RetryPolicy(attempts_max=3),
        metadata=RetryPolicy(attempts_max=5),
    ),
)

bookie = st.sampled_from(BOOKIES)
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 30)),
    st.tuples(st.just("batch"), st.integers(1, 30)),
    st.tuples(st.just("hold"), bookie),
    st.tuples(st.just("release"), bookie),
    st.tuples(st.just("silence"), bookie),
    st.tuples(st.just("refuse"), bookie, st.sampled_from([Code.IO_ERROR, Code.READ_ONLY])),
    st.tuples(st.just("heal"), bookie),
    st.tuples(st.just("store"), st.sampled_from(Fault)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 1.0, 7.0])),
    st.tuples(
        st.just("seal"),
    ),
    st.tuples(
        st.just("close"),
    ),
)


class Story:
    """One writer, its faults, and the outcome of each payload."""

    def __init__(self, world: ClientWorld, stores: MetadataStores) -> None:
        self.world = world
        self.stores = stores
        self.sent = 0
        self.outcomes: dict[bytes, asyncio.Future[Any]] = {}
        self.tasks: list[asyncio.Future[Any]] = []

    def payloads(self, count: int) -> list[bytes]:
        first, self.sent = self.sent, self.sent + count
        return [b"payload %d" % number for number in range(first, first + count)]

    async def play(self, ledger: WriteHandle, script: list[tuple[Any, ...]]) -> None:
        transport = self.world.transport
        for what, *about in script:
            match what, about:
                case "append", [count]:
                    for payload in self.payloads(count):
                        self.outcomes[payload] = ledger.append_async(payload)
                case "batch", [count]:
                    payloads = self.payloads(count)
                    future = ledger.append_batch_async(payloads)
                    self.outcomes.update(dict.fromkeys(payloads, future))
                case "hold", [name]:
                    transport.held.add(name)
                case "release", [name]:
                    transport.release(name)
                case "silence", [name]:
                    transport.silent.add(name)
                case "refuse", [name, code]:
                    transport.refusing[name] = code
                case "heal", [name]:
                    transport.silent.discard(name)
                    transport.refusing.pop(name, None)
                case "store", [fault]:
                    memory_tree(self.stores).inject(fault)
                case "wait", [seconds]:
                    await asyncio.sleep(seconds)
                case "seal", []:
                    self.tasks.append(asyncio.ensure_future(self.world.client().seal(ledger.id)))
                case "close", []:
                    self.tasks.append(asyncio.ensure_future(ledger.close()))

    def heal(self) -> None:
        self.world.transport.silent.clear()
        self.world.transport.refusing.clear()
        for name in BOOKIES:
            self.world.transport.release(name)


async def outcomes_hold(script: list[tuple[Any, ...]], ensemble_size: int) -> None:
    async with ClientWorld(len(BOOKIES), SETTINGS) as world:
        client, stores = world.client_and_stores()
        ledger = await client.create_ledger(ensemble_size=ensemble_size)
        story = Story(world, stores)
        await story.play(ledger, script)
        await asyncio.sleep(30)
        story.heal()
        told = await asyncio.gather(*story.outcomes.values(), return_exceptions=True)
        await asyncio.gather(*story.tasks, return_exceptions=True)
        memory_tree(stores).deliver_delayed()
        sealed = await world.client().seal(ledger.id)
        reader = await world.client().open_ledger(ledger.id)
        found = [bytes(entry.payload) async for entry in reader.read()]

        assert len(found) == sealed.last_entry_id + 1
        assert sealed.length == sum(map(len, found))
        everything = list(story.outcomes)
        assert found == everything[: len(found)], "a prefix of what was appended, in order"
        for place, (payload, outcome) in enumerate(zip(everything, told, strict=True)):
            if isinstance(outcome, range):
                assert place in outcome
                assert found[place] == payload
            elif isinstance(outcome, int):
                assert (outcome, found[place]) == (place, payload)
            else:
                assert isinstance(outcome, LedgerLogError)
                assert not isinstance(outcome, InternalError), outcome
                assert not (outcome.definite and payload in found), outcome


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(steps, min_size=3, max_size=30), ensemble_size=st.sampled_from([3, 4]))
def test_acknowledged_is_there_definite_is_not_and_order_is_kept(
    script: list[tuple[Any, ...]], ensemble_size: int
) -> None:
    # An hour of virtual time: a call that still waits then would wait forever.
    run_in_virtual_time(asyncio.wait_for(outcomes_hold(script, ensemble_size), 3_600))
