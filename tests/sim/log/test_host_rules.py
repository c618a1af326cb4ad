"""Rare situations of hosts: which of them are violations, and which are not."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import MetadataUnknownError, NeedsOperatorError, ProducerFencedError
from ledgerlog_spark.log.host import CHANGE_TIMEOUT_MS
from ledgerlog_spark.protocol.log.commit import commit
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine
from ledgerlog_spark.protocol.log.seal import FloorMachine
from tests.sim.log.checks import Violation, place_of
from tests.sim.log.hosts import actors, ranges
from tests.sim.log.hosts.base import play_hosts
from tests.sim.log.hosts.blame import Call
from tests.sim.log.hosts.process import Process, sleep
from tests.sim.log.hosts.tree import STALL_MS_MAX
from tests.sim.log.hosts.world import HostWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.log.log import Log


def play(scenario: Callable[[HostWorld, Process, Log], Awaitable[None]]) -> HostWorld:
    """Run a scenario with a new log and one live process, and return the world."""

    async def run(seed: int) -> HostWorld:
        world = HostWorld(seed)
        with world.times_and_tokens():
            world.is_faulty = False
            process = Process(world, "one")
            await process.stores.initialize()
            log = await process.logs.create("log", properties=world.properties)
            await scenario(world, process, log)
            if world.failure is not None:
                raise world.failure
        return world

    world: HostWorld = play_hosts(1, run)
    return world


async def replaced_and_back(_: HostWorld, process: Process, log: Log, *, wait_s: float) -> None:
    """Begin a run again after another run took over, and after a pass of the sweeper."""
    await log.begin(app="nightly", batch_id=0, run="first")
    await log.begin(app="nightly", batch_id=0, run="second")
    await asyncio.sleep(wait_s)
    await process.logs.sweeper().sweep_all()
    await log.begin(app="nightly", batch_id=1, run="first")


def test_a_run_that_the_sweeper_forgot_takes_over_as_a_new_one() -> None:
    world = play(partial(replaced_and_back, wait_s=2))
    (view,) = world.views.values()
    assert view.runs_of["nightly"] == ["first", "second", "first"]
    assert world.counts["runs that came back"] == 1


def test_a_run_that_the_record_names_must_not_take_over_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EpochMachine, "_is_zombie", lambda *_: False)
    with pytest.raises(Violation, match="took over twice"):
        play(partial(replaced_and_back, wait_s=0))


def test_a_failed_first_write_leaves_its_producer_on_a_log_that_stays() -> None:
    """So its remaining tasks cannot take over from the next run of the producer."""

    async def failed(_: HostWorld, __: Process, log: Log) -> None:
        begun = await log.begin(app="nightly", run="first", is_log_new=True)
        await log.begin(app="other", run="other")
        await log.abort(begun)
        await log.begin(app="nightly", run="second")
        with pytest.raises(ProducerFencedError):
            await log.commits.join(begun)

    play(failed)


def test_a_deleted_log_says_nothing_of_the_commit_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction took effect, but its reply was lost. After that, the log was deleted."""
    monkeypatch.setattr(commit, "UNKNOWN_MAX", 0)
    monkeypatch.setattr(actors, "_timeout_ms", lambda _: CHANGE_TIMEOUT_MS)

    async def deleted(world: HostWorld, process: Process, log: Log) -> None:
        write_head = process.store.write_head

        async def lose_the_reply(log_id: str, write: Any) -> Any:
            await write_head(log_id, write)
            process.tree.faults += 1
            raise MetadataUnknownError("connection lost after the request was sent")

        async def delete(*_: Any) -> None:
            await actors._deleted(process)

        begun = await log.begin(schema=world.usual_schema, app="nightly", run="first")
        written = [await ranges.staged(process, log, begun)]
        call = Call(world, process, log.log_id, begun.app, begun.run, begun.batch_id)
        monkeypatch.setattr(process.store, "write_head", lose_the_reply)
        monkeypatch.setattr(actors, "sleep", delete)
        await actors._commit(process, log, begun, written, call)
        assert world.views[log.log_id].checks.places_ever == {place_of(written[0])}

    world = play(deleted)
    assert world.counts["failed: CommitUnknownError"] == 1
    assert world.counts["failed: LogNotFoundError"] == 1


def test_a_range_moves_when_its_ledger_is_closed_before_its_first_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actors, "_timeout_ms", lambda _: CHANGE_TIMEOUT_MS)

    async def closed_meanwhile(process: Process, first_ms: int, last_ms: int) -> None:
        monkeypatch.setattr(ranges, "sleep", sleep)
        await process.logs.seal(max(process.world.ledgers))
        await sleep(process, first_ms, last_ms)

    async def closed(world: HostWorld, process: Process, log: Log) -> None:
        begun = await log.begin(schema=world.usual_schema, app="nightly", run="first")
        monkeypatch.setattr(ranges, "sleep", closed_meanwhile)
        written = await ranges.staged(process, log, begun)
        call = Call(world, process, log.log_id, begun.app, begun.run, begun.batch_id)
        await actors._commit(process, log, begun, [written], call)

    world = play(closed)
    assert [each.sealed_at for each in world.ledgers.values()] == [0, None]
    assert world.counts["ledgers closed before their first row"] == 1


async def listed_and_sealed(
    world: HostWorld, process: Process, log: Log, *, patch: pytest.MonkeyPatch, is_listed_late: bool
) -> None:
    """Seal a ledger: miss the last entry if allowed, and stall after the floor was read."""
    begun = await log.begin(schema=world.usual_schema, app="nightly", run="first")
    written = await ranges.staged(process, log, begun)
    call = Call(world, process, log.log_id, begun.app, begun.run, begun.batch_id)
    patch.setattr(actors, "_timeout_ms", lambda _: CHANGE_TIMEOUT_MS)
    seal = process.ledgers.seal

    async def stalled(ledger_id: int, **floor: Any) -> Any:
        if is_listed_late:
            await actors._commit(process, log, begun, [written], call)
        await asyncio.sleep(3 * STALL_MS_MAX / 1e3)
        return await seal(ledger_id, **floor)

    if not is_listed_late:
        await actors._commit(process, log, begun, [written], call)
    patch.setattr(process.ledgers, "seal", stalled)
    world.is_faulty = True
    patch.setattr(world.random, "random", lambda: 0.15)  # only the fault of `_found` happens
    await log.seal(written.ledger_id)


def test_a_seal_that_stalls_finds_what_was_listed_behind_its_floor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = play(partial(listed_and_sealed, patch=monkeypatch, is_listed_late=True))
    assert [each.sealed_at == each.last > 0 for each in world.ledgers.values()] == [True]
    assert not world.counts["seals that miss entries"]


def test_a_seal_that_misses_what_its_floor_has_closes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(world: HostWorld, process: Process, log: Log) -> None:
        with pytest.raises(NeedsOperatorError):
            await listed_and_sealed(world, process, log, patch=monkeypatch, is_listed_late=False)

    world = play(refused)
    assert [each.sealed_at for each in world.ledgers.values()] == [None]
    assert world.counts["seals that miss entries"] == 1


def test_a_floor_below_what_is_listed_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FloorMachine, "_note", lambda *_: None)
    with pytest.raises(Violation, match="closed below its listed end"):
        play(partial(listed_and_sealed, patch=monkeypatch, is_listed_late=False))
