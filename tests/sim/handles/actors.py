"""What processes do with ledgers, with the calls that users make."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError, UnauthorizedError
from tests.sim.handles.process import SETTINGS
from tests.sim.handles.story import OwnersMistakeError, Story

if TYPE_CHECKING:
    from ledgerlog_spark.client.handles.reader import ReadHandle
    from tests.sim.handles.process import Process

CALL_SECONDS_MAX = 90
"""Every call ends by itself within this time, in which several time limits can pass."""

TOLD_SIZE_BYTES_MAX = 4_096


async def _sleep(process: Process, first_ms: int, last_ms: int) -> None:
    await asyncio.sleep(process.world.random.randint(first_ms, last_ms) / 1e3)


async def ended(process: Process, what: str, call: Any, *, calm_seconds_max: float = 5) -> Any:
    """Return the result of a call. Raise a violation if the call does not end in time."""
    begun, is_calm = process.world.loop.time(), process.world.is_calm
    task = asyncio.ensure_future(call)
    # Retrieve the error, so that asyncio does not report it as not retrieved.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    done, _ = await asyncio.wait([task], timeout=CALL_SECONDS_MAX)
    if not done:
        task.cancel()
        if process.is_over:
            raise asyncio.CancelledError
        raise process.world.violation(f"{what} of {process.name} does not end")
    took = process.world.loop.time() - begun
    if is_calm and process.world.is_calm:
        is_right = took < calm_seconds_max
        process.world.require(is_right, f"{what} of {process.name} took {took:.1f} s for nothing")
    is_right = not task.cancelled() or process.is_over
    process.world.require(is_right, f"{what} of {process.name} was cancelled by itself")
    return task.result()


async def created(process: Process) -> Story | None:
    """Create a ledger with random quorums; return None if this failed."""
    world, random = process.world, process.world.random
    quorum = random.choice(((3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (3, 3, 3)))
    password = random.choice((b"", b"", b"secret"))
    try:
        handle = await ended(
            process,
            "create_ledger",
            process.client.create_ledger(
                ensemble_size=quorum[0],
                write_quorum=quorum[1],
                ack_quorum=quorum[2],
                password=password,
                explicit_lac=random.random() < 0.6,
            ),
        )
    except LedgerLogError as error:
        world.judge(process, error, None)
        return None
    story = Story(world, process, handle, password)
    world.require(story.ledger_id not in world.stories, f"ledger id {story.ledger_id} again")
    world.stories[story.ledger_id] = story
    return story


async def write(process: Process, after_ms: int) -> None:
    """Append in bursts and batches, with pauses; then close the ledger once, twice or never."""
    await asyncio.sleep(after_ms / 1e3)
    random = process.world.random
    story = await created(process)
    if story is None:
        return
    for _ in range(random.randint(3, 16)):
        what = random.random()
        if what < 0.4:
            story.append(random.randint(1, 40))
        elif what < 0.6:
            story.append_batch(random.randint(1, 60))
        elif what < 0.75:
            for future in story.append(1):
                story.handle.send_now()
                await ended(process, "append", asyncio.wait([future]))
        elif what < 0.78:
            story.append(random.choice((100, 900)))
        elif what < 0.9:
            await ended(process, "drain", story.handle.drain())
        else:
            await ended(process, "flush", story.handle.flush())
        if random.random() < 0.6:
            await _sleep(process, 0, random.choice((5, 100, 600, 2_500)))
        if not story.handle.is_writable:
            break
    if random.random() < 0.6:
        await close(process, story)


async def close(process: Process, story: Story) -> None:
    """Close twice. Both closes return the same record, or an error that allows a retry."""
    world = process.world
    was_writable = story.handle.is_writable
    before = list(story.pending)
    story.is_closing = True
    if world.random.random() < 0.2:
        impatient = asyncio.ensure_future(story.handle.close())
        await asyncio.sleep(world.random.choice((0, 0.005, 0.02)))
        impatient.cancel()  # the close continues
        await asyncio.wait([impatient])
        impatient.cancelled() or impatient.exception()
    for _ in range(4):
        begun = world.loop.time()
        try:
            record = await ended(process, "close", story.handle.close())
        except LedgerLogError as error:
            took_ms = (world.loop.time() - begun) * 1e3
            is_in_time = bool(before) or took_ms < SETTINGS.close_timeout_ms + 50
            world.require(is_in_time, f"a close with nothing pending took {took_ms:.0f} ms")
            world.judge(process, error, story)
            await check_not_closed(story, error)
            world.require(all(each.done() for each in before), "appends outlive a close")
            if not error.retriable:
                return
            await _sleep(process, 10, 2_000)
            continue
        if was_writable and not story.is_contested and not world.has_faults:
            failed = [each for each in before if not each.done() or each.exception() is not None]
            world.require(not failed, f"a close failed {len(failed)} appends before it")
        story.see_closed(record)
        world.counts["closes"] += 1
        return


async def check_not_closed(story: Story, error: LedgerLogError) -> None:
    """Check that a close with a definite, retriable error did not close the ledger."""
    world = story.world
    if error.definite and error.retriable and not story.is_contested:
        record = (await world.truth.load(story.ledger_id)).value
        world.require(not record.is_closed, f"{record} is closed, after {error!r}")


async def follow(process: Process, story: Story) -> None:
    """Open the ledger and follow it to its end, slowly or quickly."""
    world, random = process.world, process.world.random
    handle = await opened(process, story)
    if handle is None:
        return
    changed = asyncio.Event()
    is_clumsy = random.random() < 0.2
    seen = handle.last_add_confirmed

    def on_change() -> None:
        nonlocal seen
        changed.set()
        world.guarded(lambda: _see(handle))
        if is_clumsy:
            raise OwnersMistakeError

    def _see(reader: ReadHandle) -> None:
        nonlocal seen
        seen = story.see_end(reader, seen)

    size_bytes = random.choice((0, TOLD_SIZE_BYTES_MAX))
    follower = handle.follow(on_change, entries_size_bytes_max=size_bytes)
    process.followers += 1
    story.followers.append((process, handle, follower))
    position = 0
    is_slow = random.random() < 0.2
    while not process.is_over and world.is_busy:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(random.choice((0.2, 1, 3))):
                await changed.wait()
        changed.clear()
        _see(handle)
        if random.random() < 0.3:
            told = handle.watched_entries(position, max(position, seen))
            position = story.see_entries(told, position)
        position = await read_on(process, story, handle, position, seen, is_slow=is_slow)
        if handle.is_closed and position > seen:
            break
        if random.random() < 0.05:
            break
    if random.random() < 0.5:
        follower.cancel()
    if random.random() < 0.3:
        await handle.aclose()


async def opened(process: Process, story: Story) -> ReadHandle | None:
    world, random = process.world, process.world.random
    if story.password and random.random() < 0.1:
        await _refused(process, story)
    for _ in range(3):
        known = process.ends.get(story.ledger_id, (-1, False))
        try:
            call = process.client.open_ledger(
                story.ledger_id,
                password=story.password,
                may_be_outdated=random.random() < 0.3,
            )
            handle = await ended(process, "open_ledger", call)
        except LedgerLogError as error:
            world.judge(process, error, story)
            await _sleep(process, 10, 500)
            continue
        story.readers[handle] = process
        story.looked(process, handle, known)
        story.see_end(handle, -1)
        return handle
    return None


async def _refused(process: Process, story: Story) -> None:
    try:
        await process.client.open_ledger(story.ledger_id, password=b"wrong")
    except UnauthorizedError:
        return
    except LedgerLogError as error:
        process.world.judge(process, error, story)
        return
    raise process.world.violation("a wrong password opened a ledger")


async def read_on(
    process: Process, story: Story, handle: ReadHandle, first: int, last: int, *, is_slow: bool
) -> int:
    """Read the readable entries, and return the id after the last one."""
    world, random = process.world, process.world.random
    if first > last:
        await _beyond(process, handle)
        return first
    leaves_early = random.random() < 0.1
    pauses = random.randint(1, 4) if is_slow else 0
    position = first
    begun = world.loop.time()
    try:
        async with contextlib.aclosing(handle.read_batches(first, last)) as batches:
            async for batch in batches:
                position = story.see_entries(batch, position)
                if leaves_early:
                    return position
                if pauses:
                    await asyncio.sleep(random.choice((0.01, 0.5, 25)))
                    pauses -= 1
    except LedgerLogError as error:
        story.judge_read(process, error, position)
        return position
    if not is_slow:
        took = world.loop.time() - begun
        world.require(took < CALL_SECONDS_MAX, f"a read of {last + 1 - first} took {took:.0f} s")
    world.require(position == last + 1, f"a read to {last} ended at {position}")
    return position


async def _beyond(process: Process, handle: ReadHandle) -> None:
    """Check that a read after the known end is refused without a request to a bookie."""
    end = handle.last_add_confirmed + 1
    try:
        async with contextlib.aclosing(handle.read_batches(end, end)) as batches:
            async for _ in batches:
                break
    except LocalProtocolError:
        return
    raise process.world.violation(f"entry {end} was read, behind what is acknowledged")


async def look(process: Process, story: Story) -> None:
    """Open the ledger, and read its end repeatedly, without a watch."""
    world, random = process.world, process.world.random
    handle = await opened(process, story)
    if handle is None:
        return
    seen = handle.last_add_confirmed
    for _ in range(random.randint(1, 8)):
        await _sleep(process, 1, 1_500)
        known = process.ends.get(story.ledger_id, (-1, False))
        try:
            await ended(process, "refresh", handle.refresh())
            story.looked(process, handle, known)
        except LedgerLogError as error:
            world.judge(process, error, story)
        else:
            is_missed = world.is_calm and story.closed is not None and not handle.is_closed
            world.require(not is_missed, f"{handle} does not see that its ledger is closed")
        seen = story.see_end(handle, seen)
        first = random.randint(0, max(0, seen))
        await read_on(process, story, handle, first, seen, is_slow=False)
        if not world.is_busy:
            return


async def probe(process: Process, story: Story) -> None:
    """Read the same few entries from one bookie repeatedly, some of them at the same time."""
    random = process.world.random
    bookie = random.choice(story.handle.metadata.last_fragment.ensemble)
    if random.random() < 0.3:
        for _ in range(60):  # one after the other, after any answer
            await ended(process, "read", process.read_one(bookie, story, 0, 200))
    for _ in range(random.randint(1, 6)):
        reads = [
            process.read_one(
                bookie, story, random.randint(0, 2), random.choice((200, 1_500, 1_500, 3_000))
            )
            for _ in range(random.randint(1, 5))
        ]
        await ended(process, "read", asyncio.gather(*reads))
        await _sleep(process, 0, 700)


async def seal(process: Process, story: Story) -> None:
    """Seal the ledger, whose writer may still run. Both of two seals give the same answer."""
    world = process.world
    story.is_contested = True
    for _ in range(world.random.randint(1, 3)):
        call = process.client.seal(story.ledger_id, password=story.password)
        try:
            record = await ended(process, "seal", call)
        except LedgerLogError as error:
            world.judge(process, error, story)
            await _sleep(process, 10, 1_000)
            continue
        story.see_closed(record)
        world.counts["seals"] += 1
