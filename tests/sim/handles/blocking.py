"""What threads do with the blocking API: append, wait, flush, close, and read in batches."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from ledgerlog_spark.client.blocking import batch_queue
from ledgerlog_spark.client.blocking.batch_queue import BatchQueue
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError, MetadataUnavailableError
from tests.sim.handles.process import BACKLOG_ENTRIES_MAX
from tests.sim.handles.story import Story
from tests.sim.handles.threads import UserThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
    from ledgerlog_spark.client.client import LedgerClient
    from tests.sim.handles.process import Process

CALL_SECONDS_MAX = 90
BATCH_ENTRIES_MAX = 30
ENTRIES_READ_MAX = 120


def _timed(thread: UserThread, process: Process, what: str, call: Callable[[], Any]) -> Any:
    """Return the result of a blocking call, which must end in time."""
    begun = thread.world.loop.time()
    try:
        return call()
    finally:
        took = thread.world.loop.time() - begun
        is_right = took < CALL_SECONDS_MAX or process.is_over
        thread.world.require(is_right, f"{what} of a thread of {process.name} took {took:.0f} s")


async def client_of(process: Process) -> BlockingClient | None:
    """Return a blocking client that uses the client of the process."""

    async def connect() -> LedgerClient:
        return process.client

    made: list[BlockingClient] = []
    await ran(process, lambda _: made.append(BlockingClient(connect)))
    return made[0] if made else None


async def ran(process: Process, work: Callable[[UserThread], None]) -> None:
    thread = UserThread(process.world, work)
    thread.begin()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.shield(thread.done)


async def write(process: Process, after_ms: int) -> None:
    """Append to one ledger with one or two threads."""
    await asyncio.sleep(after_ms / 1e3)
    world, random = process.world, process.world.random
    client = await client_of(process)
    faces: list[BlockingWriteHandle] = []
    explicit_lac = random.random() < 0.5

    def create(_: UserThread) -> None:
        try:
            faces.append(client.create_ledger(explicit_lac=explicit_lac))  # type: ignore[union-attr]
        except LedgerLogError as error:
            world.judge(process, error, None)

    await ran(process, create)
    if not faces:
        return
    face = faces[0]
    story = Story(world, process, face._twin, b"", face)
    world.stories[story.ledger_id] = story
    await asyncio.gather(
        *(ran(process, _Appends(process, story, face).run) for _ in range(random.randint(1, 2)))
    )
    inbox = face._inbox
    await asyncio.sleep(0.1)
    if process.is_over:
        return
    world.require(not inbox.items and not inbox._waiting, "an inbox forgot what it has")
    if not story.pending:
        counted = inbox._entries, inbox._size_bytes
        world.require(counted == (0, 0), f"an empty inbox counts {counted}")


class _Appends:
    """The appends of one thread."""

    def __init__(self, process: Process, story: Story, face: BlockingWriteHandle) -> None:
        self._process = process
        self._world = process.world
        self._story = story
        self._face = face
        self._number = len(process.world.threads)
        self._made = 0

    def run(self, thread: UserThread) -> None:
        random, face = self._world.random, self._face
        for _ in range(random.randint(4, 24)):
            what = random.random()
            if what < 0.45:
                for _ in range(random.choice((1, 1, 3, 20, 70))):
                    self._append(thread)
            elif what < 0.6:
                self._append_batch(thread, random.randint(1, BATCH_ENTRIES_MAX))
            elif what < 0.85:
                future = self._append(thread)
                with contextlib.suppress(LedgerLogError):
                    _timed(thread, self._process, "append", future.result)
            elif what < 0.9:
                with contextlib.suppress(LedgerLogError):
                    _timed(thread, self._process, "flush", face.flush)
            if random.random() < 0.6:
                thread.pause(random.choice((0.001, 0.003, 0.011, 0.03, 0.5)))
            if not face.is_writable or self._process.is_over:
                break
        if random.random() < 0.4:
            self._close(thread)

    def _append(self, thread: UserThread) -> Any:
        payload = self._story.payload()
        future = _timed(thread, self._process, "put", lambda: self._face.append_async(payload))
        self._note([payload], future, is_batch=False)
        return future

    def _append_batch(self, thread: UserThread, count: int) -> None:
        self._made += 1
        name = b"%d:thread %d:%d:" % (self._story.ledger_id, self._number, self._made)
        payloads = [name + b"%d" % number for number in range(count)]
        put = lambda: self._face.append_batch_async(payloads)  # noqa: E731
        self._note(payloads, _timed(thread, self._process, "put", put), is_batch=True)

    def _note(self, payloads: list[bytes], future: Any, *, is_batch: bool) -> None:
        story = self._story
        place = len(story.payloads)
        story.payloads += payloads
        story.watch(future, range(place, place + len(payloads)), is_batch=is_batch)
        waiting = self._face._inbox._entries
        limit = BACKLOG_ENTRIES_MAX + 2 * BATCH_ENTRIES_MAX
        self._world.require(waiting <= limit, f"{waiting} appends of threads wait")

    def _close(self, thread: UserThread) -> None:
        story = self._story
        story.is_closing = True
        for _ in range(4):
            try:
                record = _timed(thread, self._process, "close", self._face.close)
            except LedgerLogError as error:
                self._world.judge(self._process, error, story)
                if not isinstance(error, MetadataUnavailableError):
                    return
                thread.pause(0.5)
                continue
            story.see_closed(record)
            return


async def read(process: Process, story: Story) -> None:
    """Read the readable entries in a thread, through a queue or batch by batch."""
    client = await client_of(process)
    through_queue = process.world.random.random() < 0.6
    if client is None:
        return
    queues: list[CheckedQueue] = []
    if not through_queue:
        await ran(process, lambda thread: _read(thread, process, client, story, None))
        return
    await ran(process, lambda thread: _read(thread, process, client, story, queues))
    await asyncio.sleep(0.05)
    left = [each for each in queues if each._task is not None and not each._task.done()]
    process.world.require(not left or process.is_over, "a queue that its thread left goes on")


def _read(
    thread: UserThread,
    process: Process,
    client: BlockingClient,
    story: Story,
    queues: list[CheckedQueue] | None,
) -> None:
    world, random = process.world, process.world.random
    handle = None
    try:
        handle = client.open_ledger(story.ledger_id, password=story.password)
        last = min(story.see_end(handle, -1), ENTRIES_READ_MAX)
        if last < 0:
            return
        if queues is not None:
            queues.append(CheckedQueue(process, handle._twin.read_batches(0, last)))
            taken = queues[0].taken()
        else:
            taken = handle.read_batches(0, last)
        position, leaves = 0, random.random() < 0.35
        with contextlib.closing(cast("Generator[Any, None, None]", taken)):
            for batch in taken:
                position = story.see_entries(batch, position)
                if random.random() < 0.5:
                    thread.pause(random.choice((0.001, 0.02, 0.3)))
                if leaves and random.random() < 0.5:
                    return
        world.require(position == last + 1, f"a thread read up to {position}, not {last}")
        world.counts["read by threads"] += position
        if random.random() < 0.5:
            handle.close()
            with contextlib.suppress(LocalProtocolError):
                handle.refresh()
                world.require(False, "a handle that is closed was refreshed")
    except LedgerLogError as error:
        world.judge(process, error, story)


class CheckedQueue(BatchQueue[Any]):
    """A queue that checks that it is never ahead of its thread by more than its limit."""

    def __init__(self, process: Process, batches: Any) -> None:
        super().__init__(batches, process.world.threads.loop_thread, self._size)
        self._world = process.world

    def _size(self, batch: Any) -> int:
        """Return the size of a batch; called before a batch is put, and when it is taken."""
        size = sum(len(entry.payload) for entry in batch)
        if not isinstance(threading.current_thread(), UserThread):
            ahead = len(self._came)  # type: ignore[arg-type]
            bytes_ahead = self._put_size_bytes - self._taken_size_bytes
            is_right = ahead < batch_queue.AHEAD_MAX
            self._world.require(is_right, f"one more than {ahead} batches for a thread")
            is_right = bytes_ahead < batch_queue.AHEAD_SIZE_BYTES_MAX
            self._world.require(is_right, f"more than {bytes_ahead} bytes for a thread")
        return size
