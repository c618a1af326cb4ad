"""One contract for the FileSystem port: the real directory and the simulated disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookie_server.core.requests import StoredAdd
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import DirectoryLockedError, MissingFileError, SyncFailedError
from bookie_server.ports import File, FileSystem, Priority, Standing
from bookie_server.storage.device import filesystem as os_filesystem
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.journal import GROUP_RECORDS_MAX, GROUPS_UNDER_WAY_MAX
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.crash.machine import FixedMetadata, add_request, entry
from tests.sim.disk import SimDisk, SimFileSystem
from tests.sim.runtime import Host, Scheduler


async def names_come_and_go(files: FileSystem, _other: FileSystem) -> None:
    await files.lock()
    with pytest.raises(MissingFileError):
        await files.open("a")
    file = await files.open("a", create=True)
    assert file.name == "a"
    await file.close()
    assert await files.names() == ["a"]
    await files.rename("a", "b")
    await files.sync_directory()
    assert await files.names() == ["b"]
    with pytest.raises(MissingFileError):
        await files.rename("a", "c")
    await files.remove("b")
    with pytest.raises(MissingFileError):
        await files.remove("b")
    assert await files.names() == []


async def bytes_are_read_back(files: FileSystem, _other: FileSystem) -> None:
    await files.lock()
    file = await files.open("a", create=True)
    await file.write(3, (b"abc", memoryview(b"def"), bytearray(b"g")))
    await file.write_synced(10, (b"hi",))
    assert await file.read(0, 100) == b"\0\0\0abcdefghi"
    assert await file.read(4, 2, Priority.BACKGROUND) == b"bc"
    assert await file.read(50, 2) == b""
    assert file.read_now(3, 4) in (b"abcd", None)
    assert await file.size() == 12
    many = [bytes([n % 256]) * 3 for n in range(3_000)]
    await file.write_synced(0, many)
    await file.datasync()
    assert await file.read(0, 9_000) == b"".join(many)
    await file.close()


async def room_is_made_ahead_and_given_back(files: FileSystem, _other: FileSystem) -> None:
    await files.lock()
    free = await files.free_space()
    assert free > 1 << 20
    file = await files.open("a", create=True)
    await file.allocate(1 << 16)
    assert await file.size() == 1 << 16
    assert await file.read(60_000, 10_000) == bytes(5_536)
    await file.write_synced(100, (b"x",))
    assert await file.size() == 1 << 16
    await file.truncate(101)
    assert await file.data_end() >= 101
    assert await file.read(90, 100) == bytes(10) + b"x"
    await file.close()


async def a_large_group_is_written_whole(files: FileSystem, _other: FileSystem) -> None:
    await files.lock()
    file = await files.open("a", create=True)
    buffers = [bytes([n]) * 300_000 for n in range(12)]
    await file.write_synced(5, buffers)
    assert await file.read(5, 4_000_000) == b"".join(buffers)
    assert await file.size() == 3_600_005
    await file.close()


async def a_directory_is_created_only_on_request(files: FileSystem, other: FileSystem) -> None:
    assert files.path == other.path
    await files.lock()
    await files.unlock()
    await other.lock(create=False)


async def a_second_holder_is_refused(files: FileSystem, other: FileSystem) -> None:
    await files.lock()
    with pytest.raises(DirectoryLockedError):
        await other.lock()
    await files.unlock()
    await other.lock()


Clause = Callable[[FileSystem, FileSystem], Coroutine[Any, Any, None]]

CONTRACT: tuple[Clause, ...] = (
    names_come_and_go,
    bytes_are_read_back,
    room_is_made_ahead_and_given_back,
    a_large_group_is_written_whole,
    a_second_holder_is_refused,
    a_directory_is_created_only_on_request,
)


@pytest.mark.parametrize("clause", CONTRACT)
def test_simulated_disk_keeps_the_contract(
    clause: Clause,
) -> None:
    scheduler = Scheduler()
    disk = SimDisk(Random(1))
    host = Host(scheduler, "bookie")
    scheduler.run(clause(SimFileSystem(disk, host), SimFileSystem(disk, host)), host)


@pytest.mark.parametrize("clause", CONTRACT)
async def test_real_directory_keeps_the_contract(clause: Clause, tmp_path: Path) -> None:
    systems = [OsFileSystem(tmp_path / "data") for _ in range(2)]
    try:
        await clause(*systems)
    finally:
        for files in systems:
            await files.unlock()


def test_simulated_disk_carries_out_groups_in_their_order_and_none_after_a_failure() -> None:
    scheduler = Scheduler()
    disk = SimDisk(Random(1))
    host = Host(scheduler, "bookie")
    files = SimFileSystem(disk, host)
    ended: list[str] = []

    async def group(file: File, name: str) -> None:
        try:
            await file.write_synced(0, (name.encode(),))
        except SyncFailedError:
            name += " failed"
        ended.append(name)

    file = scheduler.run(files.open("a", create=True), host)
    for name in ("1", "2", "3"):
        host.spawn(name, group(file, name))
    scheduler.run_for(100)
    assert ended == ["1", "2", "3"]
    disk.faults.sync_errors = 1
    for name in ("4", "5"):
        host.spawn(name, group(file, name))
    scheduler.run_for(100)
    assert ended[3:] == ["4 failed", "5 failed"]
    assert disk.counters.syncs == 4
    assert scheduler.run(file.read(0, 10), host) == b"4"


def test_simulated_sync_fails_for_ever_after_a_failure_until_the_file_is_opened_again() -> None:
    """Linux does the same, and then counts the lost pages as written."""
    scheduler = Scheduler()
    disk = SimDisk(Random(1))
    host = Host(scheduler, "bookie")
    files = SimFileSystem(disk, host)
    file = scheduler.run(files.open("a", create=True), host)
    scheduler.run(file.write(0, (b"lost",)), host)
    disk.faults.sync_errors = 1
    for _ in range(2):
        with pytest.raises(SyncFailedError):
            scheduler.run(file.datasync(), host)
    with pytest.raises(SyncFailedError):
        scheduler.run(file.write_synced(0, (b"x",)), host)
    scheduler.run(scheduler.run(files.open("a"), host).datasync(), host)
    assert disk.seen_names["a"].durable == b""


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[OsFileSystem]:
    files = OsFileSystem(tmp_path / "data")
    await files.lock()
    yield files
    await files.unlock()


async def test_real_directory_carries_out_groups_in_their_order_and_none_after_a_failure(
    real: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await real.open("a", create=True)
    synced: list[bytes] = []
    errors: list[OSError] = []

    def sync(descriptor: int) -> None:
        synced.append(os.pread(descriptor, 10, 0))
        if errors:
            raise errors.pop()

    monkeypatch.setattr(os_filesystem, "_fdatasync", sync)
    await asyncio.gather(*(file.write_synced(0, (name * 20_000,)) for name in (b"1", b"2", b"3")))
    assert synced == [b"1" * 10, b"2" * 10, b"3" * 10]
    errors.append(OSError(errno.EIO, "input/output error"))
    failed = await asyncio.gather(
        *(file.write_synced(0, (name * 20_000,)) for name in (b"4", b"5")), return_exceptions=True
    )
    assert [type(error) for error in failed] == [SyncFailedError, SyncFailedError]
    assert synced[3:] == [b"4" * 10]
    assert await file.read(0, 1) == b"4"
    await file.close()


async def test_device_begins_with_the_first_portion_of_a_group_before_all_is_written(
    real: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await real.open("a", create=True)
    begun: list[tuple[int, int, int]] = []

    def begin(descriptor: int, offset: int, size: int) -> None:
        begun.append((offset, size, os.fstat(descriptor).st_size))

    monkeypatch.setattr(real, "begin_writing", begin)
    await file.write_synced(0, [bytes(1 << 19)] * 5)
    await file.write_synced(5 << 19, [bytes(1 << 19)])
    assert begun == [(0, 1 << 20, 1 << 20), (1 << 20, 1 << 20, 2 << 20)]
    await file.close()


async def test_file_system_that_cannot_allocate_says_so_once_and_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoFallocate:
        @staticmethod
        def fallocate(*_arguments: object) -> int:
            import ctypes
            import errno

            ctypes.set_errno(errno.EOPNOTSUPP)
            return -1

    monkeypatch.setattr("bookie_server.storage.device.filesystem._libc", NoFallocate)
    notices: list[str] = []
    files = OsFileSystem(tmp_path / "data", notices.append)
    try:
        await room_is_made_ahead_and_given_back(files, files)
        file = await files.open("b", create=True)
        await file.allocate(1 << 13)
        assert await file.size() == 1 << 13
        await file.close()
    finally:
        await files.unlock()
    assert len(notices) == 1


class Bookie:
    """A storage on a real directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def __aenter__(self) -> LedgerStorage:
        self.tasks = OsTasks()
        files = OsFileSystem(self.directory)
        await files.lock()
        await initialize_directory(files)
        self.storage = await LedgerStorage.open(
            Shared(
                files=files,
                clock=OsClock(),
                tasks=self.tasks,
                settings=StorageSettings(1 << 20, 64 << 20, free_bytes_min=0, open_files_max=64),
                metadata=FixedMetadata(Standing.OPEN_WITH_ME),
            )
        )
        return self.storage

    async def __aexit__(self, *_error: object) -> None:
        await self.storage.close()
        await self.tasks.aclose()


async def added(storage: LedgerStorage, request: StoredAdd) -> Code:
    done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
    storage.add(request, done.set_result)
    return await done


async def test_entries_on_a_real_directory_survive_rolls_and_restarts(tmp_path: Path) -> None:
    payload = bytes(70_000)
    for start in range(2):
        async with Bookie(tmp_path / "data") as storage:
            assert storage.was_unclean is False
            answers = await asyncio.gather(
                *(added(storage, add_request(1, (start * 40 + n,), payload)) for n in range(40))
            )
            assert set(answers) == {Code.OK}
            assert list(await storage.entries_held(1, 100)) == [(0, start * 40 + 39)]
    async with Bookie(tmp_path / "data") as storage:
        from bookie_server.core.requests import StoredRead

        for number in range(80):
            done: asyncio.Future[tuple[Code, object]] = asyncio.get_running_loop().create_future()
            storage.read(StoredRead(1, number), lambda *a, done=done: done.set_result(a))
            assert await done == (Code.OK, entry(1, number, payload))
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert "UNCLEAN" not in names
    assert (tmp_path / "data" / "MANIFEST").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


async def test_groups_that_wait_for_a_busy_device_are_those_of_the_journal(tmp_path: Path) -> None:
    async with Bookie(tmp_path / "data") as storage:
        writer = storage._shared.files._files.writer  # type: ignore[attr-defined]
        is_busy, is_free = threading.Event(), threading.Event()

        def be_busy() -> None:
            is_busy.set()
            is_free.wait()

        busy = writer.call(be_busy)
        await asyncio.to_thread(is_busy.wait)
        adds = []
        for number in range(5 * GROUP_RECORDS_MAX):
            adds.append(asyncio.ensure_future(added(storage, add_request(1, (number,), b""))))
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        queued = writer._calls.qsize()
        is_free.set()
        await busy
        assert set(await asyncio.gather(*adds)) == {Code.OK}
    assert queued == GROUPS_UNDER_WAY_MAX


async def test_a_missing_real_directory_is_not_created_without_a_request(tmp_path: Path) -> None:
    files = OsFileSystem(tmp_path / "missing")
    with pytest.raises(MissingFileError, match="No such file or directory"):
        await files.lock(create=False)
    await files.unlock()
    assert os.listdir(tmp_path) == []  # noqa: PTH208
