"""Groups that are written without a sync on a real directory, and numbers that survive a kill."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookie_server.errors import SyncFailedError
from bookie_server.storage.device import filesystem as os_filesystem
from bookie_server.storage.device import mapped_number
from bookie_server.storage.device.filesystem import SYNC_FILE_RANGE_WAIT, OsFileSystem
from bookie_server.storage.device.mapped_number import MappedNumber

MIB = 1 << 20
CACHED_MAX = 4 * MIB


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[OsFileSystem]:
    opened = OsFileSystem(tmp_path, cached_bytes_max=CACHED_MAX)
    await opened.lock()
    yield opened
    await opened.unlock()


@pytest.fixture
def range_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The calls of sync_file_range: offset, size, flags."""
    calls: list[tuple[int, int, int]] = []

    def noted(_descriptor: int, offset: Any, size: Any, flags: int) -> int:
        calls.append((offset.value, size.value, flags))
        return 0

    monkeypatch.setattr(os_filesystem, "_sync_file_range", noted)
    return calls


async def test_groups_in_order_are_read_back_and_are_not_synced(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os_filesystem, "_fdatasync", synced.append)
    file = await files.open("one", create=True)
    groups = [bytes([number]) * 10_000 for number in range(30)]
    await asyncio.gather(
        *(file.write_in_order(10_000 * number, [group]) for number, group in enumerate(groups))
    )
    assert synced == []
    assert await file.read(0, 400_000) == b"".join(groups)
    await file.close()


async def test_write_back_begins_for_whole_portions_only(
    files: OsFileSystem, range_calls: list[tuple[int, int, int]]
) -> None:
    file = await files.open("one", create=True)
    for number in range(5):
        await file.write_in_order(number * MIB // 2, [bytes(MIB // 2)])
    assert range_calls == [(0, MIB, 2), (MIB, MIB, 2)]
    await file.close()


async def test_written_bytes_beyond_the_bound_are_on_the_device_before_they_are_dropped(
    files: OsFileSystem, range_calls: list[tuple[int, int, int]]
) -> None:
    file = await files.open("one", create=True)
    for number in range(8):
        await file.write_in_order(number * MIB, [bytes(MIB)])
    waited = [call for call in range_calls if call[2] == SYNC_FILE_RANGE_WAIT]
    assert waited == [(number * MIB, MIB, SYNC_FILE_RANGE_WAIT) for number in range(4)]
    await file.close()


async def test_a_failed_write_back_fails_the_group_that_notices_it(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later sync would not report it."""
    file = await files.open("one", create=True)
    for number in range(4):
        await file.write_in_order(number * MIB, [bytes(MIB)])
    monkeypatch.setattr(os_filesystem, "_sync_file_range", lambda *_: -1)
    with pytest.raises(SyncFailedError):
        await file.write_in_order(4 * MIB, [bytes(MIB)])
    with pytest.raises(SyncFailedError):
        await file.write_in_order(5 * MIB, [bytes(MIB)])
    await file.close()


def reports(code: int) -> int:
    """The results of failed calls of the kernel."""
    ctypes.set_errno(code)
    return -1


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_failed_write_back_fails_all_later_syncs_of_the_file(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The kernel reports the error once, and here a group of another file was told."""
    old, new = await files.open("old", create=True), await files.open("new", create=True)
    for number in range(4):
        await old.write_in_order(number * MIB, [bytes(MIB)])
    monkeypatch.setattr(os_filesystem, "_sync_file_range", lambda *_: reports(code))
    with pytest.raises(SyncFailedError, match="cannot sync old"):
        await new.write_in_order(0, [bytes(MIB)])
    monkeypatch.undo()
    for operation in (old.datasync, old.datasync, partial(old.write_synced, 0, [b"x"])):
        with pytest.raises(SyncFailedError):
            await operation()
    await new.datasync()
    await old.close()
    await new.close()


async def test_a_sync_fails_if_a_write_back_takes_the_error_meanwhile(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await files.open("one", create=True)
    for number in range(4):
        await file.write_in_order(number * MIB, [bytes(MIB)])
    is_taken, is_synced, may_return = (threading.Event() for _ in range(3))

    def take(_descriptor: int, _offset: Any, _size: Any, flags: int) -> int:
        if flags != SYNC_FILE_RANGE_WAIT:
            return 0
        is_taken.set()
        may_return.wait()
        return reports(errno.EIO)

    monkeypatch.setattr(os_filesystem, "_sync_file_range", take)
    monkeypatch.setattr(os_filesystem, "_fdatasync", lambda _descriptor: is_synced.set())
    group = asyncio.ensure_future(file.write_in_order(4 * MIB, [bytes(MIB)]))
    await asyncio.to_thread(is_taken.wait)
    syncing = asyncio.ensure_future(file.datasync())
    await asyncio.to_thread(is_synced.wait)
    may_return.set()
    failed = await asyncio.gather(group, syncing, return_exceptions=True)
    assert [type(error) for error in failed] == [SyncFailedError, SyncFailedError]
    await file.close()


async def test_a_failed_sync_fails_all_later_syncs_of_the_open_file(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await files.open("one", create=True)
    await file.write(0, [b"x"])
    errors = [OSError(errno.EIO, "input/output error")]

    def sync(_descriptor: int) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(os_filesystem, "_fdatasync", sync)
    for _ in range(2):
        with pytest.raises(SyncFailedError):
            await file.datasync()
    again = await files.open("one")
    await again.datasync()
    await file.close()
    await again.close()


class NoticedLock:
    """A lock that reports that somebody has to wait for it."""

    def __init__(self, on_wait: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._on_wait = on_wait

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._on_wait()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_a_sync_fails_if_another_sync_takes_the_error_meanwhile(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control record is synced while a checkpoint syncs the same file."""
    file = await files.open("one", create=True)
    is_taken, may_return = threading.Event(), threading.Event()
    errors = [OSError(errno.EIO, "input/output error")]

    def sync(_descriptor: int) -> None:
        if errors:
            error = errors.pop()
            is_taken.set()
            may_return.wait()
            raise error

    monkeypatch.setattr(os_filesystem, "_fdatasync", sync)
    monkeypatch.setattr(file, "_syncing", NoticedLock(may_return.set))
    checkpoint = asyncio.ensure_future(file.datasync())
    await asyncio.to_thread(is_taken.wait)
    (of_group,) = await asyncio.gather(file.write_synced(0, [b"x"]), return_exceptions=True)
    may_return.set()
    (of_checkpoint,) = await asyncio.gather(checkpoint, return_exceptions=True)
    failed = (of_group, of_checkpoint)
    assert [type(error) for error in failed] == [SyncFailedError, SyncFailedError]
    await file.close()


async def test_a_file_that_is_closed_while_its_bytes_are_dropped_fails_no_group(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = await files.open("old", create=True), await files.open("new", create=True)
    for number in range(4):
        await old.write_in_order(number * MIB, [bytes(MIB)])

    def closed_before(*_: object) -> int:
        if not old._is_closed:
            asyncio.run_coroutine_threadsafe(old.close(), files.loop).result()
        ctypes.set_errno(errno.EBADF)
        return -1

    monkeypatch.setattr(os_filesystem, "_sync_file_range", closed_before)
    await new.write_in_order(0, [bytes(1_000)])
    await new.close()


async def test_nothing_goes_to_a_file_after_a_group_without_a_sync_failed(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await files.open("one", create=True)
    begun: list[int] = []

    def failing(*_: object) -> int:
        begun.append(1)
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "pwritev", partial(failing))
    both = (file.write_in_order(0, [b"a"]), file.write_synced(1, [b"b"]))
    failed = await asyncio.gather(*both, return_exceptions=True)
    assert [type(error) for error in failed] == [SyncFailedError, SyncFailedError]
    assert len(begun) == 1
    await file.close()


RUN, OTHER = "00112233445566aa", "bb" * 8


def set_and_die(name: str) -> None:
    number = MappedNumber.open(name, RUN, create=True)
    assert number is not None
    assert number.get() == 0
    number.set(5_000_000_000)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_number_survives_a_kill(tmp_path: Path) -> None:
    name = f"ledgerlog-test-{tmp_path.parent.name}-{os.getpid()}"
    process = multiprocessing.get_context("fork").Process(target=set_and_die, args=(name,))
    process.start()
    process.join()
    try:
        number = MappedNumber.open(name, RUN, create=False)
        assert number is not None
        assert number.get() == 5_000_000_000
        assert (mapped_number.FOLDER / name).stat().st_mode & 0o777 == 0o600
        assert MappedNumber.open(name, OTHER, create=False) is None
        number.set(-1)
        assert number.get() == -1
        other = MappedNumber.open(name, OTHER, create=True)
        assert other is not None
        assert other.get() == 0
        number.set(7)  # the process of an earlier run does not change it
        assert other.get() == 0
        assert MappedNumber.open(name, RUN, create=False) is None
    finally:
        MappedNumber.remove(name)
    assert MappedNumber.open(name, RUN, create=False) is None
    MappedNumber.remove(name)


def test_a_system_without_such_memory_has_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_number, "FOLDER", tmp_path / "missing")
    assert MappedNumber.open("x", RUN, create=True) is None
    MappedNumber.remove("x")


async def test_an_operator_is_told_that_no_number_will_survive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_number, "FOLDER", tmp_path / "missing")
    notices: list[str] = []
    files = OsFileSystem(tmp_path / "data", notices.append)
    await files.lock()
    assert await files.surviving_number("x", RUN) is None
    assert notices == []
    assert await files.surviving_number("x", RUN, create=True) is None
    (notice,) = notices
    assert f"{tmp_path / 'missing'} has no shared memory" in notice
    await files.unlock()


def test_a_number_that_is_a_link_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_number, "FOLDER", tmp_path)
    (tmp_path / "other").write_bytes(bytes(8))
    (tmp_path / "x").symlink_to(tmp_path / "other")
    assert MappedNumber.open("x", RUN, create=False) is None


async def test_after_a_drop_reads_take_the_bytes_from_the_device(
    files: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[int, int, int]] = []

    def note(_descriptor: int, offset: int, size: int, advice: int) -> None:
        dropped.append((offset, size, advice))

    monkeypatch.setattr(os, "posix_fadvise", note)
    file = await files.open("one", create=True)
    await file.write(0, [b"x" * 100])
    await file.datasync()
    await file.drop_cache()
    assert dropped == [(0, 0, os.POSIX_FADV_DONTNEED)]
    assert await file.read(0, 100) == b"x" * 100
    await file.close()
