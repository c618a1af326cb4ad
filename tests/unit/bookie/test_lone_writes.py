"""Which thread writes a lone small group."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookie_server.errors import SyncFailedError
from bookie_server.storage import os_filesystem
from bookie_server.storage.os_filesystem import (
    LONE_SIZE_BYTES_MAX,
    LONE_SYNC_SECONDS_MAX,
    ZEROS_AHEAD,
    OsFileSystem,
    SyncTime,
)


@pytest.fixture
async def files(tmp_path: Path):
    opened = OsFileSystem(tmp_path)
    await opened.lock()
    yield opened
    await opened.unlock()


@pytest.fixture
def syncing_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    threads: list[int] = []

    def sync(_descriptor: int) -> None:
        threads.append(threading.get_ident())

    monkeypatch.setattr(os_filesystem, "_fdatasync", sync)
    return threads


def taught(seconds: float) -> SyncTime:
    sync_time = SyncTime()
    for _ in range(200):
        sync_time.learn(seconds)
    return sync_time


def test_the_loop_waits_for_syncs_that_are_known_to_be_short() -> None:
    assert not SyncTime().is_short
    assert taught(LONE_SYNC_SECONDS_MAX / 2).is_short
    assert not taught(LONE_SYNC_SECONDS_MAX * 2).is_short
    turned_slow = taught(LONE_SYNC_SECONDS_MAX / 2)
    turned_slow.learn(1.0)
    assert not turned_slow.is_short


@pytest.mark.parametrize(
    ("seconds", "size", "is_here"),
    [
        (1e-5, 512, True),
        (1e-5, LONE_SIZE_BYTES_MAX, True),
        (1e-5, LONE_SIZE_BYTES_MAX + 1, False),
        (1.0, 512, False),
    ],
)
async def test_a_lone_small_group_is_written_on_the_loop_where_syncs_are_short(
    files: OsFileSystem, syncing_threads: list[int], seconds: float, size: int, is_here: bool
) -> None:
    file: Any = await files.open("one", create=True)
    files.sync_time = taught(seconds)
    await file.write_synced(0, [b"x" * size])
    assert await file.read(0, size) == b"x" * size
    assert [thread == threading.get_ident() for thread in syncing_threads] == [is_here]
    await file.close()


async def test_zeros_go_ahead_of_small_groups_into_blocks_that_were_never_written(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    pwritev = os.pwritev

    def noted(descriptor: int, buffers: list[Any], offset: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return pwritev(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", noted)
    ahead = len(ZEROS_AHEAD)
    file: Any = await files.open("one", create=True)
    await file.allocate(3 * ahead)
    for number in range(4):
        await file.write_synced(number * 1_000, [bytes([number + 1]) * 1_000])
    assert sizes == [ahead, 1_000, 1_000, 1_000, 1_000]
    sizes.clear()
    # A large group passes what was zeroed; the last zeros end with the file.
    await file.write_synced(4_000, [b"x" * (2 * ahead)])
    await file.write_synced(4_000 + 2 * ahead, [b"y" * 1_000])
    await file.write_synced(5_000 + 2 * ahead, [b"z" * 1_000])
    assert sizes == [2 * ahead, ahead - 5_000, 1_000, 1_000]
    whole = await file.read(0, 3 * ahead)
    assert whole[:6_000] == b"".join(bytes([n]) * 1_000 for n in range(1, 5)) + b"x" * 2_000
    assert whole[4_000 + 2 * ahead :] == b"y" * 1_000 + b"z" * 1_000 + bytes(ahead - 6_000)
    await file.close()


async def test_no_zeros_go_into_a_slot_that_was_written_before(
    files: OsFileSystem,
) -> None:
    file: Any = await files.open("one", create=True)
    await file.write(0, [b"old" * 1_000])
    await file.allocate(3_000)
    await file.write_synced(0, [b"new"])
    assert await file.read(0, 10_000) == b"new" + b"old" * 999
    await file.close()


async def test_a_group_is_never_written_beside_one_that_is_under_way(
    files: OsFileSystem, syncing_threads: list[int]
) -> None:
    file: Any = await files.open("one", create=True)
    files.sync_time = taught(1e-5)
    may_end = threading.Event()
    before = files.writer.call(may_end.wait)
    group = file.write_synced(0, [b"x" * 512])
    group.send(None)
    assert syncing_threads == []
    may_end.set()
    await before
    group.close()
    await file.close()


async def test_a_small_group_ends_behind_the_one_that_the_thread_is_just_through_with(
    files: OsFileSystem,
) -> None:
    file: Any = await files.open("one", create=True)
    files.sync_time = taught(1e-5)
    ended: list[str] = []

    async def group(name: str, size: int) -> None:
        await file.write_synced(0, [name.encode() * size])
        ended.append(name)

    first = asyncio.create_task(group("1", LONE_SIZE_BYTES_MAX + 1))
    await asyncio.sleep(0)
    # The loop hears only in its next turn that the thread is through, the second group's first.
    is_through = threading.Event()
    through = files.writer.call(is_through.set)
    is_through.wait()
    await asyncio.gather(first, group("2", 512), through)
    assert ended == ["1", "2"]
    await file.close()


@pytest.mark.parametrize("sizes", [(1_000, 20_000), (20_000, 1_000), (1_000, 1_000)])
@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
async def test_nothing_goes_to_a_file_after_a_group_of_it_failed(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int], call: str
) -> None:
    file: Any = await files.open("one", create=True)
    await file.allocate(1 << 20)
    begun: list[str] = []

    def noted(name: str, *_: object) -> int:
        begun.append(name)
        if name == call:
            raise OSError(errno.EIO, "input/output error")
        return sizes[0]

    monkeypatch.setattr(os, "pwritev", partial(noted, "pwritev"))
    monkeypatch.setattr(os_filesystem, "_fdatasync", partial(noted, "fdatasync"))
    monkeypatch.setattr(os_filesystem, "ZEROS_AHEAD", bytes(sizes[0]))
    first, second = (file.write_synced(0, [b"x" * size]) for size in sizes)
    failed = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in failed] == [SyncFailedError, SyncFailedError]
    assert begun.count(call) == 1
    assert begun[-1] == call
    await file.close()


async def test_a_failed_sync_on_the_loop_is_the_error_that_it_is_in_the_thread(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os_filesystem, "_fdatasync", fail)
    file: Any = await files.open("one", create=True)
    for seconds in (1e-5, 1.0):
        files.sync_time = taught(seconds)
        with pytest.raises(SyncFailedError):
            await file.write_synced(0, [b"x" * 512])
    await file.close()
