"""The traced program: operations on a real directory, and marks with their promises.

A mark is a line of JSON that is written to a separate file, so the marks have their places between
the system calls of the trace. `port` runs random operations of the FileSystem port. `storage` runs
a bookie's storage.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

from bookie_server.core.requests import StoredRead
from bookie_server.ports import File, Priority, Standing
from bookie_server.storage.device.filesystem import OsFile, OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import NEW_NAME, initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, FixedMetadata, add_request
from tests.device.settings import SETTINGS, payload_of

NAMES = ("a", "b", "c")
OPERATIONS = 60
SIZE_MAX = 3_000


class Marks:
    """Writes marks to the trace."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def put(self, kind: str, **values: Any) -> None:
        os.write(self._descriptor, json.dumps({"kind": kind, **values}).encode() + b"\n")


class PortScript:
    """Random operations of the port. A promise is withdrawn before it may be broken."""

    def __init__(self, files: OsFileSystem, marks: Marks, seed: int) -> None:
        self.files = files
        self.marks = marks
        self.random = Random(seed)
        self.opened: dict[str, File] = {}
        self.written: dict[str, list[tuple[int, bytes]]] = {}  # since the last datasync

    async def run(self) -> None:
        await self.files.lock()
        for _ in range(OPERATIONS):
            await self.operate()
        await asyncio.gather(*(self.write_synced(name) for name in tuple(self.opened)))
        for file in self.opened.values():
            await file.close()
        await self.files.unlock()

    async def operate(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.opened:
            await self.create(name)
            return
        operations = (
            self.write_synced,
            self.write_synced,
            self.write,
            self.datasync,
            self.truncate,
            self.allocate,
            self.rename,
            self.sync_directory,
            self.remove,
            self.write_all,
        )
        await self.random.choice(operations)(name)

    def _data(self) -> tuple[int, bytes]:
        size = self.random.randrange(1, SIZE_MAX)
        return self.random.randrange(2 * SIZE_MAX), self.random.randbytes(size)

    async def create(self, name: str) -> None:
        self.marks.put("names", names=[name])
        self.opened[name] = await self.files.open(name, create=True)
        self.written[name] = []

    async def write_synced(self, name: str) -> None:
        offset, data = self._data()
        self.marks.put("rewrite", name=name, offset=offset, size=len(data))
        self.written[name] = []
        half = len(data) // 2
        await self.opened[name].write_synced(offset, (data[:half], memoryview(data)[half:]))
        self.marks.put("bytes", name=name, offset=offset, data=data.hex())

    async def write_all(self, _name: str) -> None:
        """Groups of several files at the same time."""
        await asyncio.gather(*(self.write_synced(name) for name in tuple(self.opened)))

    async def write(self, name: str) -> None:
        offset, data = self._data()
        self.marks.put("rewrite", name=name, offset=offset, size=len(data))
        if self.random.random() < 0.5:
            await self.opened[name].write(offset, (data,))
        else:
            await self.opened[name].write_in_order(offset, (data,))
        kept = [part for part in self.written[name] if not _overlaps(part, offset, len(data))]
        self.written[name] = [*kept, (offset, data)]

    async def datasync(self, name: str) -> None:
        await self.opened[name].datasync()
        for offset, data in self.written[name]:
            self.marks.put("bytes", name=name, offset=offset, data=data.hex())
        self.written[name] = []
        self.marks.put("size", name=name, size=await self.opened[name].size())

    async def truncate(self, name: str) -> None:
        size = self.random.randrange(2 * SIZE_MAX)
        self.marks.put("rewrite", name=name, offset=size, size=-1)
        self.written[name] = []
        await self.opened[name].truncate(size)

    async def allocate(self, name: str) -> None:
        await self.opened[name].allocate(self.random.randrange(1, 4 * SIZE_MAX))

    async def rename(self, name: str) -> None:
        target = self.random.choice(NAMES)
        if target == name:
            return
        self.marks.put("names", names=[name, target])
        if target in self.opened:
            await self.opened.pop(target).close()
        await self.files.rename(name, target)
        file = self.opened.pop(name)
        self.written[target] = []
        await file.close()
        self.opened[target] = await self.files.open(target)

    async def remove(self, name: str) -> None:
        if self.random.random() < 0.5:
            return
        self.marks.put("names", names=[name])
        await self.opened.pop(name).close()
        await self.files.remove(name)

    async def sync_directory(self, _name: str) -> None:
        await self.files.sync_directory()
        self.marks.put("listing", names=await self.files.names())


def _overlaps(part: tuple[int, bytes], offset: int, size: int) -> bool:
    return part[0] < offset + size and offset < part[0] + len(part[1])


class StorageScript:
    """Appends, rolls, fences, drops, frees files and stops. A mark follows each answer."""

    def __init__(self, files: OsFileSystem, marks: Marks, seed: int) -> None:
        self.files = files
        self.marks = marks
        self.random = Random(seed)
        self.next_id = [0, 0, 0]

    async def run(self) -> None:
        tasks = OsTasks()
        await self.files.lock()
        await initialize_directory(self.files)
        self.marks.put("serves")
        shared = Shared(
            files=self.files,
            clock=OsClock(),
            tasks=tasks,
            settings=SETTINGS,
            metadata=FixedMetadata(Standing.OPEN_WITH_ME),
        )
        self.storage = await LedgerStorage.open(shared)
        for number in range(10):
            await asyncio.gather(*(self.add() for _ in range(self.random.randrange(1, 4))))
            if number == 4:
                await self.fence(7)
                await self.drop(0)
                await self.storage.reclaim()
        await self.storage.close()
        await tasks.aclose()

    async def add(self) -> None:
        ledger_id = self.random.randrange(1, 3) if self.next_id[0] > 5 else 0
        entry_id = self.next_id[ledger_id]
        self.next_id[ledger_id] += 1
        done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        request = add_request(ledger_id, (entry_id,), payload_of(ledger_id, entry_id))
        self.storage.add(request, done.set_result)
        assert await done is Code.OK
        self.marks.put("entry", ledger_id=ledger_id, entry_id=entry_id)

    async def fence(self, ledger_id: int) -> None:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = StoredRead(ledger_id, -1, fence_key=KEY, is_recovery=True)
        self.storage.read(request, lambda *answer: done.set_result(answer))
        await done
        self.marks.put("fence", ledger_id=ledger_id)

    async def drop(self, ledger_id: int) -> None:
        self.marks.put("drop", ledger_id=ledger_id)
        done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self.storage.drop(ledger_id, done.set_result)
        assert await done is Code.OK


# Mistakes that the model must detect.


def no_sync() -> None:
    """A group is written and not synced."""

    def write(self: OsFile, offset: int, buffers: Any) -> None:
        self._begin_write()
        self._write_portions(offset, buffers)
        self._has_failed = False

    OsFile._write_synced = write


def other_descriptor() -> None:
    """A group is written to one file, and another file is synced."""
    other = os.open(".", os.O_RDONLY)

    def write(self: OsFile, offset: int, buffers: Any) -> None:
        self._begin_write()
        self._write_portions(offset, buffers)
        os.fsync(other)
        self._has_failed = False

    OsFile._write_synced = write


def no_directory_sync() -> None:
    """Names become durable only after a rename, so a MANIFEST may name a file without a name."""
    rename, sync = OsFileSystem.rename, OsFileSystem.sync_directory
    renamed: list[str] = []

    async def noted(self: OsFileSystem, source: str, target: str) -> None:
        renamed.append(target)
        await rename(self, source, target)

    async def skipped(self: OsFileSystem) -> None:
        if renamed:
            renamed.clear()
            await sync(self)

    OsFileSystem.rename = noted
    OsFileSystem.sync_directory = skipped


def rename_before_sync() -> None:
    """The MANIFEST gets its name before its bytes are durable."""
    sync = OsFile.datasync

    async def skipped(self: OsFile, priority: Priority = Priority.FOREGROUND) -> None:
        if self.name != NEW_NAME:
            await sync(self, priority)

    OsFile.datasync = skipped


def no_state_sync() -> None:
    """The MANIFEST names states whose bytes are not durable."""
    sync = OsFile.datasync

    async def skipped(self: OsFile, priority: Priority = Priority.FOREGROUND) -> None:
        if not self.name.startswith("ledgers-"):
            await sync(self, priority)

    OsFile.datasync = skipped


MISTAKES = {
    mistake.__name__: mistake
    for mistake in (no_sync, other_descriptor, no_directory_sync, rename_before_sync, no_state_sync)
}


async def main(directory: str, marks: str, script: str, seed: str, mistake: str) -> None:
    if mistake:
        MISTAKES[mistake]()
    given = OsFileSystem(Path(directory)), Marks(Path(marks)), int(seed)
    await (PortScript(*given) if script == "port" else StorageScript(*given)).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
