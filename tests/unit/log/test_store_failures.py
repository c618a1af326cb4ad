"""Replies to machines of a log when the store fails, and the pauses before retries."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    DataLossError,
    LedgerLogError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.log.committing.commits import PRODUCERS_MAX, KnownLogs
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.maintenance.sweep_memory import SweepMemory
from ledgerlog_spark.log.retries import OUTAGE_PAUSE_MS_FIRST, Retries
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.properties import PropertiesMachine
from ledgerlog_spark.protocol.log.read.versions import ListingMachine
from ledgerlog_spark.protocol.log.sweep import PagesSweep
from tests.sim.log.schedules import use_small_heads
from tests.unit.log.log_values import OneLog, new_head, staged, token
from tests.unit.log.log_world import SCHEMA, LogWorld, commit, write


@pytest.mark.parametrize("error", [MetadataUnavailableError("away"), MetadataUnknownError("lost")])
async def test_nothing_is_written_while_the_clock_of_the_store_does_not_answer(
    world: LogWorld, error: Exception
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    store: Any = log.host.store
    before = await store.read_head(log.log_id)
    recent_ms = store.recent_ms

    async def unanswered() -> int:
        raise error

    store.recent_ms = unanswered
    with pytest.raises(MetadataUnavailableError) as failed:
        await log.truncate(30)
    assert failed.value.definite, "only the time was asked for"
    assert await store.read_head(log.log_id) == before
    store.recent_ms = recent_ms
    await log.truncate(30)


async def test_attempts_that_are_overtaken_pause_in_between(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    store: Any = log.host.store
    write_head, times = store.write_head, []

    async def overtaken(*how: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        if len(times) <= 2:
            raise MetadataVersionError("another writer was first")
        return await write_head(*how)

    store.write_head = overtaken
    driver = LogHost("flights", log.log_id, store=store, ledgers=log.host.ledgers, random=Random(1))
    await driver.run(PropertiesMachine("flights", {"retentionMs": "5000"}, token=token(9)))
    first, second, _ = times
    assert second > first


async def test_pauses_grow_while_the_store_is_away(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    retries = Retries(log.host.store, log.log_id, Random(1))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(10):
        before = loop.time()
        await retries.after(MetadataOutcome.UNAVAILABLE, is_of_head=True)
        assert loop.time() > before
    assert loop.time() - began > 10 * OUTAGE_PAUSE_MS_FIRST / 1e3
    await retries.end()


async def test_page_that_is_gone_is_not_an_empty_one(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_heads(monkeypatch.setattr)
    log = await world.logs().create("flights")
    for name in "abcdefgh":
        await commit(log, name)
    store: Any = log.host.store
    driver = LogHost("flights", log.log_id, store=store, ledgers=log.host.ledgers)
    assert len(await driver.run(ListingMachine("flights"))) == 16
    pages = await store.page_nodes(log.log_id)
    assert pages
    for each in pages:
        await store.delete_pages(log.log_id, each, kept=())
    with pytest.raises(DataLossError, match="a page of its list that is not there"):
        await driver.run(ListingMachine("flights"))


def test_what_a_commit_knew_is_forgotten_until_it_got_through() -> None:
    logs, known = KnownLogs(), object()
    logs.put("log", "app", known)  # type: ignore[arg-type]
    assert logs.take("log", "app") is known
    assert logs.take("log", "app") is None, "the one that took it may have failed"


def test_the_producer_that_committed_longest_ago_is_forgotten_first() -> None:
    logs = KnownLogs()
    known: list[Any] = [object() for _ in range(PRODUCERS_MAX + 1)]
    for number in range(PRODUCERS_MAX):
        logs.put("log", str(number), known[number])
    logs.put("log", "0", logs.take("log", "0"))  # it commits again
    logs.put("log", "newest", known[-1])
    assert logs.take("log", "1") is None
    kept = ["0", *map(str, range(2, PRODUCERS_MAX)), "newest"]
    assert [logs.take("log", app) for app in kept] == [known[0], *known[2:]]


@pytest.mark.parametrize(
    "asked", [MetadataUnavailableError("away"), LedgerNotFoundError("deleted", ledger_id=7)]
)
async def test_password_of_a_ledger_without_a_readable_record_is_never_ok(
    world: LogWorld, asked: LedgerLogError
) -> None:
    log = await world.logs().create("flights")
    ledgers: Any = log.host.ledgers

    async def failing(ledger_id: int) -> LedgerMetadata:
        raise asked

    ledgers.ledger_metadata = failing
    reply = await log.host._read_password(m.ReadPassword(7))
    is_gone = isinstance(asked, LedgerNotFoundError)
    assert reply.outcome is (MetadataOutcome.GONE if is_gone else MetadataOutcome.UNAVAILABLE)


async def test_record_without_a_password_is_not_the_empty_password(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    ledgers: Any = log.host.ledgers
    records = {
        7: LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("a:1",)),), password=b""),
        8: LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("a:1",)),), has_password=False),
        9: LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("a:1",)),), password=b"secret"),
    }

    async def found(ledger_id: int) -> LedgerMetadata:
        return records[ledger_id]

    ledgers.ledger_metadata = found
    replies = [await log.host._read_password(m.ReadPassword(ledger_id)) for ledger_id in records]
    assert [(reply.outcome, reply.password) for reply in replies] == [
        (MetadataOutcome.OK, b""),
        (MetadataOutcome.GONE, b""),
        (MetadataOutcome.OK, b"secret"),
    ]


async def test_producer_that_is_made_between_the_reads_of_registrations_is_left_out(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    producers: Any = log.host.store.producers
    jobs = [await log.begin(schema=SCHEMA, app=app) for app in ("early", "late")]
    ledger_ids = tuple([(await write(log, job, job.app)).ledger_id for job in jobs])
    read = producers.read

    async def read_before_the_late_one_was_made(log_id: str, app: str) -> Any:
        return None if app == "late" else await read(log_id, app)

    producers.read = read_before_the_late_one_was_made
    reply = await log.host._read_registrations(m.ReadRegistrations(ledger_ids))
    assert reply.outcome is MetadataOutcome.OK
    assert [(app, ids) for app, _, ids in reply.registrations] == [("early", ledger_ids[:1])]


def test_what_a_truncation_left_is_due_at_once() -> None:
    memory = SweepMemory()
    log = OneLog(*new_head())
    for ledger_id in (1, 2):
        log.commit(staged(ledger_id))
    due = memory.of("log", log.head.value)
    due.versions = due.marks = log.now_ms + 1_000
    assert memory.of("log", log.head.value).versions > log.now_ms
    log.run(TruncateMachine("flights", offset=150, token=token(log.new_number())))
    after = memory.of("log", log.head.value)
    assert (after.versions, after.marks) == (0, log.now_ms + 1_000)


async def test_pages_that_another_sweeper_deleted_cause_no_pause(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    loop = asyncio.get_running_loop()
    began = loop.time()
    sweep = PagesSweep("flights", tuple(map(token, range(2, 30))))
    assert await log.host.run(sweep) == ()
    assert loop.time() == began
