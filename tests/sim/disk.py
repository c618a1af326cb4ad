"""A disk with faults: the FileSystem port with power loss, errors and flipped bits.

A file consists of its bytes as programs see them, and of the writes that are not yet synced. A
power loss keeps, drops or tears each of these writes independently, at sectors of 512 bytes. It
loses any subset of the unsynced changes of names. Each operation first waits, which is a point for
a crash, and then takes effect at once. `disk_rules` has what must hold at each operation.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import (
    DirectoryLockedError,
    DiskFullError,
    MissingFileError,
    StorageError,
    SyncFailedError,
    TooManyFilesError,
)
from bookie_server.ports import Buffer, Priority
from bookie_server.storage.device.os_errors import translated
from tests.sim.disk_rules import check_removal, check_rename, check_write
from tests.sim.runtime import Host, SimFuture

SECTOR = 512
SLOW_SYNC_US = 20_000
GROUPS_IN_DOUBT = 2
"""Number of groups that may not yet be proved as synced: one is synced, one is being written."""


class Content:
    """The bytes of one file: for reads, and after a power loss, with the writes between both."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []
        self.allocated = 0
        self.may_go_beyond = False  # whether writes may go beyond the blocks (`check_write`)
        self.starts: deque[int] = deque(maxlen=GROUPS_IN_DOUBT + 1)

    @property
    def vouched_end(self) -> int:
        """The end of the data that later writes prove as synced: damage before it is never torn."""
        return self.starts[0] if len(self.starts) > GROUPS_IN_DOUBT else 0

    @property
    def taken_bytes(self) -> int:
        return max(len(self.seen), self.allocated)

    def write(self, offset: int, data: bytes) -> None:
        if offset < RECORDS_START:
            self.starts.clear()  # the header of a new file in the slot
        elif not self.starts or offset > self.starts[-1]:
            self.starts.append(offset)
        put(self.seen, offset, data)
        self.unsynced.append((offset, data))

    def sync(self, writes: Sequence[tuple[int, bytes]]) -> None:
        """Make some of the unsynced writes durable."""
        chosen = {id(write) for write in writes}
        left = []
        for write in self.unsynced:
            if id(write) in chosen:
                put(self.durable, *write)
            else:
                left.append(write)
        self.unsynced = left
        if len(self.seen) < len(self.durable):
            del self.durable[len(self.seen) :]

    def lose_power(self, random: Random) -> None:
        for offset, data in self.unsynced:
            fate = random.randrange(3)
            if fate == 0:
                continue
            for start in range(0, len(data), SECTOR):
                if fate == 1 or random.random() < 0.5:
                    put(self.durable, offset + start, data[start : start + SECTOR])
        self.unsynced = []
        self.seen = bytearray(self.durable)


def tear_tail(content: Content, end: int) -> None:
    """Write a part of one more record at the end of the file, as a power loss may leave it."""
    put(content.durable, end, bytes(range(1, 101)))
    content.seen = bytearray(content.durable)


def put(target: bytearray, offset: int, data: Buffer) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


@dataclass
class Faults:
    """The faults of the next operations. Each failed operation decreases its count by one.

    Attributes:
        write_errors: Number of writes that fail with EIO, after an arbitrary part is written.
        sync_errors: Number of syncs that fail: the data is dropped, and the next sync succeeds.
        read_errors: Number of reads that fail with EIO.
        capacity_bytes: Size of the device; None for no limit.
        descriptors_max: Number of files that a process may open; None for no limit.
    """

    write_errors: int = 0
    sync_errors: int = 0
    read_errors: int = 0
    capacity_bytes: int | None = None
    descriptors_max: int | None = None


@dataclass
class Counters:
    writes: int = 0
    bytes_written: int = 0
    syncs: int = 0
    operations: int = 0
    background_bytes_max: int = 0  # most bytes of background work that a file had unsynced


@dataclass
class SimDisk:
    """The device of one simulated machine, which outlives the processes that use it.

    Attributes:
        on_operation: Called with the number and name of each operation, before the operation takes
            effect. Tests crash here, or set `error`.
        is_there: Whether the directory exists. If not, a lock creates it only on request.
        error: The errno of the operation that takes effect next, if it changes something. 0 for no
            error.
        cold_part: The part of the reads whose pages are not in the cache, from 0 to 1.
        slow_part: The part of the syncs of entry-log files that take as long as 100 operations.
    """

    random: Random
    faults: Faults = field(default_factory=Faults)
    counters: Counters = field(default_factory=Counters)
    on_operation: Callable[[int, str], None] | None = None
    error: int = 0
    is_there: bool = True
    cold_part: float = 0.3
    slow_part: float = 0.0
    holder: Host | None = None
    seen_names: dict[str, Content] = field(default_factory=dict)
    durable_names: dict[str, Content] = field(default_factory=dict)
    unsynced_names: list[tuple[str, Content | None]] = field(default_factory=list)
    numbers: dict[str, SimNumber] = field(default_factory=dict)

    def lose_power(self) -> None:
        """Drop a random part of the data that is not synced. The caller first kills the host."""
        self.numbers.clear()
        for one in self._contents():
            one.lose_power(self.random)
        for name, content in self.unsynced_names:
            if self.random.random() < 0.5:
                self._name(self.durable_names, name, content)
        self.unsynced_names = []
        self.seen_names = dict(self.durable_names)
        self.holder = None

    def crash_process(self) -> None:
        """End the process. The page cache stays, so no data is lost or becomes durable."""
        self.holder = None

    def wipe(self) -> None:
        """Replace the device by an empty one."""
        self.seen_names, self.durable_names, self.unsynced_names = {}, {}, []
        self.holder = None

    def fail(self, name: str, verb: str) -> None:
        """Raise the error of this operation, if it has one."""
        number, self.error = self.error, 0
        if number:
            raise translated(OSError(number, os.strerror(number)), name, verb)

    def flip_bit(self, name: str, offset: int, bit: int, *, is_cached: bool = False) -> None:
        """Flip one durable bit. If the page is cached, programs see it only without the cache."""
        content = self.seen_names[name]
        for copy in (content.durable,) if is_cached else (content.seen, content.durable):
            if offset < len(copy):
                copy[offset] ^= 1 << bit

    def used_bytes(self) -> int:
        return sum(content.taken_bytes for content in self.seen_names.values())

    def sync_names(self) -> None:
        for name, content in self.unsynced_names:
            self._name(self.durable_names, name, content)
        self.unsynced_names = []

    def set_name(self, name: str, content: Content | None) -> None:
        self._name(self.seen_names, name, content)
        self.unsynced_names.append((name, content))

    @staticmethod
    def _name(names: dict[str, Content], name: str, content: Content | None) -> None:
        if content is None:
            names.pop(name, None)
        else:
            names[name] = content

    def _contents(self) -> list[Content]:
        contents = {id(c): c for c in self.seen_names.values()}
        contents |= {id(c): c for c in self.durable_names.values()}
        contents |= {id(c): c for _, c in self.unsynced_names if c is not None}
        return list(contents.values())


class SimFileSystem:
    """The FileSystem port of one process on a `SimDisk`.

    Attributes:
        opened: Number of open descriptors of the process.
        path: Where the directory is.
        grid_us: The process notices finished operations only at multiples of this time. So with a
            large value, it notices many at once.
    """

    def __init__(
        self, disk: SimDisk, host: Host, *, latency_us: tuple[int, int] = (20, 400)
    ) -> None:
        self.disk = disk
        self.host = host
        self.latency_us = latency_us
        self.last_group: SimFuture[None] | None = None
        self.opened: list[SimFile] = []
        self.grid_us = 1
        self.path = "/data"

    async def step(self, name: str) -> None:
        """Wait for the device. After this, the caller lets the operation take effect at once."""
        latency_us = self.disk.random.randint(*self.latency_us)
        late_us = -(self.host.scheduler.now_us + latency_us) % self.grid_us
        await self.host.sleep_us(latency_us + late_us)
        self.step_now(name)

    def step_now(self, name: str) -> None:
        """The same as `step` without a wait: only a point for a crash."""
        self.disk.counters.operations += 1
        if self.disk.on_operation is not None:
            self.disk.on_operation(self.disk.counters.operations, name)
        if not self.host.is_alive:
            raise StorageError("the simulated process is dead", path=name)

    async def lock(self, *, create: bool = True) -> None:
        await self.step("lock")
        if not (create or self.disk.is_there):
            raise MissingFileError("cannot use the directory: No such file or directory", path=".")
        holder = self.disk.holder
        if holder is not None and holder.is_alive:
            raise DirectoryLockedError(
                f"the directory is in use by {holder.name}; stop it first", path="."
            )
        self.disk.holder = self.host

    async def unlock(self) -> None:
        if self.disk.holder is self.host:
            self.disk.holder = None

    async def open(self, name: str, *, create: bool = False) -> SimFile:
        await self.step(f"open {name}")
        limit = self.disk.faults.descriptors_max
        if limit is not None and len(self.opened) >= limit:
            raise TooManyFilesError(f"cannot open {name}: too many open files", path=name)
        content = self.disk.seen_names.get(name)
        if content is None:
            if not create:
                raise MissingFileError(f"there is no file {name}", path=name)
            self.disk.fail(name, "open")
            content = Content()
            self.disk.set_name(name, content)
        self.opened.append(SimFile(self, name, content))
        return self.opened[-1]

    async def rename(self, source: str, target: str) -> None:
        await self.step(f"rename {source}")
        content = self.disk.seen_names.get(source)
        if content is None:
            raise MissingFileError(f"there is no file {source}", path=source)
        check_rename(self.disk, source, target)
        self.disk.fail(source, "rename")
        self.disk.set_name(target, content)
        self.disk.set_name(source, None)

    async def remove(self, name: str) -> None:
        await self.step(f"remove {name}")
        if name not in self.disk.seen_names:
            raise MissingFileError(f"there is no file {name}", path=name)
        check_removal(self.disk, name)
        self.disk.fail(name, "remove")
        self.disk.set_name(name, None)

    async def names(self) -> list[str]:
        await self.step("names")
        return sorted(self.disk.seen_names)

    async def sync_directory(self) -> None:
        await self.step("sync_directory")
        self.disk.counters.syncs += 1
        self.disk.fail(".", "sync")
        self.disk.sync_names()

    async def free_space(self) -> int:
        capacity = self.disk.faults.capacity_bytes
        return 1 << 40 if capacity is None else max(0, capacity - self.disk.used_bytes())

    async def total_space(self) -> int:
        capacity = self.disk.faults.capacity_bytes
        return 1 << 40 if capacity is None else capacity

    async def taken_space(self, name: str) -> int:
        content = self.disk.seen_names.get(name)
        if content is None:
            raise MissingFileError(f"there is no file {name}", path=name)
        return content.taken_bytes

    def random_bytes(self, size: int) -> bytes:
        return self.disk.random.randbytes(size)

    async def surviving_number(
        self, name: str, run_id: str, *, create: bool = False
    ) -> SimNumber | None:
        await self.step(f"map {name}")
        if create:
            self.disk.numbers[name] = SimNumber(run_id)
        number = self.disk.numbers.get(name)
        return number if number is not None and number.run_id == run_id else None

    async def forget_number(self, name: str) -> None:
        await self.step(f"unmap {name}")
        self.disk.numbers.pop(name, None)


@dataclass
class SimNumber:
    """The SurvivingNumber port."""

    run_id: str
    number: int = 0

    def set(self, number: int) -> None:
        self.number = number

    def get(self) -> int:
        return self.number


class SimFile:
    """The File port."""

    def __init__(self, files: SimFileSystem, name: str, content: Content) -> None:
        self.files = files
        self.name = name
        self.content = content
        self.has_failed = False
        self.has_lost_pages = False
        self.is_open = True
        self.background_bytes = 0  # by background work since its last sync

    async def read(
        self,
        offset: int,
        size: int,
        priority: Priority = Priority.FOREGROUND,  # noqa: ARG002 - one simulated device serves both
    ) -> bytes:
        await self.files.step(f"read {self.name}")
        self._check_open()
        faults = self.files.disk.faults
        if faults.read_errors > 0:
            faults.read_errors -= 1
            raise StorageError(f"cannot read {self.name}: input/output error", path=self.name)
        return self._read(offset, size)

    def read_now(self, offset: int, size: int) -> bytes | None:
        self._check_open()
        # Some pages are not in the cache, so that both ways of reading are simulated.
        if self.files.disk.random.random() < self.files.disk.cold_part:
            return None
        return self._read(offset, size)

    def _read(self, offset: int, size: int) -> bytes:
        data = bytes(self.content.seen[offset : offset + size])
        end = min(offset + size, self.content.allocated)
        return data + bytes(max(0, end - offset - len(data)))

    async def write(
        self, offset: int, buffers: Sequence[Buffer], priority: Priority = Priority.FOREGROUND
    ) -> None:
        await self.files.step(f"write {self.name}")
        self._write(offset, buffers)
        if priority is Priority.BACKGROUND:
            self.background_bytes += sum(map(len, buffers))
            seen = self.files.disk.counters
            seen.background_bytes_max = max(seen.background_bytes_max, self.background_bytes)

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        await self._in_turn(lambda: self.write_synced_out_of_turn(offset, buffers))

    async def write_in_order(self, offset: int, buffers: Sequence[Buffer]) -> None:
        await self._in_turn(lambda: self.write(offset, buffers))

    async def _in_turn(self, operation: Callable[[], Awaitable[None]]) -> None:
        """Run the operations of all files one after the other, and none of a file that failed."""
        files = self.files
        before, files.last_group = files.last_group, files.host.future()
        mine = files.last_group
        try:
            if before is not None:
                await before
            if self.has_failed or self.has_lost_pages:
                raise SyncFailedError(f"{self.name} failed before", path=self.name)
            await operation()
        except StorageError:
            self.has_failed = True
            raise
        finally:
            mine.set_result(None)

    async def write_synced_out_of_turn(self, offset: int, buffers: Sequence[Buffer]) -> None:
        await self.files.step(f"write {self.name}")
        self._write(offset, buffers)
        await self.datasync()

    def _check_open(self) -> None:
        """Check that the file is open. After a close, another file may have its descriptor."""
        assert self.is_open, f"{self.name} is used after it was closed"

    def _write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._check_open()
        data = b"".join(buffers)
        disk = self.files.disk
        is_small = disk.faults.capacity_bytes is not None
        check_write(self.name, self.content, offset, offset + len(data), is_small=is_small)
        disk.counters.writes += 1
        disk.counters.bytes_written += len(data)
        growth = offset + len(data) - max(len(self.content.seen), self.content.allocated)
        capacity = disk.faults.capacity_bytes
        if capacity is not None and growth > 0 and disk.used_bytes() + growth > capacity:
            self.content.write(offset, data[: len(data) // 2])
            raise DiskFullError(f"no space left for {self.name}", path=self.name)
        if disk.faults.write_errors > 0:
            disk.faults.write_errors -= 1
            self.content.write(offset, data[: disk.random.randrange(len(data) + 1)])
            raise SyncFailedError(f"cannot write {self.name}: input/output error", path=self.name)
        try:
            disk.fail(self.name, "write")
        except StorageError:
            self.content.write(offset, data[: disk.random.randrange(len(data) + 1)])
            raise
        self.content.write(offset, data)

    async def datasync(self, priority: Priority = Priority.FOREGROUND) -> None:
        if priority is Priority.BACKGROUND:
            self.background_bytes = 0
        # A write that comes while the device works may not be covered, so it never is.
        writes = list(self.content.unsynced)
        disk = self.files.disk
        is_slot = self.name.startswith("slot-")
        if is_slot and disk.slow_part and disk.random.random() < disk.slow_part:
            await self.files.host.sleep_us(SLOW_SYNC_US)
        await self.files.step(f"sync {self.name}")
        self._sync(writes)

    def _sync(self, writes: Sequence[tuple[int, bytes]]) -> None:
        self._check_open()
        disk = self.files.disk
        disk.counters.syncs += 1
        if self.has_lost_pages:
            raise SyncFailedError(f"{self.name} failed before", path=self.name)
        if disk.faults.sync_errors > 0:
            disk.faults.sync_errors -= 1
            # Linux marks the pages clean: for a file that is opened again, the next sync reports
            # success, and the data is gone.
            self._lose_pages()
            raise SyncFailedError(f"cannot sync {self.name}: input/output error", path=self.name)
        try:
            disk.fail(self.name, "sync")
        except StorageError:
            self._lose_pages()
            raise
        self.content.sync(writes)

    def _lose_pages(self) -> None:
        self.has_lost_pages = True
        self.content.unsynced = []

    async def drop_cache(
        self,
        priority: Priority = Priority.FOREGROUND,  # noqa: ARG002 - it has no threads
    ) -> None:
        await self.files.step(f"drop {self.name}")
        self.content.seen = bytearray(self.content.durable)
        for write in self.content.unsynced:
            put(self.content.seen, *write)

    async def allocate(self, size: int) -> None:
        await self.files.step(f"allocate {self.name}")
        disk = self.files.disk
        disk.fail(self.name, "allocate")
        growth = size - max(len(self.content.seen), self.content.allocated)
        capacity = disk.faults.capacity_bytes
        if capacity is not None and growth > 0 and disk.used_bytes() + growth > capacity:
            raise DiskFullError(f"no space left for {self.name}", path=self.name)
        self.content.allocated = max(self.content.allocated, size)

    async def truncate(self, size: int) -> None:
        await self.files.step(f"truncate {self.name}")
        self._check_open()
        self.files.disk.fail(self.name, "cut")
        del self.content.seen[size:]
        self.content.allocated = min(self.content.allocated, size)

    async def size(self) -> int:
        return max(len(self.content.seen), self.content.allocated)

    async def data_end(self) -> int:
        return len(self.content.seen)

    async def close(self) -> None:
        self._check_open()
        self.is_open = False
        self.files.opened.remove(self)
