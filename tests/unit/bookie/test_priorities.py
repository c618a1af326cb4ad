"""Background work takes turns, and neither its writes nor its syncs delay clients."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.core.settings import MEBIBYTE
from bookie_server.errors import DirectoryLockedError
from bookie_server.ports import Priority
from bookie_server.storage.compaction.pace import UNSYNCED_BYTES_MAX
from bookie_server.storage.device import filesystem, runtime
from bookie_server.storage.device.filesystem import OsFile, OsFileSystem
from bookie_server.storage.device.runtime import (
    PERIOD_SECONDS,
    SLICE_SECONDS,
    BackgroundTurns,
    OsTasks,
)
from bookie_server.storage.files.live_bytes import LiveBytes
from bookie_server.storage.files.pool import FilePool, Pins


class Work:
    """Several background tasks, which only compute, and how long each turn took."""

    def __init__(self, portion_seconds: float) -> None:
        self.portion_seconds = portion_seconds
        self.spent = 0.0
        self.turns: list[tuple[float, float]] = []  # beginning and end
        self._loop = asyncio.get_running_loop()
        self.turns_of_all = BackgroundTurns(self._loop, self.now)

    def now(self) -> float:
        return self._loop.time() + self.spent

    async def run(self, portions: int) -> None:
        for _ in range(portions):
            await self.turns_of_all.wait()
            began = self.now()
            self.spent += self.portion_seconds
            if self.turns and self.turns[-1][1] == began:
                self.turns[-1] = (self.turns[-1][0], self.now())
            else:
                self.turns.append((began, self.now()))


@pytest.mark.virtual_time
@pytest.mark.parametrize("tasks", [1, 3])
async def test_background_work_takes_one_slice_in_each_period(tasks: int) -> None:
    work = Work(portion_seconds=0.001)
    await asyncio.gather(*(work.run(200) for _ in range(tasks)))
    lengths = [end - began for began, end in work.turns]
    rests = [later[0] - earlier[1] for earlier, later in pairwise(work.turns)]
    assert sum(lengths) == pytest.approx(0.2 * tasks)
    assert max(lengths) <= SLICE_SECONDS + 0.001 + 1e-9
    assert min(rests) >= PERIOD_SECONDS - SLICE_SECONDS - 0.001 - 1e-9


@pytest.mark.virtual_time
async def test_each_background_task_gets_its_turn() -> None:
    work = Work(portion_seconds=1.5 * SLICE_SECONDS)
    order: list[str] = []

    async def named(name: str) -> None:
        for _ in range(3):
            await work.run(1)
            order.append(name)

    await asyncio.gather(*(named(name) for name in "abc"))
    assert order == list("abcabcabc")


@pytest.mark.virtual_time
async def test_a_cancelled_task_does_not_end_the_turns() -> None:
    work = Work(portion_seconds=SLICE_SECONDS)
    await work.run(1)
    waiting = [asyncio.ensure_future(work.run(1)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [task.cancelled() for task in waiting] == [True, False, False]
    assert len(work.turns) == 3


async def test_only_background_tasks_wait_for_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[str] = []

    async def wait(_turns: BackgroundTurns) -> None:
        task = asyncio.current_task()
        assert task is not None
        waited.append(task.get_name())

    monkeypatch.setattr(runtime.BackgroundTurns, "wait", wait)
    tasks, ended = OsTasks(), asyncio.Event()

    async def client() -> None:
        await tasks.give_way()
        ended.set()

    async def compaction() -> None:
        await tasks.give_way()
        tasks.spawn("client", client())  # the priority is not inherited

    tasks.spawn("compaction", compaction(), Priority.BACKGROUND)
    await ended.wait()
    await tasks.aclose()
    assert waited == ["compaction"]


PATIENCE_SECONDS = 60


@pytest.fixture
async def held_back() -> AsyncIterator[HeldBack]:
    """A call in a thread that goes on when the test lets it, or is late."""
    call = HeldBack()
    yield call
    call.may_go_on.set()


class HeldBack:
    """A call that waits in its thread."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_go_on = threading.Event()
        self._loop = asyncio.get_running_loop()

    def wait(self) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        self.may_go_on.wait(PATIENCE_SECONDS)


async def test_no_call_of_a_client_or_of_a_new_file_waits_for_background_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_back: HeldBack
) -> None:
    """A background sync does not end. All else goes on, and a close waits."""
    files = OsFileSystem(tmp_path)
    await files.lock()
    file, copies = await files.open("log", create=True), await files.open("copies", create=True)
    sync = filesystem._fdatasync

    def slow_sync(descriptor: int) -> None:
        if descriptor == copies._descriptor:
            held_back.wait()
        sync(descriptor)

    monkeypatch.setattr(filesystem, "_fdatasync", slow_sync)
    await copies.write(0, [b"copied"], Priority.BACKGROUND)
    syncing = asyncio.ensure_future(copies.datasync(Priority.BACKGROUND))
    await held_back.begun.wait()
    closing = asyncio.ensure_future(copies.close())
    await file.write_synced(0, [b"group"])
    await file.write(5, [b"header"])
    await file.datasync()
    await files.rename("log", "renamed")
    assert not closing.done()
    held_back.may_go_on.set()
    await asyncio.gather(syncing, closing)
    await file.close()
    await files.unlock()
    assert (tmp_path / "copies").read_bytes() == b"copied"


Write = Callable[[OsFile], Awaitable[None]]


@pytest.mark.parametrize(
    "write",
    [
        lambda file: file.write(0, [b"copied"], Priority.BACKGROUND),
        lambda file: file.write(0, [b"copied"]),
        lambda file: file.write_in_order(0, [b"copied"]),
        lambda file: file.write_synced(0, [b"copied"]),
    ],
    ids=["background", "control", "in order", "synced"],
)
async def test_a_file_is_closed_after_the_write_of_a_cancelled_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_back: HeldBack, write: Write
) -> None:
    """A start that is stopped cancels its writes. Another file may get the descriptor."""
    files = OsFileSystem(tmp_path)
    await files.lock()
    copies = await files.open("copies", create=True)
    write_now = copies._write

    def slow_write(offset: int, buffers: list[bytes]) -> None:
        held_back.wait()
        write_now(offset, buffers)

    monkeypatch.setattr(copies, "_write", slow_write)
    writing = asyncio.ensure_future(write(copies))
    await held_back.begun.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    closing = asyncio.ensure_future(copies.close())
    for _ in range(3):
        await asyncio.sleep(0)
    assert os.fstat(copies._descriptor).st_size == 0, "the file is still open"
    assert not closing.done()
    held_back.may_go_on.set()
    await closing
    await files.unlock()
    assert (tmp_path / "copies").read_bytes() == b"copied"


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_close_waits_for_a_write_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_back: HeldBack, *, is_cancelled: bool
) -> None:
    files = OsFileSystem(tmp_path)
    await files.lock()
    file = await files.open("log", create=True)

    def fail(_offset: int, _buffers: list[bytes]) -> None:
        held_back.wait()
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(file, "_write", fail)
    writing = asyncio.ensure_future(file.write_synced(0, [b"group"]))
    await held_back.begun.wait()
    if is_cancelled:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    closing = asyncio.ensure_future(file.close())
    await asyncio.sleep(0)
    assert not closing.done()
    held_back.may_go_on.set()
    await asyncio.gather(writing, closing, return_exceptions=True)
    await closing
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file._descriptor)
    await files.unlock()


@pytest.mark.parametrize(
    "call",
    [
        lambda files, slow: files.writer.call(slow),
        lambda files, slow: files.keeper.call(slow),
        lambda files, slow: files.thread_of(Priority.BACKGROUND).call(slow),
    ],
    ids=["groups", "control", "background"],
)
async def test_a_directory_is_locked_until_the_calls_of_cancelled_tasks_have_ended(
    tmp_path: Path,
    held_back: HeldBack,
    call: Callable[[OsFileSystem, Callable[[], None]], Awaitable[None]],
) -> None:
    """The next process must not see a write or a rename of this one."""
    files, following = OsFileSystem(tmp_path), OsFileSystem(tmp_path)
    await files.lock()
    running = asyncio.ensure_future(call(files, held_back.wait))
    await held_back.begun.wait()
    running.cancel()
    unlocking = asyncio.ensure_future(files.unlock())
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(DirectoryLockedError):
        await following.lock()
    held_back.may_go_on.set()
    await unlocking
    await following.lock()
    await following.unlock()


async def test_a_freed_file_waits_for_the_last_of_its_readings(tmp_path: Path) -> None:
    files = OsFileSystem(tmp_path)
    await files.lock()
    pool = FilePool(files, OsTasks(), 8)
    file = await pool.open("log", create=True)
    freed: list[str] = []
    with Pins() as first:
        first.add(file)
        first.add(file)
        with Pins() as second:
            second.add(file)
            file.on_unpinned = lambda: freed.append("log")
        assert file.pins == 1
        assert not freed
    assert freed == ["log"]
    assert file.pins == 0
    await file.close()
    await files.unlock()


def test_the_bound_of_unsynced_copies_is_eight_mebibytes() -> None:
    assert UNSYNCED_BYTES_MAX == 8 * MEBIBYTE


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 9)), st.lists(st.integers(0, 30)))
def test_live_bytes_are_a_dictionary(sizes: dict[int, int], dropped: list[int]) -> None:
    live = LiveBytes()
    ids = sorted(sizes)
    for part in (ids[:3], ids[3:]):
        live.extend(part, [sizes[ledger_id] for ledger_id in part])
    for ledger_id in dropped:
        assert live.pop(ledger_id) == sizes.pop(ledger_id, 0)
    assert list(live) == sorted(sizes)
    assert len(live) == len(sizes)
    assert bool(live) == bool(sizes)
    assert live.total() == sum(sizes.values())
    assert all((ledger_id in live) == (ledger_id in sizes) for ledger_id in range(31))
