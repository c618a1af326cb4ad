"""Limits the number of open files of a directory.

By default, a bookie has a file for each 256 MiB of entries, but a process may open only a limited
number of files. So a finished file is opened when it is read, and closed when another file needs
its descriptor. The storage opens all its files through a pool, which counts the open files.
`close_all` closes all files.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from bookie_server.errors import TooManyFilesError, freed
from bookie_server.ports import Buffer, File, FileSystem, Future, Priority, Tasks
from bookie_server.storage.wake_ups import settle

T = TypeVar("T")

OPEN_RETRY_MS = 100
OPEN_TRIES_MAX = 20


class FilePool:
    """A FileSystem that limits the number of open files of another FileSystem.

    The limit is at least 8.
    """

    def __init__(self, files: FileSystem, tasks: Tasks, open_max: int) -> None:
        self._files = files
        self.tasks = tasks
        self._open_max = open_max
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self._waiting: deque[Future[None]] = deque()
        self._is_closed = False
        self.open_count = 0  # files that are open, being opened or being closed
        self.opened = 0  # number of times that a file was opened
        self.path = files.path
        self.lock = files.lock
        self.unlock = files.unlock
        self.rename = files.rename
        self.remove = files.remove
        self.names = files.names
        self.sync_directory = files.sync_directory
        self.free_space = files.free_space
        self.total_space = files.total_space
        self.taken_space = files.taken_space
        self.random_bytes: Callable[[int], bytes] = files.random_bytes
        self.surviving_number = files.surviving_number
        self.forget_number = files.forget_number

    @property
    def held_names(self) -> list[str]:
        """The sorted names of the files that stay open even if other files need descriptors."""
        return sorted(file.name for file in self._open if file.is_held)

    def at(self, name: str) -> PooledFile:
        """Return an existing file. The pool opens the file at each use if it is not open."""
        return PooledFile(self, name)

    async def open(self, name: str, *, create: bool = False) -> PooledFile:
        """Open a file for reading and writing. The file stays open until `close` or `may_close`."""
        file = PooledFile(self, name, is_held=True)
        await self.open_now(file, create=create)
        return file

    async def open_now(self, file: PooledFile, *, create: bool = False) -> File:
        """Open a file unless it is open.

        The caller must have increased `uses` or set `is_held`, so that the pool does not close the
        file again before the caller uses it.
        """
        while file.opened is None:
            if file.opening is not None:
                # Each waiter has its own future, because a cancelled waiter cancels its future.
                waiting: Future[None] = self.tasks.future()
                file.opening.append(waiting)
                await waiting
                continue
            if file.is_closed or self._is_closed:
                raise freed(file.name)
            file.opening = []
            try:
                await self._reserve()
                try:
                    file.opened = await self._open_patiently(file.name, create=create)
                except BaseException:
                    self._give_back()
                    raise
                self.opened += 1
                self._open[file] = None
            finally:
                others, file.opening = file.opening, None
                settle(others)
            await self._close_if_late(file)
        return file.opened

    async def _close_if_late(self, file: PooledFile) -> None:
        """Close a file that was opened while `close_all` ran."""
        if self._is_closed:
            await self.close(file)

    async def close(self, file: PooledFile) -> None:
        """Close a file that is not in use, unless it is already closed."""
        opened, file.opened = file.opened, None
        if opened is None:
            return
        self._open.pop(file, None)
        try:
            await opened.close()
        finally:
            self._give_back()

    async def close_all(self) -> None:
        """Close every file after its running operations. From the call on, no file is opened."""
        self._is_closed = True
        for file in list(self._open):
            await file.close()

    async def _reserve(self) -> None:
        """Wait until one more file may be open. If necessary, close a file that is not in use."""
        while self.open_count >= self._open_max:
            victim = self._victim()
            if victim is None:
                waiting: Future[None] = self.tasks.future()
                self._waiting.append(waiting)
                await waiting
            else:
                await self.close(victim)
        self.open_count += 1

    def _give_back(self) -> None:
        self.open_count -= 1
        self.wake()

    def wake(self) -> None:
        """Wake the next coroutine that waits in `_reserve`."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _victim(self) -> PooledFile | None:
        """Return a file not used since the last search, or None if all files are in use or held."""
        for _ in range(2 * len(self._open)):
            file = next(iter(self._open))
            self._open.move_to_end(file)
            if file.uses or file.is_held:
                continue
            if not file.was_used:
                return file
            file.was_used = False
        return None

    async def _open_patiently(self, name: str, *, create: bool) -> File:
        """Open a file. If the system has no descriptor, close another file, or wait and retry."""
        tries = 0
        while True:
            try:
                return await self._files.open(name, create=create)
            except TooManyFilesError:
                tries += 1
                victim = self._victim()
                if tries == OPEN_TRIES_MAX:
                    raise
                if victim is not None:
                    await self.close(victim)
                else:
                    await self.tasks.sleep(OPEN_RETRY_MS)


@dataclass(slots=True, eq=False)
class PooledFile:
    """The File port for a file of a pool. Each operation opens the file if it is not open."""

    _pool: FilePool
    name: str
    opened: File | None = None  # the open file; None while the file is not open
    opening: list[Future[None]] | None = None  # coroutines that wait until the file is open
    uses: int = 0  # number of running operations
    is_held: bool = False  # the file stays open even if another file needs a descriptor
    was_used: bool = False  # used since the pool last searched for a file to close
    is_closed: bool = False  # closed permanently
    pins: int = 0  # number of running readings that have read the file from the device
    on_unpinned: Callable[[], None] | None = None  # called once when `pins` becomes 0
    _idle: list[Future[None]] = field(default_factory=list)

    def may_close(self) -> None:
        """Allow the pool to close the file, because no more records are written to the file."""
        self.is_held = False
        self._pool.wake()

    def unpin(self) -> None:
        """Note that a reading has ended. If it was the last reading, call `on_unpinned`."""
        self.pins -= 1
        if not self.pins and self.on_unpinned is not None:
            callback, self.on_unpinned = self.on_unpinned, None
            callback()

    async def _run(self, operation: Callable[[File], Awaitable[T]]) -> T:
        self.uses += 1
        self.was_used = True
        try:
            return await operation(self.opened or await self._pool.open_now(self))
        finally:
            self.uses -= 1
            if not self.uses:
                settle(self._idle)
                self._pool.wake()

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Read from the page cache; return None if the file is not open or a byte is not cached."""
        if self.opened is None:
            return None
        self.was_used = True
        return self.opened.read_now(offset, size)

    async def read(self, offset: int, size: int, priority: Priority = Priority.FOREGROUND) -> bytes:
        """Return `size` bytes from `offset`, or fewer bytes if the file ends earlier."""
        return await self._run(lambda file: file.read(offset, size, priority))

    async def write(
        self, offset: int, buffers: Sequence[Buffer], priority: Priority = Priority.FOREGROUND
    ) -> None:
        """Write all buffers. The bytes are not durable on return."""
        await self._run(lambda file: file.write(offset, buffers, priority))

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers and sync the data."""
        assert self.opened is not None, "the file must be open before a synced write"
        await self.opened.write_synced(offset, buffers)

    async def write_in_order(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers in the order of the calls, without a sync."""
        assert self.opened is not None, "the file must be open before a write in order"
        await self.opened.write_in_order(offset, buffers)

    async def datasync(self, priority: Priority = Priority.FOREGROUND) -> None:
        """Make the file's data and size durable."""
        await self._run(lambda file: file.datasync(priority))

    async def drop_cache(self, priority: Priority = Priority.FOREGROUND) -> None:
        """Drop synced bytes from the page cache, so that later reads get them from the device."""
        await self._run(lambda file: file.drop_cache(priority))

    async def allocate(self, size: int) -> None:
        """Reserve blocks so that the file is `size` bytes long."""
        await self._run(lambda file: file.allocate(size))

    async def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        await self._run(lambda file: file.truncate(size))

    async def size(self) -> int:
        """Return the length of the file in bytes."""
        return await self._run(lambda file: file.size())

    async def data_end(self) -> int:
        """Return the end of the written part of the file (see `File.data_end`)."""
        return await self._run(lambda file: file.data_end())

    async def close(self) -> None:
        """Close the file permanently, after its running operations."""
        self.is_closed = True
        while self.uses:
            idle = self._pool.tasks.future()
            self._idle.append(idle)
            await idle
        await self._pool.close(self)


class Pins:
    """The files that one call of the storage reads. Even a freed file stays until the call ends.

    If a file is freed after a reading has found an entry in it, and before the first read from the
    device, the reading gets FreedFileError and searches for the entry again.
    """

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[PooledFile, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        files, self._files = self._files, {}
        for file in files:
            file.unpin()

    def add(self, file: PooledFile) -> None:
        """Keep a file from being freed until the end of the reading."""
        if file not in self._files:
            self._files[file] = None
            file.pins += 1
