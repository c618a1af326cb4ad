"""Rare calls: ids drawn ahead, lists, copies, deletion, transports of other programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import (
    EntryUnknownError,
    LedgerClosedError,
    LedgerLogError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LocalProtocolError,
    MetadataUnknownError,
    UnauthorizedError,
)
from ledgerlog_spark.model import Code, Quorum
from tests.sim.handles.actors import ended
from tests.sim.handles.process import SETTINGS
from tests.sim.handles.story import OwnersMistakeError, Story

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.handles.process import Process
    from tests.sim.handles.world import HandleWorld

DELETED_PAYLOADS = [b"deleted soon %d" % number for number in range(5)]


async def draw_ids(process: Process) -> None:
    """Check that each id drawn ahead makes at most one ledger, and that other ids make none."""
    world, client = process.world, process.client
    try:
        ids = await ended(process, "new_ledger_ids", client.new_ledger_ids(3))
        world.require(list(ids) == sorted(set(ids)), f"{ids} were drawn")
        world.require(not world.stories.keys() & set(ids), f"{ids} were drawn before")
        create = partial(
            client.create_registered_ledger,
            process.stores.ledgers.create,
            LedgerSpec(Quorum(3, 3, 2)),
        )
        handle = await ended(process, "create", create(ledger_id=ids[1]))
    except LedgerLogError as error:
        world.judge(process, error, None)
        return
    world.require(handle.id == ids[1], f"ledger {handle.id} was made of id {ids[1]}")
    story = Story(world, process, handle, b"")
    world.stories[handle.id] = story
    story.append(3)
    for refused in (ids[1], ids[2] + 1_000_000):
        try:
            await ended(process, "create", create(ledger_id=refused))
        except LocalProtocolError:
            continue
        world.require(False, f"id {refused} made a ledger")


async def look_around(process: Process, story: Story) -> None:
    """Check the listed ids, a ledger's record, and which bookies have its acknowledged entries."""
    world, client = process.world, process.client
    before = sorted(world.stories)
    acknowledged, is_calm = story.acknowledged, world.is_calm
    try:
        await ended(process, "check_bookies", client.check_bookies(Quorum(3, 3, 2)))
        listed = [one async for one in client.list_ledgers()]
        record = await ended(process, "metadata", client.ledger_metadata(story.ledger_id))
        if not acknowledged:
            return
        entry_id = world.random.randrange(acknowledged)
        call = client.entry_copies(story.ledger_id, record, entry_id)
        copies = await ended(process, "entry_copies", call)
    except LedgerLogError as error:
        world.judge(process, error, story)
        return
    world.require(listed == sorted(set(listed)), f"{listed} are listed")
    if is_calm:
        missing = [one for one in before if one not in listed]
        world.require(not missing, f"{missing} are not listed")
        there = sum(code is Code.OK for code in copies.values())
        world.require(there >= record.quorum.ack_quorum, f"entry {entry_id} is {copies}")
        world.require(len(copies) == record.quorum.write_quorum, f"{copies} for {record.quorum}")


async def delete(process: Process) -> None:
    """Write, read and delete a ledger. After this, it cannot be opened."""
    world, client, returns = process.world, process.client, process.tree.returns
    others = [each for each in world.processes if not each.is_over]
    try:
        handle = await ended(process, "create", client.create_ledger(password=b"p"))
        await ended(process, "append_batch", handle.append_batch(DELETED_PAYLOADS))
        await ended(process, "close", handle.close())
        (other,) = world.random.sample(others, 1)
        await ended(other, "sync", other.client.services.ledgers.sync())
        reader = await ended(other, "open", other.client.open_ledger(handle.id, password=b"p"))
        found = [bytes(entry.payload) async for entry in reader.read()]
        world.require(found == DELETED_PAYLOADS, f"{found} was read")
        follower = reader.follow(lambda: None)
        other.followers += 1
        await _deleted(process, handle.id)
        await _deleted(process, handle.id)
    except LedgerLogError as error:
        world.judge(process, error, None)
        return
    calls: tuple[Coroutine[Any, Any, object], ...] = (
        client.open_ledger(handle.id, password=b"p"),
        client.seal(handle.id, password=b"p"),
        client.ledger_metadata(handle.id),
        reader.refresh(),
    )
    for call in calls:
        try:
            await ended(process, "a call of a ledger that is deleted", call)
        except LedgerNotFoundError:
            continue
        except LedgerLogError as error:
            world.judge(process, error, None)
            continue
        is_old = call is calls[-1] and other is not process
        is_old = is_old or process.tree.returns > returns  # a new session with an old server
        world.require(is_old or await _came_back(world, handle.id), f"{call} succeeded")
    follower.cancel()
    world.counts["deletions"] += 1


async def _came_back(world: HandleWorld, ledger_id: int) -> bool:
    """Whether a creation whose reply was lost, and which was repeated, came after the deletion."""
    try:
        await world.truth.load(ledger_id)
    except LedgerNotFoundError:
        return False
    return True


async def _deleted(process: Process, ledger_id: int) -> None:
    for _ in range(20):
        try:
            await ended(process, "delete", process.client.delete_ledger(ledger_id))
        except MetadataUnknownError as error:
            process.world.judge(process, error, None)
            continue
        return


HEARD_SECONDS_MAX = 2 * SETTINGS.stall_ms / 1e3 + 1
"""Without any answer, a call ends within this time."""


class OddTransport:
    """A transport of another program, whose answers get lost or come twice.

    Attributes:
        is_deaf: Whether no answer comes.
        is_doubling: Whether each answer comes twice.
    """

    def __init__(self, process: Process) -> None:
        self.is_deaf = False
        self.is_doubling = False
        self._process = process

    def add(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._process.checked.add(bookie_id, request, timeout_ms, self._odd(on_reply))

    def read(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._process.checked.read(bookie_id, request, timeout_ms, self._odd(on_reply))

    def read_batch(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._process.checked.read_batch(bookie_id, request, timeout_ms, self._odd(on_reply))

    def read_slices(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._process.checked.read_slices(bookie_id, request, timeout_ms, self._odd(on_reply))

    def write_lac(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._process.checked.write_lac(bookie_id, request, timeout_ms, self._odd(on_reply))

    def read_lac(self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: Any) -> None:
        self._process.checked.read_lac(bookie_id, ledger_id, timeout_ms, self._odd(on_reply))

    def announce_lac(self, bookie_id: str, request: Any) -> bool:
        return self._process.checked.announce_lac(bookie_id, request)

    def watch_lac(self, bookie_id: str, request: Any, on_rise: Any, on_end: Any) -> Any:
        return self._process.checked.watch_lac(bookie_id, request, on_rise, on_end)

    async def aclose(self) -> None:
        return

    def _odd(self, on_reply: Callable[..., None]) -> Callable[..., None]:
        network = self._process.world.network

        def reply(*answer: Any) -> None:
            if self.is_deaf:
                return
            on_reply(*answer)
            if self.is_doubling:
                delay_ms = self._process.world.random.choice((0, 1, 30))
                network.later(delay_ms, lambda: on_reply(*answer))

        return reply


def _odd_client(process: Process) -> tuple[LedgerClient, OddTransport]:
    transport = OddTransport(process)
    services = Services(
        transport=transport,
        ledgers=process.stores.ledgers,
        registration=process.stores.registration,
        identities=process.stores.identities,
        settings=SETTINGS,
        random=Random(process.world.random.getrandbits(32)),
    )
    return LedgerClient(services), transport


async def hear_nothing(process: Process, story: Story) -> None:
    """Check that, without any answer, every call ends with an error that reports this."""
    world = process.world
    client, transport = _odd_client(process)
    try:
        opening = client.open_ledger(story.ledger_id, password=story.password)
        handle = await ended(process, "open", opening)
        last = handle.last_add_confirmed
        transport.is_deaf = True
        wait: list[tuple[Callable[[], Any], type[LedgerLogError]]] = []
        if not handle.is_closed:
            wait.append((handle.read_last_add_confirmed, EntryUnknownError))
            story.is_contested = True
            seal = partial(client.seal, story.ledger_id, password=story.password)
            wait.append((seal, LedgerRecoveryError))
        if last >= 0:
            wait.append((lambda: handle.read_entry(last), EntryUnknownError))
        for call, wanted in wait:
            try:
                found = await ended(
                    process, "a call that hears nothing", call(), calm_seconds_max=HEARD_SECONDS_MAX
                )
            except wanted as error:
                world.require(error.retriable, f"{error!r} is final")
                world.counts["calls that heard nothing"] += 1
                continue
            is_closed = story.closed is not None or story.is_contested or story.is_closing
            world.require(is_closed and found is not None, f"{call} heard {found}")
    except LedgerLogError as error:
        world.judge(process, error, story)
    finally:
        await client.aclose()


async def hear_twice(process: Process) -> None:
    """Check that an answer that comes twice counts once."""
    world, random = process.world, process.world.random
    client, transport = _odd_client(process)
    transport.is_doubling = True
    payloads = [b"%d" % number for number in range(random.randint(1, 200))]
    try:
        handle = await ended(process, "create", client.create_ledger(explicit_lac=True))
        for first in range(0, len(payloads), 20):
            some = payloads[first : first + 20]
            ids = await ended(process, "append_batch", handle.append_batch(some))
            world.require(ids == range(first, first + len(some)), f"{ids} for {first}")
        if random.random() < 0.5:
            await ended(process, "close", handle.close())
        reader = await ended(process, "open", client.open_ledger(handle.id))
        record = await ended(process, "seal", client.seal(handle.id))
        world.require(record.last_entry_id == len(payloads) - 1, f"{record} is sealed")
        await ended(process, "refresh", reader.refresh())
        found = [bytes(entry.payload) async for entry in reader.read()]
        world.require(found == payloads, f"{len(found)} of {len(payloads)} were read")
        world.counts["ledgers of a transport that doubles"] += 1
    except LedgerLogError as error:
        world.judge(process, error, None)
    finally:
        await client.aclose()


async def close_under_calls(process: Process, story: Story) -> None:
    """Close a client while it creates, opens, reads, appends and seals. All these calls end."""
    world, random = process.world, process.world.random
    client, _ = _odd_client(process)
    ends: list[asyncio.Future[Any]] = []
    try:
        handle = await ended(process, "create", client.create_ledger(explicit_lac=True))
        call = client.open_ledger(story.ledger_id, password=story.password)
        reader = await ended(process, "open", call)
    except LedgerLogError as error:
        world.judge(process, error, story)
        await client.aclose()
        return
    told: list[None] = []

    def fail() -> None:
        told.append(None)
        raise OwnersMistakeError

    client.when_closed(fail)
    client.when_closed(lambda: told.append(None))
    client.when_closed(lambda: told.append(None))()
    waited = (handle.flush(), handle.drain(), handle.append(b"1"), handle.append_batch([b"2"] * 40))
    ends += [asyncio.ensure_future(call) for call in waited]
    ends += [handle.append_async(b"3") for _ in range(random.choice((1, 100)))]
    if random.random() < 0.5:
        ends.append(asyncio.ensure_future(handle.close()))
    if reader.last_add_confirmed >= 0:
        ends.append(asyncio.ensure_future(reader.read_entry(0)))
    await asyncio.sleep(random.choice((0, 0.01, 0.03, 0.045, 0.06)))
    ends[random.randrange(2)].cancel()  # a waiter may give up
    await asyncio.sleep(0)
    lines = [one for line in (handle.queue._idle, handle.queue._room) for one in line if one.done()]
    world.require(not lines, "who gave up stays in line")
    with contextlib.suppress(OwnersMistakeError):
        await client.aclose()
    world.require(len(told) == 2, f"{len(told)} of 2 heard of the close")
    _, left = await asyncio.wait(ends, timeout=SETTINGS.metadata_timeout_ms / 1e3 + 0.1)
    world.require(not left or process.is_over, f"{left} outlive their client")
    for each in ends:
        if each.cancelled() or (said := each.exception()) is None:
            continue
        is_right = isinstance(said, LedgerClosedError | LocalProtocolError)
        if not is_right:
            assert isinstance(said, LedgerLogError), said
            world.judge(process, said, story)
    late: tuple[Coroutine[Any, Any, object], ...] = (
        client.create_ledger(),
        client.open_ledger(story.ledger_id),
    )
    for one in late:
        try:
            await one
        except (LocalProtocolError, UnauthorizedError):
            continue
        world.require(False, "a client that is closed goes on")
