"""The interfaces of storage to the world: files, clock, tasks, and the metadata check.

Everything that does I/O is awaitable, so that one implementation of `bookie_server/storage` runs
under asyncio (storage/device/filesystem.py, storage/device/runtime.py) and under the deterministic
simulator (tests/sim/disk.py, tests/sim/runtime.py). Every await is a point where the machine may
lose power. Nothing here names a thread, an event loop or an absolute path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Lane(Enum):
    """The origin of a read: clients, or background work that must not delay them."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"


class File(Protocol):
    """One open file. Offsets and sizes are bytes; a write is durable only after a sync."""

    @property
    def name(self) -> str:
        """Its name in the directory."""

    async def read(self, offset: int, size: int, lane: Lane = Lane.FOREGROUND) -> bytes:
        """Up to `size` bytes from `offset`; fewer only where the file ends.

        Raises:
            StorageError: The device cannot read them; they may still be there.
        """

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Read without waiting if all bytes are in the page cache, else return None."""

    async def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers consecutively from `offset`; not durable on return.

        Raises:
            DiskFullError: Some of the bytes may have been written.
            SyncFailedError: The same, for any other reason.
        """

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, then sync the data: durable on return. One thread hop for both.

        For records: no other work of this directory delays it. The calls of one directory run and
        end in order: nothing is written before the data of an earlier call is synced, and nothing
        at all to a file for which a call failed.

        Raises:
            DiskFullError: Some of the bytes may have been written.
            SyncFailedError: They may or may not be on the device; this file must not be synced
                again, because a later sync reports success although the data is lost.
        """

    async def datasync(self) -> None:
        """Make the file's data and size durable.

        Raises:
            SyncFailedError: As in `write_synced`.
        """

    async def allocate(self, size: int) -> None:
        """Reserve blocks so that the file is `size` bytes long and writes need no new ones.

        If the file system cannot, only the size is set, and blocks are allocated by the writes.

        Raises:
            DiskFullError: The result is undefined.
        """

    async def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; durable at the next sync."""

    async def size(self) -> int:
        """Length of the file."""

    async def data_end(self) -> int:
        """Return the end of the bytes that may not be zeros; unwritten allocated bytes are none.

        Call it before the file is read: pages that were read ahead count as written.
        """

    async def close(self) -> None:
        """Close the file, without a sync."""


class FileSystem(Protocol):
    """The files of one directory, by plain names."""

    async def lock(self) -> None:
        """Create the directory if missing and lock it for this process.

        Raises:
            DirectoryLockedError: Another process has it.
        """

    async def unlock(self) -> None:
        """Unlock the directory and end the threads that serve it."""

    async def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing. A new name is durable after `sync_directory`.

        Raises:
            MissingFileError: No such file, and `create` is false.
        """

    async def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically; durable after `sync_directory`."""

    async def remove(self, name: str) -> None:
        """Remove a name; durable after `sync_directory`."""

    async def names(self) -> list[str]:
        """All names, sorted."""

    async def sync_directory(self) -> None:
        """Make creations, renames and removals durable.

        Raises:
            SyncFailedError: They may be lost.
        """

    async def free_space(self) -> int:
        """Bytes that new files can still take."""

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that were never returned before, for salts."""


class Clock(Protocol):
    """Time. Only differences of `monotonic_ms` are meaningful."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment; never decreases."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, by the machine's clock."""


class Future(Awaitable[T], Protocol[T]):
    """A value that comes later; asyncio's own future is one."""

    def done(self) -> bool:
        """Whether it has a result, an error, or was cancelled."""

    def set_result(self, result: T, /) -> None:
        """Set the value; once."""

    def set_exception(self, error: BaseException, /) -> None:
        """Set an error instead; once."""

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for it."""


class Tasks(Protocol):
    """Coroutines that run beside the caller's."""

    def future(self) -> Future[Any]:
        """Return a future that any coroutine of this host can await."""

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task. An exception that it raises ends the host."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back after the caller has returned to the loop."""

    async def sleep(self, duration_ms: int) -> None:
        """Wait at least this long; 0 lets other tasks run."""


class Standing(Enum):
    """This bookie's part in a ledger, by the metadata store."""

    OPEN_WITH_ME = "open_with_me"
    """State OPEN, and this bookie is in the last fragment's ensemble."""
    OPEN_WITHOUT_ME = "open_without_me"
    """State OPEN, and another bookie has taken this one's place: no fence can have been lost."""
    NOT_WRITABLE = "not_writable"
    """In recovery, closed or deleted: a fence may have been lost."""
    UNKNOWN = "unknown"
    """The store could not be reached."""


class MetadataCheck(Protocol):
    """The lazy metadata check (FORMATS.md#after-state-may-have-been-lost)."""

    async def check(self, ledger_id: int) -> Standing:
        """Read the ledger's metadata, at least as new as the moment of the call."""


class LedgerListing(Protocol):
    """The metadata store as garbage collection needs it. Unknown ledgers are never deleted."""

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int] | None:
        """Return those of `ledger_ids` that a listing begun after this call lacks, ascending.

        The listing may be stale, so absence from it proves nothing. Returns None when no complete
        listing is available.
        """

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        """Return those of `ledger_ids` without metadata, each looked up by its id after a sync.

        Ledgers whose state cannot be determined are omitted.
        """
