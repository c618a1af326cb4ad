"""The port to bookies that every transport implements.

Callbacks instead of coroutines, because a task for each request costs more than the request. Each
`on_reply` is called exactly once, on the event loop's thread, never before the method returned;
deadlines and lost connections are replies too (`Code.TIMEOUT`, `Code.UNAVAILABLE`).

The last add confirmed is written, read and watched through the control service of each bookie,
whatever transport the entries use. A bookie without one (Apache's) is `Code.UNAVAILABLE` there.
`announce_lac`, which promises nothing, uses the connection of the entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledgerlog_spark.model import NO_ENTRY, BookieInfo, Code

Buffer = bytes | bytearray | memoryview
OnAdd = Callable[[Code], None]
OnRead = Callable[[Code, bytes | None], None]
OnReadBatch = Callable[[Code, Sequence[bytes]], None]
OnLac = Callable[[Code, int], None]
OnLacRise = Callable[["LacRise"], None]
OnWatchEnd = Callable[[Code], None]
CancelWatch = Callable[[], None]
ResolveBookie = Callable[[str], Awaitable[BookieInfo]]
"""Looks a bookie id up in the registration; raises BookieUnavailableError."""


@dataclass(frozen=True, slots=True)
class AddRun:
    """Entries of one ledger for one bookie, encoded once and sent without changes.

    Attributes:
        entry_ids: Rising; a `range` where the ids are evenly spaced.
        entries: For each id the buffers of the stored entry (32-byte header, digest, payload).
        master_key: 20 bytes.
        is_recovery: Sent with RECOVERY_ADD: accepted by a fenced bookie.
    """

    ledger_id: int
    entry_ids: Sequence[int]
    entries: Sequence[Sequence[Buffer]]
    master_key: bytes
    is_recovery: bool = False


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """One entry of a ledger.

    Attributes:
        entry_id: NO_ENTRY (-1) means the last entry that the bookie has.
        fence_key: Master key of a fencing read, None for a plain one.
        is_recovery: A read on behalf of recovery: on the control connection, with high priority.
    """

    ledger_id: int
    entry_id: int
    fence_key: bytes | None = None
    is_recovery: bool = False


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Consecutive entries from `first_entry_id` (inclusive); a short answer proves nothing.

    Attributes:
        count_max: At least 1.
        size_bytes_max: Maximum of the answer; the first entry is returned whatever its size.
    """

    ledger_id: int
    first_entry_id: int
    count_max: int
    size_bytes_max: int
    is_recovery: bool = False


@dataclass(frozen=True, slots=True)
class WriteLac:
    """An explicit LAC: the last confirmed entry of a ledger's writer, sent outside of an add.

    Attributes:
        last_add_confirmed: At least 0.
        master_key: 20 bytes.
    """

    ledger_id: int
    last_add_confirmed: int
    master_key: bytes


@dataclass(frozen=True, slots=True)
class WatchLac:
    """Interest in a ledger's LAC.

    Attributes:
        previous: The LAC that is known already, NO_ENTRY for none.
        entries_size_bytes_max: Maximum size of the entries that are sent with a new value; 0 for
            none.
    """

    ledger_id: int
    previous: int = NO_ENTRY
    entries_size_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class LacRise:
    """A report of a watch.

    Attributes:
        last_add_confirmed: Larger than in the report before.
        first_entry_id: The first entry after the last LAC reported.
        entries: Stored entries from `first_entry_id` on, digests not yet verified. They may end
            before `last_add_confirmed`, which proves nothing about later entries.
    """

    last_add_confirmed: int
    first_entry_id: int
    entries: Sequence[bytes] = ()


class BookieTransport(Protocol):
    """Requests to bookies by id. One instance serves all ledgers of a client."""

    def add(self, bookie_id: str, request: AddRun, timeout_ms: int, on_reply: OnAdd) -> None:
        """Store a run. OK means: durable on that bookie as its settings promise."""

    def read(self, bookie_id: str, request: ReadEntry, timeout_ms: int, on_reply: OnRead) -> None:
        """Read one stored entry, its digest not yet verified."""

    def read_batch(
        self, bookie_id: str, request: ReadBatch, timeout_ms: int, on_reply: OnReadBatch
    ) -> None:
        """Read a run of stored entries from one bookie."""

    def announce_lac(self, bookie_id: str, request: WriteLac) -> bool:
        """Pass a LAC to the watches of a bookie, as fast as possible.

        It follows the adds that were sent before. The bookie may forget it, and its arrival is not
        confirmed; use `write_lac` for a durable one. Returns False when it cannot be sent now.
        """

    def write_lac(
        self, bookie_id: str, request: WriteLac, timeout_ms: int, on_reply: OnAdd
    ) -> None:
        """Send a bookie a LAC; a smaller one than it has changes nothing. OK means: durable."""

    def read_lac(self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: OnLac) -> None:
        """Read the largest LAC that the bookie has, from any source; NO_ENTRY unless OK."""

    def watch_lac(
        self, bookie_id: str, request: WatchLac, on_rise: OnLacRise, on_end: OnWatchEnd
    ) -> CancelWatch:
        """Report the bookie's LAC when it is above `previous`, now or later, and each rise.

        Rises close together may be reported as one. A watch has no deadline. It lasts until it is
        cancelled, after which nothing is called, or until `on_end` was called, once, because the
        bookie, its connection or this transport ended. Then set another watch.
        """

    async def aclose(self) -> None:
        """Close all connections; requests still open are answered `Code.UNAVAILABLE`."""
