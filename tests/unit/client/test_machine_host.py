"""The duties of a host, clause by clause (ledgerlog_spark/protocol, contract of a host)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.host.effects import MachineHost
from ledgerlog_spark.client.host.event_queue import EVENTS_KEPT
from ledgerlog_spark.errors import (
    LedgerLogError,
    LocalProtocolError,
    MetadataError,
    MetadataUnavailableError,
    MetadataUnknownError,
    RemoteProtocolError,
)
from ledgerlog_spark.model import Code, DigestType, Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.protocol.ledger.identities import ReadIdentities
from ledgerlog_spark.protocol.ledger.messages import (
    AddReplied,
    BookiesListed,
    CasMetadata,
    LacRead,
    ListBookies,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    ReadReplied,
    Run,
    SendAdd,
    SendRead,
    Start,
    StartTimer,
    TimerFired,
)
from ledgerlog_spark.testing.memory.tree import Fault
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree

QUORUM = Quorum(3, 3, 2)
METADATA = LedgerMetadata(QUORUM, (Fragment(0, ("bookie-0", "bookie-1", "bookie-2")),), token=1)


class ScriptedMachine:
    """Returns the effects of a script for each event, and checks that `handle` is never nested."""

    def __init__(self, script: Callable[[Any], Sequence[Any]]) -> None:
        self.events: list[Any] = []
        self.came = asyncio.Event()
        self._script = script
        self._is_inside = False

    def handle(self, event: Any) -> Sequence[Any]:
        assert not self._is_inside
        self._is_inside = True
        self.events.append(event)
        self.came.set()
        effects = self._script(event)
        self._is_inside = False
        return effects


class Hosted:
    def __init__(self, world: ClientWorld, script: Callable[[Any], Sequence[Any]]) -> None:
        client, self.stores = world.client_and_stores()
        self.machine = ScriptedMachine(script)
        self.indications: list[Any] = []
        self.crashes: list[LedgerLogError] = []
        self.host = MachineHost(
            self.machine,
            services=client.services,
            ledger=LedgerBytes(1, DigestType.CRC32C, b""),
            on_indication=self.indications.append,
            on_crash=self.crashes.append,
        )

    async def events(self, count: int) -> list[Any]:
        while len(self.machine.events) < count:
            self.machine.came = asyncio.Event()
            await self.machine.came.wait()
        return self.machine.events[:count]


def at_start(*effects: Any) -> Callable[[Any], Sequence[Any]]:
    return lambda event: effects if isinstance(event, Start) else ()


def send_add(request: int, bookie_id: str, run: Run | None = None) -> SendAdd:
    run = run or Run(
        ledger_id=1,
        first_entry_id=0,
        last_entry_id=1,
        payloads=[b"a", b"b"],
        last_add_confirmed=-1,
        length_before=0,
        entries=2,
        size_bytes=2,
    )
    return SendAdd(request, bookie_id, 0, run, None, is_recovery=False)


async def test_a_silent_bookie_is_answered_with_its_deadline_and_later_replies_are_dropped(
    world: ClientWorld,
) -> None:
    world.transport.silent.add("bookie-0")
    hosted = Hosted(world, at_start(send_add(7, "bookie-0")))
    hosted.host.post(Start())
    assert await hosted.events(2) == [Start(), AddReplied(7, Code.TIMEOUT)]
    hosted.host._on_add(7, Code.OK)
    assert len(hosted.machine.events) == 2


async def test_a_bookie_that_is_gone_is_answered_unavailable(world: ClientWorld) -> None:
    await world.kill("bookie-1")
    hosted = Hosted(world, at_start(send_add(1, "bookie-1")))
    hosted.host.post(Start())
    assert await hosted.events(2) == [Start(), AddReplied(1, Code.UNAVAILABLE)]


async def test_an_event_posted_from_an_indication_waits_until_the_machine_returned(
    world: ClientWorld,
) -> None:
    hosted = Hosted(world, at_start(LacRead(3, is_covered=True), LacRead(4, is_covered=True)))
    handled_before: list[int] = []

    def post_another(_indication: object) -> None:
        handled_before.append(len(hosted.machine.events))
        hosted.host.post(TimerFired(99))

    hosted.host._on_indication = post_another
    hosted.host.post(Start())
    assert hosted.machine.events == [Start(), TimerFired(99), TimerFired(99)]
    assert handled_before == [1, 1], "all that the first event led to comes before the next"


async def test_a_run_is_encoded_once_for_all_its_bookies(world: ClientWorld) -> None:
    run = Run(
        ledger_id=1,
        first_entry_id=5,
        last_entry_id=5,
        payloads=[b"x"],
        last_add_confirmed=4,
        length_before=9,
        entries=1,
        size_bytes=1,
    )
    hosted = Hosted(world, at_start(*(send_add(i, f"bookie-{i}", run) for i in range(3))))
    hosted.host.post(Start())
    encoded = run.attachment
    await hosted.events(4)
    assert run.attachment is encoded
    assert [world.entries_of(name, 1) for name in world.names] == [[5], [5], [5]]


async def test_an_entry_with_a_bad_digest_reaches_the_machine_as_a_digest_mismatch(
    world: ClientWorld,
) -> None:
    world.transport.corrupt.add("bookie-1")
    reads = [
        SendRead(request, name, 0, 1, fence=False, is_recovery=False)
        for request, name in ((10, "bookie-0"), (11, "bookie-1"))
    ]
    adds = [send_add(1, "bookie-0"), send_add(2, "bookie-1")]
    asks: dict[object, Sequence[Any]] = {Start(): adds, AddReplied(2, Code.OK): reads}
    hosted = Hosted(world, lambda event: asks.get(event, []))
    hosted.host.post(Start())
    good, bad = (await hosted.events(5))[3:]
    assert good.entry.payload == b"b"
    assert (good.entry.last_add_confirmed, good.entry.length) == (-1, 2)
    assert bad == ReadReplied(11, Code.DIGEST_MISMATCH, None)


async def test_timers_fire_after_at_least_their_delay(world: ClientWorld) -> None:
    loop = asyncio.get_running_loop()
    hosted = Hosted(world, at_start(StartTimer(3, 500)))
    begun = loop.time()
    hosted.host.post(Start())
    await hosted.events(2)
    assert hosted.machine.events[1] == TimerFired(3)
    assert 0.5 <= loop.time() - begun <= 0.6


async def test_candidates_are_shuffled_by_the_host(world: ClientWorld) -> None:
    for number in range(3, 12):
        await world.join(f"bookie-{number}")
    hosted = Hosted(world, at_start(ListBookies(1), ListBookies(2)))
    hosted.host.post(Start())
    first, second = (await hosted.events(3))[1:]
    assert isinstance(first, BookiesListed)
    assert sorted(first.candidates) == sorted(second.candidates)
    assert first.candidates != second.candidates
    assert list(first.candidates) != sorted(first.candidates)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (None, MetadataOutcome.OK),
        (Fault.NOT_SENT, MetadataOutcome.UNAVAILABLE),
        (Fault.REQUEST_LOST, MetadataOutcome.UNKNOWN),
        (Fault.REPLY_LOST, MetadataOutcome.UNKNOWN),
    ],
)
async def test_a_write_to_the_store_is_unknown_once_it_was_sent(
    world: ClientWorld, fault: Fault | None, outcome: MetadataOutcome
) -> None:
    _, stores = world.client_and_stores()
    created = await stores.ledgers.create(1, METADATA)
    hosted = Hosted(world, at_start(CasMetadata(1, METADATA.in_recovery(), created.version)))
    if fault is not None:
        memory_tree(hosted.stores).inject(fault)
    hosted.host.post(Start())
    replied = (await hosted.events(2))[1]
    assert isinstance(replied, MetadataWritten)
    assert replied.outcome is outcome


async def test_a_load_of_a_record_that_is_not_there_says_gone(world: ClientWorld) -> None:
    hosted = Hosted(world, at_start(LoadMetadata(1, sync_first=True)))
    hosted.host.post(Start())
    assert (await hosted.events(2))[1] == MetadataLoaded(1, MetadataOutcome.GONE)


@pytest.mark.parametrize("error", [MetadataUnavailableError, MetadataUnknownError])
async def test_a_load_that_failed_is_never_in_doubt(
    world: ClientWorld, error: type[Exception]
) -> None:
    hosted = Hosted(world, at_start(LoadMetadata(1, sync_first=False)))

    async def load(_: int) -> None:
        raise error("away")

    hosted.host._services.ledgers = type("Store", (), {"load": staticmethod(load)})()
    hosted.host.post(Start())
    replied = (await hosted.events(2))[1]
    assert replied.outcome is MetadataOutcome.UNAVAILABLE


@pytest.mark.parametrize("error", [MetadataError, RemoteProtocolError, LocalProtocolError])
@pytest.mark.parametrize(
    "effect",
    [
        LoadMetadata(1, sync_first=False),
        CasMetadata(1, METADATA, Version(1, 1)),
        ListBookies(1),
        ReadIdentities(1, ("b1",)),
    ],
    ids=["load", "write", "list", "identities"],
)
async def test_what_the_store_refuses_for_another_reason_ends_the_machine_with_that_error(
    world: ClientWorld, effect: Any, error: type[LedgerLogError]
) -> None:
    """An access list, a record that is too large, an invalid answer: no bug of ledgerlog."""

    async def refused(*_: Any) -> Any:
        raise error("closed to us", path="/ledgers")

    hosted = Hosted(world, at_start(effect))
    methods = dict.fromkeys(("load", "write", "writable"), staticmethod(refused))
    store = type("Store", (), methods)()
    hosted.host._services.ledgers = hosted.host._services.identities = store
    hosted.host._services.bookies.writable.refreshed = refused
    hosted.host.post(Start())
    await asyncio.sleep(1)
    (crash,) = hosted.crashes
    assert type(crash) is error
    assert (crash.message, crash.path, crash.definite) == ("closed to us", "/ledgers", False)
    assert hosted.machine.events == [Start()]


async def test_a_failed_assertion_stops_the_machine_and_reports_its_last_events(
    world: ClientWorld,
) -> None:
    def script(event: Any) -> Sequence[Any]:
        assert event != TimerFired(99), "our bug"
        return []

    hosted = Hosted(world, script)
    for number in range(60):
        hosted.host.post(TimerFired(number))
    hosted.host.post(TimerFired(99))
    hosted.host.post(TimerFired(100))
    assert len(hosted.machine.events) == 61
    (crash,) = hosted.crashes
    assert not crash.definite
    assert len(crash.events) == EVENTS_KEPT
    assert crash.events[-1] == "TimerFired(request=99)"
    assert "our bug" in str(crash)
