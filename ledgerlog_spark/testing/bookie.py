"""The storage of a bookie in memory, with the interface that a bookie's connections use.

`tests/contract/test_transport.py` checks this storage and the real storage with the same tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ledgerlog_spark.model import NO_ENTRY, Code

LAC_AT = 16
"""Byte offset of the last add confirmed in a stored entry."""


class MemoryLedger:
    """The state of a ledger on one bookie."""

    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.is_fenced = False
        self.entries: dict[int, bytes] = {}
        self.lac = NO_ENTRY  # the largest last add confirmed that the bookie received


class MemoryStorage:
    """The storage of one bookie in memory. Master keys and fences work as in a real bookie.

    The storage answers OK to each add that a real bookie would accept. It is never read-only or
    busy, deletes nothing, and writes nothing to a disk.

    Attributes:
        ledgers: The ledgers by id. A test may remove a ledger, to simulate its loss.
        adds_seen: All add requests that the bookie received, in order.
    """

    def __init__(self) -> None:
        self.ledgers: dict[int, MemoryLedger] = {}
        self.watchers: dict[int, list[Callable[[int], None]]] = {}
        self.adds_seen: list[Any] = []

    def add(self, request: Any, on_done: Callable[[Code], None]) -> None:
        """Store a run of entries, or refuse the run.

        A run is refused if its master key is not the ledger's master key. In a fenced ledger, only
        runs of a recovery are stored.
        """
        self.adds_seen.append(request)
        ledger = self.ledgers.setdefault(request.ledger_id, MemoryLedger(request.master_key))
        if request.master_key != ledger.master_key:
            on_done(Code.UNAUTHORIZED)
            return
        if ledger.is_fenced and not request.is_recovery:
            on_done(Code.FENCED)
            return
        body, offset = bytes(request.body), 0
        for entry_id, length in zip(request.entry_ids, request.lengths, strict=True):
            ledger.entries[entry_id] = body[offset : offset + length]
            offset += length
        assert offset == len(body)
        (lac,) = struct.unpack_from(">q", body, LAC_AT)
        self._raise_lac(request.ledger_id, lac)
        on_done(Code.OK)

    def add_together(self, request: Any, on_done: Callable[[Code], None]) -> bool:
        """Store entries that were sent in separate adds.

        Return whether the entries were stored.
        """
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is not None and (ledger.is_fenced or request.master_key != ledger.master_key):
            return False
        self.add(request, on_done)
        return True

    def read(self, request: Any, on_done: Callable[[Code, bytes | None], None]) -> None:
        """Read one stored entry.

        If the request has a fence key, fence the ledger before the read.
        """
        ledger = self.ledgers.get(request.ledger_id)
        if request.fence_key is not None:
            if ledger is None:
                ledger = self.ledgers[request.ledger_id] = MemoryLedger(request.fence_key)
            if ledger.master_key != request.fence_key:
                on_done(Code.UNAUTHORIZED, None)
                return
            ledger.is_fenced = True
        if ledger is None:
            on_done(Code.NO_LEDGER, None)
            return
        entry_id = request.entry_id
        if entry_id == NO_ENTRY:
            entry_id = max(ledger.entries, default=NO_ENTRY)
        entry = ledger.entries.get(entry_id)
        on_done(Code.NO_ENTRY if entry is None else Code.OK, entry)

    def read_together(
        self, request: Any, on_some: Callable[[Code, Sequence[int], Sequence[bytes]], None]
    ) -> int:
        """Read entries that were requested one by one, and return the number of these entries."""
        ledger = self.ledgers.get(request.ledger_id)
        for entry_id in request.entry_ids:
            if ledger is None:
                on_some(Code.NO_LEDGER, (entry_id,), ())
            elif entry_id in ledger.entries:
                on_some(Code.OK, (entry_id,), (ledger.entries[entry_id],))
            else:
                on_some(Code.NO_ENTRY, (entry_id,), ())
        return len(request.entry_ids)

    def read_batch(self, request: Any, on_done: Callable[[Code, Sequence[bytes]], None]) -> None:
        """Read consecutive stored entries, up to a missing entry or a limit of the request."""
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None:
            on_done(Code.NO_LEDGER, ())
            return
        found: list[bytes] = []
        entry_id, size = request.first_entry_id, 36
        while entry_id in ledger.entries:
            entry = ledger.entries[entry_id]
            size += 4 + len(entry)
            if found and (len(found) >= request.count_max or size > request.size_bytes_max):
                break
            found.append(entry)
            entry_id += 1
        on_done(Code.OK if found else Code.NO_ENTRY, found)

    def read_slices(self, request: Any, on_done: Callable[[Code, Sequence[bytes]], None]) -> None:
        """Read ranges of stored entries, up to a missing entry or a limit of the request."""
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None:
            on_done(Code.NO_LEDGER, ())
            return
        found: list[bytes] = []
        size = 36
        for entry_id, ranges in request.entries:
            size += 4 + sum(length for _, length in ranges)
            entry = ledger.entries.get(entry_id)
            if entry is None or (found and size > request.size_bytes_max):
                break
            found.append(b"".join(entry[offset : offset + length] for offset, length in ranges))
        on_done(Code.OK if found else Code.NO_ENTRY, found)

    def read_lac(self, ledger_id: int, on_done: Callable[[Code, int], None]) -> None:
        """Read the largest last add confirmed that the bookie received."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            on_done(Code.NO_LEDGER, NO_ENTRY)
        else:
            on_done(Code.OK, ledger.lac)

    def write_lac(
        self, ledger_id: int, lac: int, master_key: bytes, on_done: Callable[[Code], None]
    ) -> None:
        """Store a last add confirmed that was sent without an entry."""
        ledger = self.ledgers.setdefault(ledger_id, MemoryLedger(master_key))
        if master_key != ledger.master_key:
            on_done(Code.UNAUTHORIZED)
            return
        self._raise_lac(ledger_id, lac)
        on_done(Code.OK)

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Report a last add confirmed to the watches of a ledger."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None and master_key == ledger.master_key:
            self._raise_lac(ledger_id, lac)

    def watch_lac(self, ledger_id: int, on_change: Callable[[int], None]) -> Callable[[], None]:
        """Call `on_change` whenever the LAC rises. Return a function that ends the watch."""
        watchers = self.watchers.setdefault(ledger_id, [])
        watchers.append(on_change)
        return lambda: watchers.remove(on_change) if on_change in watchers else None

    def _raise_lac(self, ledger_id: int, lac: int) -> None:
        ledger = self.ledgers[ledger_id]
        if lac > ledger.lac:
            ledger.lac = lac
            for watcher in list(self.watchers.get(ledger_id, ())):
                watcher(lac)
