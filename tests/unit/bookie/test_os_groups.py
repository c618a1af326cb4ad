"""Groups on a real directory: the thread that writes them, the bytes after them, and failures."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookie_server.errors import SyncFailedError
from bookie_server.storage.device import filesystem as os_filesystem
from bookie_server.storage.device.filesystem import OsFileSystem


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[OsFileSystem]:
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


async def test_a_group_writes_nothing_behind_its_end(
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
    first, second = (file.write_synced(0, [b"x" * size]) for size in sizes)
    failed = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in failed] == [SyncFailedError, SyncFailedError]
    assert begun.count(call) == 1
    assert begun[-1] == call
    await file.close()


async def test_the_time_of_a_groups_sync_is_reported_and_of_no_other(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sync(_descriptor: int) -> None:
        nonlocal now
        now += 0.25

    monkeypatch.setattr(os_filesystem, "_fdatasync", sync)
    monkeypatch.setattr(f"{os_filesystem.__name__}.time.perf_counter", lambda: now)
    seconds: list[float] = []
    files.on_sync = seconds.append
    file: Any = await files.open("one", create=True)
    await file.write_synced(0, [b"x"])
    await file.write_in_order(512, [b"x"])
    await file.write(1_024, [b"x"])
    await file.datasync()
    assert seconds == [0.25]
    await file.close()
