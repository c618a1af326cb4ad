"""Implements the FileSystem port on a real directory.

One thread for each directory writes and syncs groups of records, in the order of the calls. A group
needs one call in this thread and one wake-up of the event loop. The event loop never waits for the
device. A second thread makes all other changes, also in order. So no group waits while the next
file is prepared. A third thread writes and syncs the copies of compaction. Reads of bytes that are
not in the page cache run in two small pools of threads, one for clients and one for background
work. So background work never delays a client. Files have mode 0600, and the directory has mode
0700. A file that is a symbolic link is not opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bookie_server.errors import DirectoryLockedError
from bookie_server.ports import Buffer, Priority
from bookie_server.storage.device import mapped_number
from bookie_server.storage.device.directories import DIRECTORY_FLAGS, sync_path
from bookie_server.storage.device.mapped_number import MappedNumber
from bookie_server.storage.device.os_errors import translated
from bookie_server.storage.device.runtime import OrderedThread
from bookie_server.storage.device.transfers import end_of_data, read_all, write_all
from bookie_server.storage.device.written_cache import WrittenCache

T = TypeVar("T")

LOCK_NAME = "LOCK"
READ_THREADS = 4
CACHED_BYTES_MAX = 64 << 20
SCRATCH_SIZE_BYTES = 2 << 20
PORTION_SIZE_BYTES = 1 << 20
SYNC_FILE_RANGE_WRITE = 2
SYNC_FILE_RANGE_WAIT = 1 | SYNC_FILE_RANGE_WRITE | 4
BLOCK_SIZE_BYTES = 512  # the unit of `st_blocks`
_NOT_SUPPORTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
_NOT_CACHED = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL))
_libc = ctypes.CDLL(None, use_errno=True)  # `find_library` would start processes
_sync_file_range = getattr(_libc, "sync_file_range", None)  # Linux
_fdatasync = getattr(os, "fdatasync", os.fsync)


class OsFileSystem:
    """One directory, its threads and its lock.

    If the file system lacks a feature, `on_notice` is called with a message.
    """

    def __init__(
        self,
        directory: Path,
        on_notice: Callable[[str], None] = lambda _notice: None,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> None:
        self.directory = directory
        self.path = str(directory.absolute())
        self._on_notice = on_notice
        self.on_sync: Callable[[float], None] = lambda _seconds: None  # called in the writer thread
        self._can_allocate = True
        self._lock: int | None = None
        self._directory_descriptor: int | None = None
        self.written = WrittenCache(cached_bytes_max)
        # Buffer for small reads in the thread of the event loop. Python would first fill a new
        # buffer with zeros.
        self.scratch = memoryview(bytearray(SCRATCH_SIZE_BYTES))
        self.writer = OrderedThread(f"writer {directory.name}")
        self.keeper = OrderedThread(f"keeper {directory.name}")
        self._background = OrderedThread(f"background writer {directory.name}")
        self.pools = {
            priority: ThreadPoolExecutor(count, f"{name} {directory.name}")
            for priority, count, name in (
                (Priority.FOREGROUND, READ_THREADS, "reader"),
                (Priority.BACKGROUND, 1, "background reader"),
            )
        }
        self.loop = asyncio.get_running_loop()

    async def lock(self, *, create: bool = True) -> None:
        """Lock the directory, unless it is already locked. With `create`, create it if missing."""
        await self.keeper.call(lambda: self._take_lock(create=create))

    def _take_lock(self, *, create: bool) -> None:
        if self._lock is not None:
            return
        try:
            if create and not self.directory.exists():
                self.directory.mkdir(mode=0o700, parents=True)
                sync_path(self.directory.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.directory / LOCK_NAME, flags, 0o600)
        except OSError as error:
            raise translated(error, str(self.directory), "use") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise DirectoryLockedError(
                f"{self.directory} is in use by another bookie process; stop that process first, "
                "or give this bookie a directory of its own",
                path=str(self.directory),
            ) from None
        try:
            # This descriptor is kept open, so that a sync of the directory never fails because the
            # process has no descriptor left.
            self._directory_descriptor = os.open(self.directory, DIRECTORY_FLAGS)
        except OSError as error:
            os.close(descriptor)
            raise translated(error, str(self.directory), "use") from error
        self._lock = descriptor

    async def unlock(self) -> None:
        """Unlock the directory and end its threads after their queued work."""
        threads = (self.writer, self.keeper, self._background)
        # A call may run after its task was cancelled. Such a call must not change the files of the
        # next process.
        for thread in threads:
            if not thread.is_stopped:
                await thread.call(lambda: None)
        for descriptor in (self._directory_descriptor, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._directory_descriptor = self._lock = None
        for thread in threads:
            thread.stop()
        for pool in self.pools.values():
            pool.shutdown(wait=False)

    async def open(self, name: str, *, create: bool = False) -> OsFile:
        """Open a file for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        path = self.directory / name
        opening = self.keeper.call(lambda: os.open(path, flags, 0o600), on_abandoned=os.close)
        try:
            return OsFile(self, name, await opening)
        except OSError as error:
            raise translated(error, name, "open") from error

    async def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically."""
        old, new = self.directory / source, self.directory / target
        await self.call(lambda: old.replace(new), source, "rename")

    async def remove(self, name: str) -> None:
        """Remove the file with this name."""
        await self.call((self.directory / name).unlink, name, "remove")

    async def names(self) -> list[str]:
        """Return all names except the name of the lock, sorted."""
        listed = await self.call(lambda: os.listdir(self.directory), ".", "list")  # noqa: PTH208
        return sorted(name for name in listed if name != LOCK_NAME)

    async def sync_directory(self) -> None:
        """Make creations, renames and removals durable."""
        descriptor = self._directory_descriptor
        assert descriptor is not None, "lock comes first"
        await self.call(lambda: os.fsync(descriptor), ".", "sync")

    async def free_space(self) -> int:
        """Return the number of bytes that an unprivileged process can still use."""
        status = await self.call(lambda: os.statvfs(self.directory), ".", "read the free space of")
        return status.f_bavail * status.f_frsize

    async def total_space(self) -> int:
        """Return the size of the device, including the part that is reserved for the system."""
        status = await self.call(lambda: os.statvfs(self.directory), ".", "read the size of")
        return status.f_blocks * status.f_frsize

    async def taken_space(self, name: str) -> int:
        """Return the number of bytes in the blocks of a file."""
        status = await self.call((self.directory / name).lstat, name, "read the size of")
        return status.st_blocks * BLOCK_SIZE_BYTES

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes of the operating system."""
        return os.urandom(size)

    async def surviving_number(
        self, name: str, run_id: str, *, create: bool = False
    ) -> MappedNumber | None:
        """Return the number of a run from a file of the memory file system, or None."""
        number = await self.call(
            lambda: MappedNumber.open(name, run_id, create=create), name, "map"
        )
        if create and number is None:
            self._on_notice(
                f"{mapped_number.FOLDER} has no shared memory for this bookie: after a SIGKILL, "
                "nothing will prove that no entry is lost, and the bookie will not start"
            )
        return number

    async def forget_number(self, name: str) -> None:
        """Remove the number with this name from the memory file system."""
        await self.call(lambda: MappedNumber.remove(name), name, "remove")

    async def call(self, function: Callable[[], T], name: str, verb: str) -> T:
        """Run `function` in the second thread, and translate its errors."""
        try:
            return await self.keeper.call(function)
        except OSError as error:
            raise translated(error, name, verb) from error

    def thread_of(self, priority: Priority) -> OrderedThread:
        """Return the thread of a priority for all writes except the writes of groups of records."""
        return self.keeper if priority is Priority.FOREGROUND else self._background

    def allocate(self, descriptor: int, size: int) -> None:
        """Allocate blocks with fallocate, or only set the size if this call is not supported.

        libc's posix_fallocate is not used, because it may write every block.
        """
        blocks = ctypes.c_int64(0), ctypes.c_int64(size)
        while self._can_allocate and _libc.fallocate(descriptor, 0, *blocks) != 0:
            code = ctypes.get_errno()
            if code == errno.EINTR:
                continue
            if code not in _NOT_SUPPORTED:
                raise OSError(code, os.strerror(code))
            self._can_allocate = False
            self._on_notice(
                f"the file system of {self.directory} cannot allocate ahead: files grow as they "
                "are written, which makes every sync slower"
            )
        if not self._can_allocate:
            os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))

    def begin_writing(self, descriptor: int, offset: int, size: int) -> None:
        """Begin to write cached bytes to the device. If this fails, the next sync reports it."""
        if _sync_file_range is not None:
            _sync_file_range(
                descriptor, ctypes.c_int64(offset), ctypes.c_int64(size), SYNC_FILE_RANGE_WRITE
            )

    def end_writing(self, descriptor: int, offset: int, size: int) -> None:
        """Wait until written bytes are on the device or in its cache."""
        if _sync_file_range is None:
            return
        place = ctypes.c_int64(offset), ctypes.c_int64(size)
        if _sync_file_range(descriptor, *place, SYNC_FILE_RANGE_WAIT) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


class OsFile:
    """One open file."""

    def __init__(self, files: OsFileSystem, name: str, descriptor: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self._is_closed = False
        self._uses = 0  # number of running calls in threads other than the keeper's
        self._idle: asyncio.Future[None] | None = None
        self._has_failed = False
        self._is_synced_later = False  # groups were written without a sync
        # This lock is held during a wait for write-back. The kernel may report an error during this
        # wait, and reports each error only once.
        self._write_back = threading.Lock()
        self._syncing = threading.Lock()  # the kernel reports an error to only one of two syncs
        self._has_lost_pages = False  # a sync or a write-back failed; later syncs must fail too
        self._unwritten_from: int | None = None  # first byte whose write-back was not started
        self.name = name

    async def read(self, offset: int, size: int, priority: Priority = Priority.FOREGROUND) -> bytes:
        """Read up to `size` bytes in a thread for this priority."""
        pool = self._files.pools[priority]
        call = self._files.loop.run_in_executor(pool, self._read, offset, size)
        self._uses += 1
        # This coroutine may be cancelled before the call ends.
        call.add_done_callback(self._read_ended)
        try:
            return await asyncio.shield(call)
        except OSError as error:
            raise translated(error, self.name, "read") from error

    def _read_ended(self, call: asyncio.Future[bytes]) -> None:
        if not call.cancelled():
            call.exception()
        self._use_ended()

    async def _use(self, thread: OrderedThread, call: Callable[[], None], verb: str) -> None:
        """In a thread other than the keeper's, run a call that uses the descriptor.

        The use ends with the call, even if this coroutine is cancelled earlier.
        """
        self._uses += 1
        try:
            await thread.call(call, on_end=self._use_ended)
        except OSError as error:
            raise translated(error, self.name, verb) from error

    def _use_ended(self) -> None:
        self._uses -= 1
        if self._uses or self._idle is None:
            return
        if not self._idle.done():
            self._idle.set_result(None)
        elif not self._files.keeper.is_stopped:
            # The coroutine that requested the close was cancelled, so the file is closed here.
            self._files.keeper.call(lambda: os.close(self._descriptor))

    def _read(self, offset: int, size: int) -> bytes:
        return read_all(self._descriptor, offset, size)

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Read from the page cache; return None if any byte is not in the cache."""
        scratch = self._files.scratch
        data = scratch[:size] if size <= len(scratch) else memoryview(bytearray(size))
        try:
            count = os.preadv(self._descriptor, (data,), offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_CACHED:
                return None
            raise translated(error, self.name, "read") from error
        return bytes(data) if count == size else None

    async def write(
        self, offset: int, buffers: Sequence[Buffer], priority: Priority = Priority.FOREGROUND
    ) -> None:
        """Write all buffers. The bytes are not durable on return."""
        thread = self._files.thread_of(priority)
        await self._use(thread, lambda: self._write(offset, buffers), "write")

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers and sync the data, in one call to the writer thread."""
        writer = self._files.writer
        await self._use(writer, lambda: self._write_synced(offset, buffers), "write")

    async def write_in_order(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, in the writer thread and without a sync."""
        writer = self._files.writer
        await self._use(writer, lambda: self._write_in_order(offset, buffers), "write")

    def _write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        write_all(self._descriptor, offset, buffers)

    def _write_in_order(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._begin_write()
        self._is_synced_later = True
        size = sum(map(len, buffers))
        self._files.written.make_room(size)
        self._write(offset, buffers)
        self._files.written.add(self, offset, size)
        # The device writes each whole portion while later groups arrive. Smaller parts wait,
        # because the next group may write into their last page again.
        first = self._unwritten_from
        if first is None or offset < first:
            first = offset
        whole = (offset + size) // PORTION_SIZE_BYTES * PORTION_SIZE_BYTES
        if whole > first:
            self._files.begin_writing(self._descriptor, first, whole - first)
            first = whole
        self._unwritten_from = first
        self._has_failed = False

    def _begin_write(self) -> None:
        # After a failure, the kernel treats the pages as written, so a later sync would succeed
        # although data is lost. So nothing more is written.
        if self._has_failed or self._has_lost_pages:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._has_failed = True  # until the write ends

    def _write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._begin_write()
        size = self._write_portions(offset, buffers)
        # Pages are dropped before the sync, while the device is already writing.
        self._files.written.make_room(size)
        began = time.perf_counter()
        self._sync()
        self._files.on_sync(time.perf_counter() - began)
        self._files.written.add(self, offset, size)
        self._has_failed = False

    def _write_portions(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers in portions, so that the device writes while more bytes are copied."""
        portion: list[Buffer] = []
        size = total = 0
        for buffer in buffers:
            portion.append(buffer)
            size += len(buffer)
            if size >= PORTION_SIZE_BYTES:
                self._write(offset + total, portion)
                self._files.begin_writing(self._descriptor, offset + total, size)
                total += size
                portion, size = [], 0
        if portion:
            self._write(offset + total, portion)
        return total + size

    def drop_cached(self, offset: int, size: int) -> None:
        """Drop bytes from the page cache, unless the file is closed.

        Bytes that are not yet synced are first written to the device, without a sync of the device.

        Raises:
            SyncFailedError: These bytes could not be written. Later syncs of the file fail too.
        """
        if self._is_closed:
            return
        if self._is_synced_later:
            self._end_writing(offset, size)
        self._drop(offset, size)

    def _drop(self, offset: int, size: int) -> None:
        """Drop clean pages from the page cache. If `size` is 0, drop all pages after `offset`."""
        if not hasattr(os, "posix_fadvise"):
            return
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def _end_writing(self, offset: int, size: int) -> None:
        with self._write_back:
            try:
                self._files.end_writing(self._descriptor, offset, size)
            except OSError as error:
                # Another thread may have closed the file meanwhile. The file was synced before the
                # close.
                if error.errno == errno.EBADF and self._is_closed:
                    return
                self._has_lost_pages = True
                raise translated(error, self.name, "sync") from error

    def _sync(self) -> None:
        """Sync the data. Fail if any sync or write-back failed since the file was opened.

        The kernel reports an error once for each open file. After that, the pages count as written,
        so a later sync succeeds although data is lost.
        """
        with self._syncing:
            try:
                _fdatasync(self._descriptor)
            except OSError:
                self._has_lost_pages = True
                raise
        with self._write_back:  # a concurrent wait for write-back may have got the error
            if self._has_lost_pages:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def datasync(self, priority: Priority = Priority.FOREGROUND) -> None:
        """Make the file's data and size durable."""
        await self._use(self._files.thread_of(priority), self._sync, "sync")

    async def drop_cache(self, priority: Priority = Priority.FOREGROUND) -> None:
        """Drop synced bytes from the page cache, so that later reads get them from the device."""
        await self._use(self._files.thread_of(priority), lambda: self._drop(0, 0), "drop")

    async def allocate(self, size: int) -> None:
        """Reserve blocks, or only set the size if the file system cannot reserve blocks."""
        await self._files.call(
            lambda: self._files.allocate(self._descriptor, size), self.name, "allocate"
        )

    async def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        await self._files.call(lambda: os.ftruncate(self._descriptor, size), self.name, "cut")

    async def size(self) -> int:
        """Return the length of the file in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise translated(error, self.name, "read") from error

    async def data_end(self) -> int:
        """Return the end of the last extent with data, or the size if no extents are reported."""
        end = end_of_data(self._descriptor)
        return await self.size() if end is None else end

    async def close(self) -> None:
        """Close the file after the running calls that use its descriptor have ended."""
        self._is_closed = True
        if self._uses:
            self._idle = self._files.loop.create_future()
            await self._idle
        keeper = self._files.keeper
        if keeper.is_stopped:
            os.close(self._descriptor)
        else:
            # The second thread closes the file. If the file was removed, the close frees its
            # blocks, which takes milliseconds.
            await self._files.call(lambda: os.close(self._descriptor), self.name, "close")
