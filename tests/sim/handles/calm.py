"""Checks without other faults: one situation at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.client.handles import known_ends
from ledgerlog_spark.client.recent_records import AGE_MAX_S
from ledgerlog_spark.errors import LedgerLogError, NotEnoughBookiesError
from ledgerlog_spark.model import Quorum
from tests.sim.handles import actors, blocking, calls, harm, reads

if TYPE_CHECKING:
    from tests.sim.handles.bookies import SimBookie
    from tests.sim.handles.process import Process
    from tests.sim.handles.story import Story
    from tests.sim.handles.world import HandleWorld

SLOW_WRITE_MS = 600
"""Delay of a bookie's answer to a LAC: longer than all attempts of an announcer together."""

FOLLOWED_SECONDS = 6
"""A follower asks again within this time, even if no bookie has a control service."""


async def check(world: HandleWorld) -> None:
    """Run some of the checks below. Bookies fail only in the last check."""
    living = [process for process in world.processes if not process.is_over]
    if not living:
        return
    random = world.random
    await asyncio.sleep(FOLLOWED_SECONDS)
    for story in world.stories.values():
        check_known_to_followers(world, story)
    if world.stories:
        for actor in (
            reads.come_back_late,
            reads.in_one_room,
            reads.in_slices,
            reads.close_under,
            reads.look_at_recent,
            calls.look_around,
            blocking.read,
            blocking.read,
        ):
            process, story = random.choice(living), random.choice(list(world.stories.values()))
            if random.random() < 0.4:
                process.spawn(f"{actor.__name__} when it is calm", actor(process, story))
    await world.until_all_ended(200)
    for process in living:
        check_hosts(process)
        reads.check_recent(process)
        ends = len(process.client._ends._ends)
        world.require(ends <= known_ends.ENDS_MAX, f"{process.name} knows {ends} ends")
    if random.random() < 0.3:
        await bookies_come_and_go(world, random.choice(living))
    announcing = [story for story in world.stories.values() if story.announces and _is_free(story)]
    if announcing:
        story = random.choice(announcing)
        if random.random() < 0.4:
            await reads.believe_a_lie(random.choice(living), story)
        if random.random() < 0.3:
            await announce_slowly(world, story)
    for _ in range(random.choice((0, 1, 1, 2))):
        free = [story for story in world.stories.values() if _is_free(story)]
        some = random.choice(free) if free and random.random() < 0.4 else await _fresh(world)
        if some is not None and some.announces and random.random() < 0.3:
            await replace_while_idle(world, some, living)
        elif some is not None:
            await harm.check(world, some, living)


async def _fresh(world: HandleWorld) -> Story | None:
    """Return a new ledger with some entries."""
    process = world.random.choice([each for each in world.processes if not each.is_over])
    story = await actors.created(process)
    if story is not None:
        story.append(world.random.randint(1, 40))
        await actors.ended(process, "flush", story.handle.flush())
    return story


def _is_free(story: Story) -> bool:
    is_there = not story.process.is_over and story.handle.is_writable
    return is_there and not story.is_contested


def check_hosts(process: Process) -> None:
    """Check that each answer that a machine waits for is still pending."""
    world = process.world
    for story in world.stories.values():
        if story.process is process and _is_free(story) and not story.handle.entries_pending:
            host, queue = story.handle._host, story.handle.queue
            owed = host._open - set(host._timers)
            world.require(not owed, f"{host._subject} waits for {len(owed)} answers")
            left = queue.entries, queue.size_bytes
            world.require(left == (0, 0), f"{left} entries and bytes wait in an idle handle")
            lines = len(queue._idle), len(queue._room)
            world.require(lines == (0, 0), f"{lines} wait for an idle handle")


def check_no_timers(world: HandleWorld) -> None:
    """Check that closed clients have no timers."""
    for timer in world.loop._scheduled:  # type: ignore[attr-defined]
        owner = getattr(timer._callback, "__self__", None)
        is_clients = type(owner).__module__.startswith("ledgerlog_spark.client")
        world.require(timer.cancelled() or not is_clients, f"{timer} of a client that is closed")


def check_known_to_followers(world: HandleWorld, story: Story) -> None:
    """Check that a follower knows the LAC of each bookie of the last ensemble."""
    for process, handle, follower in story.followers:
        if process.is_over or follower.is_over:
            continue
        ensemble = story.handle.metadata.last_fragment.ensemble
        ledgers = [world.bookies[name].inner.ledgers.get(story.ledger_id) for name in ensemble]
        told = min(-1 if ledger is None else ledger.lac for ledger in ledgers)
        lac = handle.last_add_confirmed
        world.require(lac >= told, f"a follower of {story.ledger_id} knows {lac}, bookies {told}")


async def bookies_come_and_go(world: HandleWorld, process: Process) -> None:
    """Check that a client learns of new bookies soon, and asks the store if it knows too few."""
    random, known = world.random, process.client.services.bookies.writable
    gone: list[SimBookie] = random.sample(list(world.bookies.values()), random.choice((1, 3, 5)))
    process.tree.answer_delay_ms = random.choice((0, 40))
    for bookie in gone:
        asked = asyncio.ensure_future(known.refreshed())
        await asyncio.sleep(random.uniform(0, 0.015))
        await world.leave(bookie)
        await asked
    process.tree.answer_delay_ms = 0
    await asyncio.sleep(0.5)
    there = sorted(world.bookies.keys() - {bookie.name for bookie in gone})
    names = await known.known()
    world.require(list(names) == there, f"{process.name} knows {names}, there are {there}")
    await process.client.check_bookies(_quorum(len(there)))
    try:
        await process.client.check_bookies(_quorum(len(there) + 1))
    except NotEnoughBookiesError as error:
        fields = error.fields
        said = fields["wanted"], fields["available"]
        world.require(said == (len(there) + 1, len(there)), f"{error!r}")
    else:
        world.require(False, f"{len(there) + 1} bookies of {there}")
    await world.join(gone[0])
    await process.client.check_bookies(_quorum(len(there) + 1))
    for bookie in gone[1:]:
        await world.join(bookie)
    await asyncio.sleep(0.5)
    names = await known.known()
    world.require(list(names) == sorted(world.bookies), f"{process.name} knows {names}")


def _quorum(ensemble_size: int) -> Quorum:
    return Quorum(ensemble_size, 1, 1)


async def announce_slowly(world: HandleWorld, story: Story) -> None:
    """Check that each bookie gets the last LAC, although its answer to the one before is slow."""
    ensemble = [world.bookies[name] for name in story.handle.metadata.last_fragment.ensemble]
    for bookie in ensemble:
        bookie.control_delay_ms = SLOW_WRITE_MS
    for _ in range(2):
        story.append(1)
        await actors.ended(story.process, "flush", story.handle.flush())
        await asyncio.sleep(0.1)
    await asyncio.sleep(2.5 * SLOW_WRITE_MS / 1e3)
    for bookie in ensemble:
        bookie.control_delay_ms = 0
    check_bookies_know(world, story)


def check_bookies_know(world: HandleWorld, story: Story) -> None:
    if story.process.is_over or not _is_free(story):
        return
    last = story.handle.last_add_confirmed
    for name in story.handle.metadata.last_fragment.ensemble:
        ledger = world.bookies[name].inner.ledgers.get(story.ledger_id)
        lac = -1 if ledger is None else ledger.lac
        is_right = lac == last or not world.bookies[name].has_control
        world.require(is_right, f"{name} knows {lac} of idle {story.ledger_id}, at {last}")


async def replace_while_idle(world: HandleWorld, story: Story, living: list[Process]) -> None:
    """Check that a replacement bookie gets the last LAC, and that old records are forgotten."""
    ensemble = story.handle.metadata.last_fragment.ensemble
    bookie = world.bookies[world.random.choice(ensemble)]
    for process in living:
        await actors.opened(process, story)
    world.is_calm = False
    world.fault("bookies stuck while it was calm")
    bookie.is_stuck = True
    story.append(1)
    await asyncio.sleep(5)
    if story.handle.metadata.last_fragment.ensemble != ensemble:
        check_bookies_know(world, story)
        world.counts["bookies replaced while idle"] += 1
    bookie.is_stuck = False
    await asyncio.sleep(AGE_MAX_S + 1)
    world.is_calm = True
    for process in living:
        try:
            handle = await process.client.open_ledger(
                story.ledger_id, password=story.password, may_be_outdated=True
            )
            record = await process.client.ledger_metadata(story.ledger_id)
        except LedgerLogError as error:
            world.judge(process, error, story)
            continue
        same = handle.metadata.fragments == record.fragments
        world.require(same, f"{process.name} has an old record of {story.ledger_id}")
