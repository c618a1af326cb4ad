"""The interfaces through which storage does I/O: files, clock, tasks, and the metadata check.

Everything that waits for I/O is awaitable, so the same storage code (`bookie_server/storage`) runs
under asyncio and under the deterministic simulator. For asyncio, the interfaces are implemented in
storage/device/filesystem.py and storage/device/runtime.py; for the simulator, in tests/sim/disk.py
and tests/sim/runtime.py. The storage must stay correct if the computer loses power during any
await. The interfaces do not contain threads or event loops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from ledgerlog_spark.model import LedgerMetadata, Version, Versioned

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Priority(Enum):
    """The origin of work: a client, or background work, which must not delay clients."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"


class File(Protocol):
    """One open file. Offsets and sizes are in bytes. A write is durable only after a sync."""

    @property
    def name(self) -> str:
        """The name of the file in the directory."""

    async def read(self, offset: int, size: int, priority: Priority = Priority.FOREGROUND) -> bytes:
        """Return `size` bytes from `offset`, or fewer bytes if the file ends earlier.

        Raises:
            StorageError: The device cannot read the bytes. The bytes may still exist.
        """

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Read without waiting if all bytes are in the page cache, else return None."""

    async def write(
        self, offset: int, buffers: Sequence[Buffer], priority: Priority = Priority.FOREGROUND
    ) -> None:
        """Write all buffers consecutively from `offset`. The bytes are not durable on return.

        Calls of the same priority for files of one directory run one after the other.

        Raises:
            DiskFullError: Some of the bytes may have been written.
            SyncFailedError: The write failed for another reason; some bytes may have been written.
        """

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write and sync all buffers in one call, which a worker thread runs.

        The data is durable on return.

        The journal writes with this method. This method has its own worker thread, so other work in
        the directory does not delay the journal. The calls for all files of a directory run one
        after the other: a call writes nothing before the data of all earlier calls is synced. After
        a call for a file has failed, later calls for the same file also fail, and write nothing.

        Raises:
            DiskFullError: A write had no room. Some of the bytes may have been written.
            SyncFailedError: The bytes may or may not be on the device. Later syncs of the open file
                fail too. If the file is opened again, a sync may succeed although data is lost.
        """

    async def write_in_order(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers as `write_synced` does, with the same order of calls, but sync nothing.

        Raises:
            DiskFullError: Same meaning as in `write_synced`.
            SyncFailedError: Same meaning as in `write_synced`.
        """

    async def datasync(self, priority: Priority = Priority.FOREGROUND) -> None:
        """Make the file's data and size durable. Background syncs delay no other call.

        Raises:
            SyncFailedError: Same meaning as in `write_synced`. It is also raised if the device has
                no room.
        """

    async def drop_cache(self, priority: Priority = Priority.FOREGROUND) -> None:
        """Let later reads take synced bytes from the device, and not from the page cache.

        If a write of an earlier process failed, the cache may still have the bytes of this write. A
        sync by this process then succeeds, although the bytes are not on the device.
        """

    async def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, and reserve its blocks, so writes need no new blocks.

        If the file system cannot reserve blocks, only the size is set, and writes allocate blocks.

        Raises:
            DiskFullError: After this error, the size of the file is undefined.
        """

    async def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; the new size is durable after the next sync."""

    async def size(self) -> int:
        """Return the length of the file in bytes."""

    async def data_end(self) -> int:
        """Return the offset of the end of the written part of the file. No later byte was written.

        After the file was read, the result may be too large, because the pages that the system
        read ahead count as written.
        """

    async def close(self) -> None:
        """Close the file, without a sync."""


class SurvivingNumber(Protocol):
    """A number in memory. It outlives the process, but not the operating system.

    So the number proves that the system has not lost power since the number was set.
    """

    def set(self, number: int) -> None:
        """Replace the number."""

    def get(self) -> int:
        """Return the number."""


class FileSystem(Protocol):
    """The files of one directory. Names have no path."""

    @property
    def path(self) -> str:
        """The path of the directory. A copy of a directory has another path."""

    async def lock(self, *, create: bool = True) -> None:
        """Lock the directory for this process. With `create`, first create it if it is missing.

        Raises:
            DirectoryLockedError: Another process has locked the directory.
            MissingFileError: The directory does not exist, and `create` is false.
        """

    async def unlock(self) -> None:
        """Wait for all calls, unlock the directory, and end the threads that serve it."""

    async def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. A new name is durable after `sync_directory`.

        Raises:
            MissingFileError: The file does not exist, and `create` is false.
        """

    async def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically. The change is durable after `sync_directory`."""

    async def remove(self, name: str) -> None:
        """Remove a name. The removal is durable after `sync_directory`."""

    async def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    async def sync_directory(self) -> None:
        """Make creations, renames and removals durable.

        Raises:
            SyncFailedError: The creations, renames and removals may be lost.
        """

    async def free_space(self) -> int:
        """Return the number of bytes that new files can still take."""

    async def total_space(self) -> int:
        """Return the size of the device in bytes."""

    async def taken_space(self, name: str) -> int:
        """Return the number of bytes of the device that a file takes.

        Raises:
            MissingFileError: The file does not exist.
        """

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes for a salt, different in each call."""

    async def surviving_number(
        self, name: str, run_id: str, *, create: bool = False
    ) -> SurvivingNumber | None:
        """Return the number of a run. `name` is unique on the computer.

        With `create`, the number is new and 0, and a number of another run is replaced. The result
        is None if the number does not exist, if another run has set it, or if the system has no
        such memory.
        """

    async def forget_number(self, name: str) -> None:
        """Remove the number with this name, if it exists."""


class Clock(Protocol):
    """The clocks of the computer. Only differences of `monotonic_ms` are meaningful."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment. This number never decreases."""

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch, by the computer's clock."""


class Future(Awaitable[T], Protocol[T]):
    """A value that is set later. For example, asyncio's own future fits this interface."""

    def done(self) -> bool:
        """Return whether the future has a result or an error, or was cancelled."""

    def set_result(self, result: T, /) -> None:
        """Set the value. This is allowed only once."""

    def set_exception(self, error: BaseException, /) -> None:
        """Set an error instead of a value. This is allowed only once."""

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the value or the error."""


class Tasks(Protocol):
    """Runs coroutines concurrently with the coroutine of the caller."""

    def future(self) -> Future[Any]:
        """Return a future that any coroutine of this process can await."""

    def spawn(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, None],
        priority: Priority = Priority.FOREGROUND,
    ) -> None:
        """Run a coroutine as a task. If the task raises an exception, the whole process ends."""

    async def give_way(self) -> None:
        """Let other tasks run between two portions of long work.

        All background tasks together take slices of 5 ms, which begin at least 10 ms apart. In a
        background task, the call returns immediately while a slice lasts.
        """

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the caller has returned to the event loop."""

    async def sleep(self, duration_ms: int) -> None:
        """Wait at least `duration_ms`; 0 only lets other tasks run."""


class Standing(Enum):
    """This bookie's part in a ledger, according to the metadata store."""

    OPEN_WITH_ME = "open_with_me"
    """The ledger is open, and this bookie is in the ensemble of the last fragment."""
    OPEN_WITHOUT_ME = "open_without_me"
    """The ledger is open, but another bookie has replaced this bookie in the last fragment."""
    NOT_WRITABLE = "not_writable"
    """The ledger is in recovery, closed or deleted, so this bookie may have lost a fence."""
    UNKNOWN = "unknown"
    """The metadata store could not be reached."""


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """The answer of the metadata store about a ledger.

    Attributes:
        standing: This bookie's part in the ledger.
        created: Id of the transaction that created the ledger's metadata; 0 if the metadata does
            not exist or could not be read.
    """

    standing: Standing
    created: int = 0


class MetadataCheck(Protocol):
    """Checks a ledger's metadata when necessary (FORMATS.md#after-state-may-have-been-lost)."""

    async def check(self, ledger_id: int) -> MetadataAnswer:
        """Read the ledger's metadata, including all changes before this call."""


class LockableRecords(Protocol):
    """The part of the metadata store that the release of ledgers needs. No method raises an error.

    The record of a ledger is its metadata with a version.
    """

    async def lock(self, ledger_id: int) -> bool:
        """Take the ledger's lock of re-replication.

        Return whether this bookie now holds the lock.
        """

    async def unlock(self, ledger_id: int) -> None:
        """Release the ledger's lock, if this bookie holds it."""

    async def release_left(self) -> None:
        """Release some locks that this bookie may hold because `lock` or `unlock` failed."""

    async def peek(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Return a record that may be old, or None if it does not exist or cannot be read."""

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Return the record with all changes before this call, or None as `peek` does."""

    async def touch(self, ledger_id: int, version: Version) -> bool:
        """Write the same record again if it still has `version`.

        The result is False if the record has another version, or if the outcome is unknown.
        """


class LedgerListing(Protocol):
    """The part of the metadata store that garbage collection needs."""

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int] | None:
        """List all ledgers. Return the ids of `ledger_ids` that are not listed, in ascending order.

        The listing may be old: a ledger that was created after the listing exists, but is not
        listed. The result is None if no complete listing is available.
        """

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        """Return the `ledger_ids` that have no metadata.

        The ids are looked up after a sync with the metadata store. If it cannot be determined
        whether a ledger has metadata, its id is omitted, so that its entries are kept.
        """
