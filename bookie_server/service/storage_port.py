"""What the servers need of storage; LedgerStorage has this shape.

Callbacks run exactly once each, on the event loop's thread, possibly before the method returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookie_server.core.requests import AddRequest, BatchReadRequest, ReadRequest
    from ledgerlog_spark.model import Code


class EntryStorage(Protocol):
    """Adds and reads of stored entries."""

    def add(self, request: AddRequest, on_done: Callable[[Code], None]) -> None:
        """Store a run; `on_done` after it is durable, or refused."""

    def read(self, request: ReadRequest, on_done: Callable[[Code, bytes | None], None]) -> None:
        """One stored entry; fences first when the request has a key."""

    def read_batch(
        self, request: BatchReadRequest, on_done: Callable[[Code, Sequence[bytes]], None]
    ) -> None:
        """Consecutive stored entries, ending at the first that is missing."""

    def tell_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Tell watches of a LAC; it may be forgotten."""
