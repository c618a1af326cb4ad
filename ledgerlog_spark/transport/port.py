"""The port to bookies that every transport implements.

The port has callbacks instead of coroutines, because a task for each request would take more time
than the request. Each `on_reply` is called exactly once, on the event loop's thread, after the
method has returned. A missed deadline and a lost connection are also reported as replies
(`Code.TIMEOUT`, `Code.UNAVAILABLE`).

The last add confirmed (LAC) is written, read and watched through the control service of each
bookie, even if entries use another transport. Bookies of Apache BookKeeper have no control service,
so the transport answers these requests to them with `Code.UNAVAILABLE`. `announce_lac`, which
guarantees nothing, uses the connection on which entries are added.
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
OnList = Callable[[Code, Sequence[tuple[int, int]]], None]
OnLacRise = Callable[["LacRise"], None]
OnWatchEnd = Callable[[Code], None]
CancelWatch = Callable[[], None]
ResolveBookie = Callable[[str], Awaitable[BookieInfo]]
"""Reads the registration of a bookie. Raises BookieUnavailableError for an unknown bookie."""


@dataclass(frozen=True, slots=True)
class AddRun:
    """A request that stores entries of one ledger. The entries are sent as they are encoded here.

    Attributes:
        entry_ids: Ascending entry ids; a `range` if the distance between ids is constant.
        entries: For each id, the buffers of the stored entry (32-byte header, digest, payload).
        master_key: Master key of the ledger, 20 bytes.
        is_recovery: Whether the run has the flag RECOVERY_ADD, so that a bookie that fenced the
            ledger accepts the run.
    """

    ledger_id: int
    entry_ids: Sequence[int]
    entries: Sequence[Sequence[Buffer]]
    master_key: bytes
    is_recovery: bool = False


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """A request for one entry of a ledger.

    Attributes:
        entry_id: NO_ENTRY (-1) means the last entry that the bookie has.
        fence_key: Master key for a read that fences the ledger; None for a read without fencing.
        is_recovery: Whether recovery sends the read. Such a read uses the control connection, and
            has high priority.
    """

    ledger_id: int
    entry_id: int
    fence_key: bytes | None = None
    is_recovery: bool = False


NO_BATCHES = (Code.BAD_REQUEST, Code.BAD_VERSION)
"""The codes with which a bookie without batch reads, such as an old Apache bookie, answers them."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A request for consecutive entries from `first_entry_id` (inclusive) on.

    If the answer has fewer entries than `count_max`, the bookie may still have further entries.

    Attributes:
        count_max: Maximum number of entries, at least 1.
        size_bytes_max: Maximum size of the answer. A first entry that is larger is still returned.
    """

    ledger_id: int
    first_entry_id: int
    count_max: int
    size_bytes_max: int
    is_recovery: bool = False


@dataclass(frozen=True, slots=True)
class ReadSlices:
    """A request for ranges of bytes of some entries.

    If the answer has fewer entries than the request, the bookie may still have the omitted entries.

    Attributes:
        entries: Entry ids in ascending order. Each entry id has ranges of bytes, as offsets and
            lengths in the stored entry, in ascending order and without overlaps.
        size_bytes_max: Maximum size of the answer. A first entry that is larger is still returned.
    """

    ledger_id: int
    entries: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    size_bytes_max: int


@dataclass(frozen=True, slots=True)
class WriteLac:
    """A request that sends a LAC (the last confirmed entry of a ledger's writer) outside of an add.

    Attributes:
        last_add_confirmed: Entry id, at least 0.
        master_key: Master key of the ledger, 20 bytes.
    """

    ledger_id: int
    last_add_confirmed: int
    master_key: bytes


@dataclass(frozen=True, slots=True)
class WatchLac:
    """A request to watch a ledger's LAC.

    Attributes:
        previous: The LAC that the client already has; NO_ENTRY if it has no LAC.
        entries_size_bytes_max: Maximum size of the entries that are sent with a new LAC; 0 means
            that no entries are sent.
    """

    ledger_id: int
    previous: int = NO_ENTRY
    entries_size_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class LacRise:
    """A report of a new LAC, which a watch sends.

    Attributes:
        last_add_confirmed: The new LAC, which is larger than in the previous report.
        first_entry_id: The first entry after the previously reported LAC.
        entries: Stored entries from `first_entry_id` on, with digests that are not verified. If
            they end before `last_add_confirmed`, the bookie may still have the later entries.
    """

    last_add_confirmed: int
    first_entry_id: int
    entries: Sequence[bytes] = ()


class BookieTransport(Protocol):
    """Sends requests to bookies. All ledgers of a client share one instance."""

    def add(self, bookie_id: str, request: AddRun, timeout_ms: int, on_reply: OnAdd) -> None:
        """Store a run. OK means that the run is as durable as the bookie's settings guarantee."""

    def read(self, bookie_id: str, request: ReadEntry, timeout_ms: int, on_reply: OnRead) -> None:
        """Read one stored entry. The caller verifies the digest."""

    def read_batch(
        self, bookie_id: str, request: ReadBatch, timeout_ms: int, on_reply: OnReadBatch
    ) -> None:
        """Read a run of stored entries from one bookie."""

    def read_slices(
        self, bookie_id: str, request: ReadSlices, timeout_ms: int, on_reply: OnReadBatch
    ) -> None:
        """Read ranges of stored entries. The answer has the joined ranges of each entry.

        If the bookie or the transport cannot read slices, the code is `Code.BAD_REQUEST`.
        """

    def announce_lac(self, bookie_id: str, request: WriteLac) -> bool:
        """Send a LAC to the watches on a bookie, as fast as possible.

        The LAC is sent after all earlier adds. The bookie does not confirm that it has received the
        LAC, and does not store it durably; `write_lac` stores a durable LAC. Return False if the
        LAC cannot be sent now.
        """

    def write_lac(
        self, bookie_id: str, request: WriteLac, timeout_ms: int, on_reply: OnAdd
    ) -> None:
        """Store a LAC on a bookie, unless the bookie has a larger LAC.

        OK means that the LAC is durable.
        """

    def read_lac(self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: OnLac) -> None:
        """Read the largest LAC that the bookie has. If the code is not OK, the LAC is NO_ENTRY."""

    def watch_lac(
        self, bookie_id: str, request: WatchLac, on_rise: OnLacRise, on_end: OnWatchEnd
    ) -> CancelWatch:
        """Report the LAC of the bookie when it is above `previous`, and then each later increase.

        One report may cover several increases. A watch has no deadline. After a watch is cancelled,
        neither callback is called. If the bookie stops, or its connection or this transport is
        closed, `on_end` is called once. The caller may then set another watch.
        """

    async def aclose(self) -> None:
        """Close all connections. Open requests are answered with `Code.UNAVAILABLE`."""


class EntryLister(Protocol):
    """Lists the entries that bookies have.

    Only the transports to real bookies implement this protocol.
    """

    def list_entries(
        self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: OnList
    ) -> None:
        """List the entries of a ledger that one bookie has.

        The answer has the first and the last id of each stretch, ascending. `Code.BAD_REQUEST`
        means that the bookie cannot list the entries, because it is not a bookie of ledgerlog or
        because there are too many stretches. After any other code except OK, it is unknown which
        entries the bookie has.
        """
