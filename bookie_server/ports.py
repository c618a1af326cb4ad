"""What storage needs from the world: files, clock, tasks, and one question to the metadata store.

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
    """Who waits for a read: clients, or work in the background that must not delay them."""

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
        """The same where it takes no waiting (all of it is in the page cache), else None."""

    async def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other from `offset`; not durable on return.

        Raises:
            DiskFullError: Some of the bytes may have been written.
            SyncFailedError: The same, for any other reason.
        """

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, then sync the data: durable on return. One hop for both.

        For records: nothing else that this directory does delays it. Calls of one directory are
        carried out in their order and end in it: nothing is written before what was called earlier
        is synced, and nothing at all to a file for which one of them failed.

        Raises:
            DiskFullError: Some of the bytes may have been written.
            SyncFailedError: They may or may not be on the device; this file must not be synced
                again, for a later sync reports success although the data is gone.
        """

    async def datasync(self) -> None:
        """Make the file's data and size durable.

        Raises:
            SyncFailedError: As in `write_synced`.
        """

    async def allocate(self, size: int) -> None:
        """Reserve blocks so that the file is `size` bytes long and writes need no new ones.

        Where the file system cannot, the size is set and blocks come as they are written.

        Raises:
            DiskFullError: Nothing may be relied upon.
        """

    async def truncate(self, size: int) -> None:
        """Give back what lies beyond `size`; durable at the next sync."""

    async def size(self) -> int:
        """Length of the file."""

    async def data_end(self) -> int:
        """End of what may be anything but zeros: what was allocated and not written is skipped.

        To be asked before the file is read: pages read ahead count as written.
        """

    async def close(self) -> None:
        """Let go of the file, without a sync."""


class FileSystem(Protocol):
    """The files of one directory, by plain names."""

    async def lock(self) -> None:
        """Make the directory where missing and take it for this process.

        Raises:
            DirectoryLockedError: Another process has it.
        """

    async def unlock(self) -> None:
        """Let go of the directory and of the threads that serve it."""

    async def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing. A new name is durable after `sync_directory`.

        Raises:
            MissingFileError: No such file, and `create` is false.
        """

    async def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` in one step; durable after `sync_directory`."""

    async def remove(self, name: str) -> None:
        """Forget a name; durable after `sync_directory`."""

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
        """Bytes that were never handed out before, for salts."""


class Clock(Protocol):
    """Time. Only differences of `monotonic_ms` mean anything."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as far as the machine knows."""


class Future(Awaitable[T], Protocol[T]):
    """A value that comes later; asyncio's own future is one."""

    def done(self) -> bool:
        """Whether it has a result, an error, or was cancelled."""

    def set_result(self, result: T, /) -> None:
        """Hand over the value; once."""

    def set_exception(self, error: BaseException, /) -> None:
        """Hand over an error instead; once."""

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for it."""


class Tasks(Protocol):
    """Coroutines beside the caller's."""

    def future(self) -> Future[Any]:
        """A future of this host, which any coroutine of this host can await."""

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of its own. It answers for its errors: what it raises ends the host."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back once the caller is through."""

    async def sleep(self, duration_ms: int) -> None:
        """Wait at least so long; 0 lets others run."""


class Standing(Enum):
    """What the metadata store says of this bookie and one ledger."""

    OPEN_WITH_ME = "open_with_me"
    """State OPEN, and this bookie is in the last fragment's ensemble."""
    OPEN_WITHOUT_ME = "open_without_me"
    """State OPEN, and another bookie has taken this one's place: no fence can have been lost."""
    NOT_WRITABLE = "not_writable"
    """In recovery, closed or deleted: a fence may have been lost."""
    UNKNOWN = "unknown"
    """The store could not be asked."""


class MetadataCheck(Protocol):
    """The lazy metadata check (FORMATS.md#after-state-may-have-been-lost)."""

    async def check(self, ledger_id: int) -> Standing:
        """Read the ledger's record, at least as new as the moment of the call."""


class LedgerListing(Protocol):
    """What garbage collection asks the metadata store. Unknown is never deleted."""

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int] | None:
        """Those of `ledger_ids` that a listing begun after this call does not have, rising.

        The listing may be stale, so that alone says nothing. None when there is no whole listing
        to be had.
        """

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        """Those of `ledger_ids` that have no record, each looked up by its id after a sync.

        Of which that cannot be told is left out.
        """
