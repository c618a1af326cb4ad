"""Requests to a bookie's storage, independent of the transport.

The field `peer` of a request names its sender. The storage uses `peer` only in its reports of
failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from ledgerlog_spark.model import (
    ENTRY_HEADER_SIZE_BYTES,
    FRAME_SIZE_BYTES_MAX,
    MASTER_KEY_SIZE_BYTES,
    RUN_ENTRIES_MAX,
    Code,
)

Buffer = bytes | bytearray | memoryview
EntryIds = range | tuple[int, ...]
OnAdd = Callable[[Code], None]
OnRead = Callable[[Code, bytes | None], None]
OnReadBatch = Callable[[Code, Sequence[bytes]], None]
OnReadSome = Callable[[Code, Sequence[int], Sequence[bytes]], None]
"""A function that gets a code, and the ids of entries with this code. If the code is OK, it also
gets the entries, in the same order."""
OnLac = Callable[[Code, int], None]

ID_MAX = (1 << 63) - 1
STRIDE_MAX = (1 << 31) - 1  # largest step of evenly spaced ids; ids with a larger step are listed
_entry_head = Struct(">qqq")  # ledger id, entry id, last add confirmed


@dataclass(slots=True)
class StoredAdd:
    """The request to store a run of entries of one ledger. All entries are stored, or none."""

    ledger_id: int
    entry_ids: EntryIds  # ascending; a `range` if the ids are evenly spaced
    lengths: tuple[int, ...]  # bytes of each stored entry
    body: Buffer  # the stored entries in order; each has a header (32 bytes), digest and payload
    master_key: bytes  # 20 bytes
    is_recovery: bool = False  # accepted even if the ledger is fenced or the bookie is read-only
    peer: object = None


@dataclass(slots=True)
class StoredRead:
    """The request to read one entry."""

    ledger_id: int
    entry_id: int  # -1 means the last stored entry
    fence_key: bytes | None = None  # master key of a fencing read; None for other reads
    is_recovery: bool = False  # the answer waits until all earlier adds of the ledger are durable
    peer: object = None


@dataclass(slots=True)
class StoredReads:
    """Reads of single entries of one ledger that arrived together.

    None of these reads sets a fence or belongs to a recovery.
    """

    ledger_id: int
    entry_ids: Sequence[int]  # ids of at least 0, in any order
    size_bytes_max: int = 1 << 62  # after this number of bytes, no further entry is read
    peer: object = None


@dataclass(slots=True)
class StoredBatchRead:
    """The request to read consecutive entries from `first_entry_id` (inclusive)."""

    ledger_id: int
    first_entry_id: int
    count_max: int  # maximum number of entries; 0 or less means no maximum
    size_bytes_max: int  # maximum size of the answer frame; the first entry may exceed it
    fence_key: bytes | None = None  # same meaning as in `StoredRead`
    peer: object = None


@dataclass(slots=True)
class StoredSliceRead:
    """The request to read byte ranges of some entries. It never fences the ledger."""

    ledger_id: int
    # (entry id, ranges) in ascending order of ids; each range is an offset and a length in the
    # stored entry; the ranges of an entry are in ascending order and do not overlap
    entries: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    size_bytes_max: int  # maximum size of the answer frame; the first entry may exceed it
    peer: object = None


class EntryStorage(Protocol):
    """The methods of `LedgerStorage` that add and read stored entries.

    Each callback runs once, on the event loop's thread, and may run before the method returns.
    """

    def add(self, request: StoredAdd, on_done: OnAdd) -> None:
        """Store a run of entries, and call `on_done` after the run is durable or refused."""

    def add_together(self, request: StoredAdd, on_done: OnAdd) -> bool:
        """Store a run of entries, each of which was sent as one add, and return True.

        If the adds may need different answers, or an answer that is not OK, do nothing and return
        False. The caller then calls `add` for each entry.
        """

    def read(self, request: StoredRead, on_done: OnRead) -> None:
        """Read one stored entry. If the request has a key, fence the ledger first."""

    def read_together(self, request: StoredReads, on_some: OnReadSome) -> int:
        """Read the requested entries from the first on, up to a limit, and return their number.

        Each call of `on_some` answers some of these entries, and each entry is answered once. The
        caller reads the remaining entries with another call.
        """

    def read_batch(self, request: StoredBatchRead, on_done: OnReadBatch) -> None:
        """Read consecutive stored entries. The answer ends before the first missing entry."""

    def read_slices(self, request: StoredSliceRead, on_done: OnReadBatch) -> None:
        """Read byte ranges of stored entries. The answer ends before the first missing entry."""

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Report a LAC, which need not be durable, to the watches of its ledger."""


def entry_head(body: Buffer, offset: int) -> tuple[int, int, int]:
    """Return ledger id, entry id and last add confirmed of the stored entry at `offset`."""
    head: tuple[int, int, int] = _entry_head.unpack_from(body, offset)
    return head


def evenly_spaced(ids: tuple[int, ...]) -> EntryIds:
    """Return evenly spaced `ids` as a `range`, to save memory. Return other ids unchanged."""
    if len(ids) <= 1:
        return ids
    first, last, step = ids[0], ids[-1], ids[1] - ids[0]
    if not 0 < step <= STRIDE_MAX or last - first != step * (len(ids) - 1):
        return ids
    even = range(first, last + 1, step)
    return even if ids == tuple(even) else ids


def inspect_add(request: StoredAdd) -> int | None:
    """Return the larger LAC of the first and the last entry of an add, or None for a malformed add.

    An add is malformed if its counts, the sum of its lengths or the order of its ids are wrong, or
    if the first or the last entry has other ids than the request. The payload is not read.
    """
    ids, lengths, ledger_id = request.entry_ids, request.lengths, request.ledger_id
    count, size = len(ids), len(request.body)
    if (
        not 1 <= count <= RUN_ENTRIES_MAX
        or len(lengths) != count
        or len(request.master_key) != MASTER_KEY_SIZE_BYTES
        or not 0 <= ledger_id <= ID_MAX
        or size > FRAME_SIZE_BYTES_MAX
        or sum(lengths) != size
        or min(lengths) < ENTRY_HEADER_SIZE_BYTES
        or not _ids_are_rising(ids)
    ):
        return None
    ledger, entry_id, lac = entry_head(request.body, 0)
    if ledger != ledger_id or entry_id != ids[0]:
        return None
    if count == 1:
        return lac
    ledger, entry_id, last_lac = entry_head(request.body, size - lengths[-1])
    if ledger != ledger_id or entry_id != ids[-1]:
        return None
    return max(lac, last_lac)


def _ids_are_rising(ids: EntryIds) -> bool:
    if ids[0] < 0 or ids[-1] > ID_MAX:
        return False
    if type(ids) is range:
        return ids.step > 0
    return all(map(int.__lt__, ids, ids[1:]))
