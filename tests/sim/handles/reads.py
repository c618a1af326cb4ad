"""Readers that close during their reads, pause, share a limit of bytes, or get a wrong LAC."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.recent_records import memory_size_bytes
from ledgerlog_spark.errors import EntryNotFoundError, LedgerLogError, LocalProtocolError
from ledgerlog_spark.protocol.ledger.read_room import ReadRoom
from tests.sim.handles.actors import ended, opened
from tests.sim.handles.process import RECENT_SIZE_BYTES_MAX, SETTINGS, Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.client.handles.reader import ReadHandle
    from tests.sim.handles.story import Story

CLOSED_SECONDS_MAX = 0.01
ENTRIES_MAX = 100
"""Number of entries in a read; larger than the number that a reader fetches ahead."""

LATE_SECONDS = 8

LIE = 7
"""Number by which the LAC of a bookie is too large."""


async def _read_all(process: Process, story: Story, handle: ReadHandle, last: int) -> int:
    """Read everything as quickly as possible, and return the id after the last entry."""
    position = 0
    try:
        async with contextlib.aclosing(handle.read_batches(0, last)) as batches:
            async for batch in batches:
                position = story.see_entries(batch, position)
    except LocalProtocolError:
        raise
    except LedgerLogError as error:
        story.judge_read(process, error, position)
    return position


async def close_under(process: Process, story: Story) -> None:
    """Close the handle during its reads and followers. All of them end immediately."""
    world, random = process.world, process.world.random
    handle = await opened(process, story)
    if handle is None or handle.last_add_confirmed < 0:
        return
    last = min(handle.last_add_confirmed, ENTRIES_MAX)
    told = 0

    def on_change() -> None:
        nonlocal told
        told += 1

    follower = handle.follow(on_change)
    process.followers += 1
    reads = [
        asyncio.ensure_future(_read_all(process, story, handle, last))
        for _ in range(random.randint(1, 3))
    ]
    await asyncio.sleep(random.choice((0, 0.002, 0.01, 0.03)))
    await handle.aclose()
    told_before = told
    done, left = await asyncio.wait(reads, timeout=CLOSED_SECONDS_MAX)
    world.require(not left or process.is_over, f"{len(left)} reads outlive their handle")
    for each in done:
        error = each.exception()
        if error is not None:
            world.require(isinstance(error, LocalProtocolError), f"a read ended with {error!r}")
        else:
            world.require(each.result() <= last + 1, "a read went too far")
    for each in left:
        each.cancel()
    world.require(follower.is_over, "a follower outlives its handle")
    for call in (handle.refresh, handle.read_last_add_confirmed, lambda: handle.read_entry(0)):
        try:
            await ended(process, "a call of a closed handle", call())
        except LocalProtocolError:
            continue
        except LedgerLogError as error:
            world.judge(process, error, story)
            continue
        world.require(False, "a handle that is closed goes on")
    await asyncio.sleep(random.choice((0, 1)))
    world.require(told == told_before, "a follower that was cancelled calls back")


async def come_back_late(process: Process, story: Story) -> None:
    """Take one batch, and take each next batch just before the read would count as stalled."""
    world, random = process.world, process.world.random
    handle = await opened(process, story)
    if handle is None or handle.last_add_confirmed < SETTINGS.reader.entries_ahead_max:
        return
    last = min(handle.last_add_confirmed, ENTRIES_MAX)
    position, begun = 0, world.loop.time()
    looked_at = begun + 2 * SETTINGS.stall_ms / 1e3
    try:
        async with contextlib.aclosing(handle.read_batches(0, last)) as batches:
            async for batch in batches:
                if not position:
                    early = random.choice((0.0002, 0.001, 0.003))
                    await asyncio.sleep(looked_at - early - world.loop.time())
                position = story.see_entries(batch, position)
    except LedgerLogError as error:
        story.judge_read(process, error, position)
        return
    world.require(position == last + 1, f"a late reader came to {position}, not {last}")
    world.counts["late readers"] += 1


async def in_one_room(process: Process, story: Story) -> None:
    """Read ranges one after the other, with read-ahead, within one shared limit of bytes."""
    world, random = process.world, process.world.random
    handle = await opened(process, story)
    if handle is None or handle.last_add_confirmed < 2:
        return
    end = min(handle.last_add_confirmed, ENTRIES_MAX) + 1
    cuts = sorted({0, end, *(random.randrange(1, end) for _ in range(random.randint(1, 3)))})
    room = ReadRoom()
    places = [room.place() for _ in cuts[1:]]
    ranges = [
        handle.read_batches(first, behind - 1, place=place)
        for first, behind, place in zip(cuts, cuts[1:], places, strict=False)
    ]
    begun: list[asyncio.Future[Any]] = [asyncio.ensure_future(_next(each)) for each in ranges]
    position = 0
    try:
        for first, batches, place, task in zip(cuts, ranges, places, begun, strict=False):
            place.take_turn()
            position = first
            batch = await ended(process, "a read in a room", task)
            while batch:
                position = story.see_entries(batch, position)
                held = _held(batch) + sum(
                    _held(each.result()) for each in begun if each is not task and _has(each)
                )
                room_has = room.reserved_size_bytes
                world.require(room_has >= held, f"{room_has} bytes for {held} in one room")
                batch = await ended(process, "a read in a room", _next(batches))
            place.leave()
            begun[begun.index(task)] = world.loop.create_future()
        world.require(position == end, f"a read in a room came to {position}, not {end}")
        world.require(not room.reserved_size_bytes, "an empty room has something")
        world.counts["reads in one room"] += 1
    except LedgerLogError as error:
        world.judge(process, error, story)
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        for batches, place in zip(ranges, places, strict=True):
            await batches.aclose()
            place.leave()


class Halves:
    """Slices with the first bytes and the last byte of each entry; the story has the rest."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def ranges_of(self, entry_id: int) -> list[tuple[int, int]]:
        size = len(self._story.payloads[entry_id])
        return [(0, size // 2), (size - 1, 1)] if size > 2 else [(0, max(1, size))]

    def payload_of(self, entry_id: int, data: Any) -> bytes | None:
        whole = self._story.payloads[entry_id]
        right = b"".join(whole[at : at + size] for at, size in self.ranges_of(entry_id))
        return whole if bytes(data) == right else None

    def note_given_up(self, count: int) -> None:
        self._story.world.counts["slices given up"] += count


async def in_slices(process: Process, story: Story) -> None:
    """Read slices of the entries, and whole entries from bookies that cannot send slices."""
    world, random = process.world, process.world.random
    handle = await opened(process, story)
    if handle is None or handle.last_add_confirmed < 0:
        return
    last = min(handle.last_add_confirmed, len(story.payloads) - 1, ENTRIES_MAX)
    first = position = random.randint(0, max(0, last))
    try:
        batches = handle.read_batches(first, last, slices=Halves(story))
        async with contextlib.aclosing(batches):
            async for batch in batches:
                position = story.see_entries(batch, position)
        world.require(position == last + 1, f"a read of slices came to {position}, not {last}")
        world.counts["reads of slices"] += 1
    except LedgerLogError as error:
        story.judge_read(process, error, position)


async def _next(batches: Any) -> Sequence[Any]:
    async for batch in batches:
        return batch
    return ()


def _held(batch: Sequence[Any]) -> int:
    return sum(len(entry.payload) for entry in batch)


def _has(task: asyncio.Future[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def believe_a_lie(process: Process, story: Story) -> None:
    """Let bookies report a LAC that is too large. It is dropped once its entry does not exist.

    This runs in a process of its own, so that no other process uses the wrong LAC.
    """
    world = process.world
    if not story.announces:
        return
    lied_to = Process(world, f"{process.name} that was lied to {world.counts['lies']}")
    world.counts["lies"] += 1
    handle = await opened(lied_to, story)
    if handle is not None:
        try:
            await _believe(lied_to, story, handle)
        except LedgerLogError as error:
            world.judge(lied_to, error, story)
    await lied_to.close()


async def _believe(process: Process, story: Story, handle: ReadHandle) -> None:
    world = process.world
    before = handle.last_add_confirmed
    process.control.lies_by = LIE
    with contextlib.suppress(LedgerLogError):
        await ended(process, "a look that is lied to", handle.read_last_add_confirmed())
    process.control.lies_by = 0
    lac = handle.last_add_confirmed
    world.require(lac >= before, f"the end fell from {before} to {lac}")
    if handle.is_closed:
        world.require(lac == handle.metadata.last_entry_id, f"a closed end rose to {lac}")
    if handle.is_closed or lac <= before:
        return
    position, readable = 0, story.last_readable
    try:
        async with contextlib.aclosing(handle.read_batches(0, lac)) as batches:
            async for batch in batches:
                if not position:
                    await asyncio.sleep(LATE_SECONDS)  # all entries and the error have arrived then
                position = story.see_entries(batch, position)
    except EntryNotFoundError as error:
        world.counts["lies found out"] += 1
        absent = error.fields["entry_id"]
        world.require(absent == position, f"delivered up to {position}, then {error!r}")
        world.require(absent > readable, f"entry {absent} is not found")
        # The true end is dropped too: not every bookie gets the last LAC of a failed writer.
        process.ends.pop(story.ledger_id, None)
        await opened(process, story)  # this call reads the end


async def look_at_recent(process: Process, story: Story) -> None:
    """Get the records of several ledgers. The memory of the kept records is limited."""
    world = process.world
    wanted = [*world.stories, 1 << 40]
    try:
        found = await ended(process, "recent_records", process.client.recent_records(wanted))
    except LedgerLogError as error:
        world.judge(process, error, story)
        return
    world.require(set(found) <= set(world.stories), f"{set(found)} were found")
    for ledger_id, record in found.items():
        story = world.stories[ledger_id]
        if record.is_closed:
            story.see_closed(record)
    check_recent(process)


def check_recent(process: Process) -> None:
    recent = process.client._recent
    size = sum(memory_size_bytes(record) for record, *_ in recent._records.values())
    process.world.require(recent.size_bytes == size, f"{size} bytes are {recent.size_bytes}")
    process.world.require(size <= RECENT_SIZE_BYTES_MAX, f"{size} bytes of recent records")
