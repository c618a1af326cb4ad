"""Faults that harm one ledger at the end of a schedule, without other faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.client.handles.lac_announcer import herald_index
from ledgerlog_spark.errors import LedgerLogError, MetadataUnavailableError
from ledgerlog_spark.transport.port import LacRise
from tests.sim.handles import actors
from tests.sim.handles.process import SETTINGS, Process

if TYPE_CHECKING:
    from tests.sim.handles.story import Story
    from tests.sim.handles.world import HandleWorld

HEALED_SECONDS = 20
"""Within this time, requests with a fault have ended, and their connections are replaced."""


async def check(world: HandleWorld, story: Story, living: list[Process]) -> None:
    """Run one of the checks below."""
    process = world.random.choice(living)
    what = world.random.choice(
        (
            look_past_the_herald,
            see_it_open_again,
            fail_in_writing,
            close,
            replace_in_an_outage,
            seal_beside_rot,
        )
    )
    await what(world, story, process)
    world.counts[f"harm: {what.__name__}"] += 1


async def look_past_the_herald(world: HandleWorld, story: Story, process: Process) -> None:
    """Check that a client keeps the LAC that only one bookie told it, if that bookie is away."""
    ensemble = story.handle.metadata.last_fragment.ensemble
    herald = world.bookies[ensemble[herald_index(story.ledger_id, len(ensemble))]]
    reader = await actors.opened(process, story)
    older = await actors.opened(process, story)
    if reader is None or older is None:
        return
    story.append(1)
    await actors.ended(story.process, "flush", story.handle.flush())
    await asyncio.sleep(0.004)
    await actors.ended(process, "refresh", reader.refresh())
    seen = story.see_end(reader, -1)
    world.is_calm = False
    world.fault("heralds stuck")
    herald.is_stuck = True
    again = await actors.opened(process, story)
    await actors.ended(process, "refresh", older.refresh())
    herald.is_stuck = False
    world.require(again is not None, "a ledger without its herald is not opened")
    assert again is not None
    end = min(again.last_add_confirmed, older.last_add_confirmed)
    is_right = end >= seen or story.ledger_id not in process.client._ends._ends
    world.require(is_right, f"without its herald {story.ledger_id} ends at {end}, not {seen}")
    world.counts["ends without their herald"] += 1
    await asyncio.sleep(HEALED_SECONDS)
    world.is_calm = True


async def see_it_open_again(world: HandleWorld, story: Story, process: Process) -> None:
    """Read from a server of the store that still has the record from before the seal."""
    reader = await actors.opened(process, story)
    if reader is None:
        return
    follower = reader.follow(lambda: None)
    process.followers += 1
    await asyncio.sleep(1)
    behind = process.tree.nodes.current.copy()
    story.is_contested = True
    others = [each for each in world.processes if not each.is_over and each is not process]
    sealer = world.random.choice(others or [process])
    process.tree.answer_delay_ms = world.random.choice((30, 80, 150))
    if sealer is not process:
        sealing = sealer.client.seal(story.ledger_id, password=story.password)
        await actors.ended(sealer, "seal", sealing)
    await asyncio.sleep(2)
    process.tree.answer_delay_ms = 0
    is_seen = follower.is_over or sealer is process
    world.require(is_seen, "a follower does not see that its ledger was sealed")
    follower.cancel()
    record = await process.client.seal(story.ledger_id, password=story.password)
    story.see_closed(record)
    process.ends[story.ledger_id] = record.last_entry_id, True
    await reader.refresh()
    story.see_end(reader, -1)
    world.require(reader.is_closed, "a reader does not see that its ledger was sealed")
    for is_forgotten in (False, True):
        if is_forgotten:  # the client has seen other ledgers since then
            process.client._ends._ends.pop(story.ledger_id, None)
        reader.take_rise(LacRise(record.last_entry_id + 9, 0))  # a bookie announces a wrong LAC
        story.see_end(reader, record.last_entry_id)
        process.tree.behind = behind
        await reader.refresh()
        world.require(reader.is_closed, "a ledger that was closed is open")
        story.see_end(reader, record.last_entry_id)
        if not is_forgotten:
            again = await process.client.open_ledger(story.ledger_id, password=story.password)
            story.looked(process, again, process.ends[story.ledger_id])
    process.tree.behind = None
    process.ends.pop(story.ledger_id)
    world.counts["servers behind a close"] += 1


async def fail_in_writing(world: HandleWorld, story: Story, process: Process) -> None:
    """Let two bookies be silent, and an access list refuse their replacement: no definite error."""
    del process
    writer = story.process
    ensemble = story.handle.metadata.last_fragment.ensemble
    silent = [world.bookies[name] for name in ensemble[:2]]
    world.is_calm = False
    world.fault("two bookies silent")
    for bookie in silent:
        bookie.is_stuck = True
    story.append(5)
    story.append_batch(40)  # a part of these entries is sent
    story.append(300)
    waits = [
        asyncio.ensure_future(actors.ended(writer, name, call()))
        for name, call in (("drain", story.handle.drain), ("flush", story.handle.flush))
    ]
    writer.tree.refuses = True
    done, left = await asyncio.wait(waits, timeout=40)
    writer.tree.refuses = False
    world.require(not left, f"{len(left)} wait for a handle that failed")
    for each in done:
        each.result()
    if not story.handle.is_writable:
        world.counts["refused replacements"] += 1
        story.append(2)
        world.require(not story.pending, "a handle that failed takes appends")
    for bookie in silent:
        bookie.is_stuck = False
    await asyncio.sleep(HEALED_SECONDS)
    world.is_calm = True


async def close(world: HandleWorld, story: Story, process: Process) -> None:
    """Close a ledger while the store is away. When the store is back, the close succeeds."""
    del process
    how = world.random.choice(("hangs", "refuses", "loses the answer"))
    story.is_closing = True
    world.is_calm = False
    if how == "loses the answer":
        story.process.tree.loses_answer = True
    else:
        story.process.tree.go_away(15, hangs=how == "hangs")
    begun, late_ms = world.loop.time(), SETTINGS.close_timeout_ms + 50
    try:
        await actors.ended(story.process, "close", story.handle.close())
    except MetadataUnavailableError as error:
        world.require(error.retriable, f"a close in an outage: {error!r}")
        await actors.check_not_closed(story, error)
    else:
        world.require(False, "a ledger was closed while the store was away")
    took_ms = (world.loop.time() - begun) * 1e3
    world.require(took_ms < late_ms, f"a close in an outage took {took_ms:.0f} ms")
    await asyncio.sleep(15)
    for _ in range(3):
        try:
            record = await actors.ended(story.process, "close", story.handle.close())
        except LedgerLogError as error:
            world.require(error.retriable, f"a close after an outage: {error!r}")
            await asyncio.sleep(HEALED_SECONDS)
        else:
            break
    else:
        raise world.violation("a close fails on after an outage")
    story.see_closed(record)
    world.counts["closes in an outage"] += 1
    world.is_calm = True


async def replace_in_an_outage(world: HandleWorld, story: Story, process: Process) -> None:
    """Let a bookie need a replacement while the store refuses changes. No call waits forever."""
    del process
    ensemble = story.handle.metadata.last_fragment.ensemble
    silent = world.bookies[world.random.choice(ensemble)]
    world.is_calm = False
    world.fault("a bookie silent in an outage")
    silent.is_stuck = True
    story.append(3)
    await asyncio.sleep(SETTINGS.add_timeout_ms / 1e3 - 0.1)
    story.process.tree.go_away(world.random.choice((0.5, 3)), hangs=False)
    await asyncio.sleep(HEALED_SECONDS)
    silent.is_stuck = False
    await asyncio.sleep(HEALED_SECONDS)
    if story.handle.is_writable and not story.handle.entries_pending:
        owed = story.handle._host._open - set(story.handle._host._timers)
        world.require(not owed, f"{len(owed)} answers are waited for after an outage")
        world.counts["replacements in an outage"] += 1
    world.is_calm = True


async def seal_beside_rot(world: HandleWorld, story: Story, process: Process) -> None:
    """Seal a ledger whose three copies are missing, damaged and late. The known LAC stays true."""
    for _ in range(9):
        quorum = story.handle.metadata.quorum
        if (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum) == (3, 3, 2):
            break
        story = await actors.created(story.process) or story
    else:
        return
    names = list(story.handle.metadata.last_fragment.ensemble)
    world.random.shuffle(names)
    silent, rotten, late = (world.bookies[name] for name in names)
    sealer = process if process is not story.process else Process(world, "sealer beside rot")
    world.is_calm = False
    world.fault("rot where a copy is missing")
    silent.is_stuck = True
    story.append(5)
    await actors.ended(story.process, "flush", story.handle.flush())
    story.process.tree.go_away(8)  # so the writer cannot replace a bookie
    world.network.cut_bookie(silent.name)
    silent.is_stuck = False
    rotten.is_rotten_for_good = True
    late.answer_delay_ms = 300
    await actors.seal(sealer, story)
    rotten.is_rotten_for_good = False
    late.answer_delay_ms = 0
    if sealer is not process:
        await sealer.close()
    world.counts["seals beside rot"] += 1
    await asyncio.sleep(HEALED_SECONDS)
    world.is_calm = True
