"""Groups on a real directory: which thread writes them, zeros ahead of small ones, failures."""

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
from bookie_server.storage.os_filesystem import ZEROS_AHEAD, OsFileSystem


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


@pytest.mark.parametrize("size", [512, 1 << 20])
async def test_the_loop_never_waits_for_a_sync(
    files: OsFileSystem, syncing_threads: list[int], size: int
) -> None:
    file: Any = await files.open("one", create=True)
    for _ in range(40):
        await file.write_synced(0, [b"x" * size])
    assert len(syncing_threads) == 40
    assert threading.get_ident() not in syncing_threads
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
