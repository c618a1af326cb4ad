"""Files that several readers open at the same time, some of which give up."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsTasks
from bookie_server.storage.files.pool import FilePool

if TYPE_CHECKING:
    from pathlib import Path

NAME = "slot-00000001"


class SlowFiles:
    """Opens a file after the test allows it."""

    def __init__(self, files: OsFileSystem) -> None:
        self._files = files
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def open(self, name: str, *, create: bool = False) -> Any:
        await self.go_on.wait()
        return await self._files.open(name, create=create)


@pytest.mark.parametrize("given_up", [0, 1])
async def test_a_reader_that_gives_up_while_a_file_is_opened_takes_no_other_along(
    tmp_path: Path, given_up: int
) -> None:
    """A client cancels its list of entries, and another client's read needs the same file."""
    (tmp_path / NAME).write_bytes(b"stored")
    directory = OsFileSystem(tmp_path)
    await directory.lock()
    files = SlowFiles(directory)
    pool = FilePool(cast("Any", files), OsTasks(), 8)
    file = pool.at(NAME)
    readers = [asyncio.create_task(file.read(0, 6)) for _ in range(4)]
    for _ in range(5):
        await asyncio.sleep(0)
    leaving = readers.pop(given_up)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    files.go_on.set()
    async with asyncio.timeout(20):
        assert await asyncio.gather(*readers, return_exceptions=True) == [b"stored"] * 3
    assert (pool.open_count, pool.opened) == (1, 1)
    await pool.close_all()
    await directory.unlock()


async def test_a_file_whose_closing_is_given_up_during_a_read_is_closed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each cancelled list of a client would cost a descriptor."""
    (tmp_path / NAME).write_bytes(b"stored")
    files = OsFileSystem(tmp_path)
    await files.lock()
    file = await files.open(NAME)
    go_on = threading.Event()
    read = file._read

    def read_late(offset: int, size: int) -> bytes:
        go_on.wait(20)
        return read(offset, size)

    monkeypatch.setattr(file, "_read", read_late)
    reading = asyncio.create_task(file.read(0, 6))
    await asyncio.sleep(0)
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    os.fstat(file._descriptor)
    go_on.set()
    assert await reading == b"stored"
    await files.names()  # after what the thread was given before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file._descriptor)
    await files.unlock()


async def test_calls_that_wait_for_a_busy_device_are_as_many_as_open_files(tmp_path: Path) -> None:
    """The queue of the thread has no bound of its own: each caller waits for its call."""
    files_max = 8
    names = [f"slot-{number:08d}" for number in range(40)]
    for name in names:
        (tmp_path / name).write_bytes(b"stored")
    directory = OsFileSystem(tmp_path)
    await directory.lock()
    pool = FilePool(directory, OsTasks(), files_max)
    is_busy, is_free = threading.Event(), threading.Event()

    def be_busy() -> None:
        is_busy.set()
        is_free.wait()

    busy = directory.keeper.call(be_busy)
    await asyncio.to_thread(is_busy.wait)
    readers = [asyncio.create_task(pool.at(name).read(0, 6)) for name in names]
    for _ in range(100):
        await asyncio.sleep(0)
    queued = directory.keeper._calls.qsize()
    is_free.set()
    async with asyncio.timeout(20):
        await busy
        assert await asyncio.gather(*readers) == [b"stored"] * len(names)
    await pool.close_all()
    await directory.unlock()
    assert queued == files_max
