"""One ledger that a leader writes: its orders go in, what became of them comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
)
from ledgerlog_spark.protocol.leader.messages import (
    CloseAnswered,
    EntriesConfirmed,
    LedgerBroken,
    LedgerOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.log.ports import LedgerWriterHandle
    from ledgerlog_spark.protocol.ledger.messages import Payload

LOST = (LedgerFencedError, LedgerClosedError, LedgerNotFoundError)
"""Somebody else recovered, closed or deleted the ledger."""


class LeaderWriter:
    """The listener of a write handle, and the one waiter of all its appends.

    The handle confirms runs of entries in order and calls `complete` once for each; the first
    failure withdraws everything that is pending, and what comes after it is not passed on. A
    handle that fails between two appends says so as well.
    """

    def __init__(self, tell: Callable[[EntriesConfirmed | LedgerBroken], None]) -> None:
        """A listener without a handle yet; `tell` receives the events."""
        self._tell = tell
        self._handle: LedgerWriterHandle | None = None
        self._is_broken = False
        self._is_speaking = False

    def adopt(self, handle: LedgerWriterHandle) -> None:
        """Set the handle that reports to this listener."""
        self._handle = handle

    def order(self, entry: Payload) -> None:
        """Append the next entry."""
        assert self._handle is not None
        self._handle.queue.add(entry, self)

    def send_now(self) -> None:
        """Send what was ordered, in this turn of the loop; unless the handle is speaking.

        Its own queue is not empty then, and it sends by itself when that is.
        """
        if not self._is_broken and not self._is_speaking:
            assert self._handle is not None
            self._handle.queue.send_now()

    async def close(self, request: int) -> CloseAnswered:
        """The answer to a `CloseLedger`."""
        assert self._handle is not None
        try:
            metadata = await self._handle.close()
        except LedgerLogError as error:
            outcome = LedgerOutcome.LOST if isinstance(error, LOST) else LedgerOutcome.FAILED
            return CloseAnswered(request, outcome, error=error)
        return CloseAnswered(
            request,
            LedgerOutcome.OK,
            last_entry_id=metadata.last_entry_id,
            size_bytes=metadata.length,
        )

    def abandon(self) -> None:
        """Stop writing, and say nothing more."""
        self._is_broken = True
        if self._handle is not None:
            self._handle.abandon()

    # --- calls of the handle, to its listener and to the waiter of its appends ---

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """Nothing waits for this: the leader bounds what is on its way."""

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Entries were confirmed, up to the last one here."""
        assert self._handle is not None
        if self._is_broken:
            return
        self._is_speaking = True
        try:
            self._tell(EntriesConfirmed(self._handle.id, results[-1][1]))
        finally:
            self._is_speaking = False

    def done(self) -> bool:
        """Whether there is nothing more to be said."""
        return self._is_broken

    def set_result(self, result: Any, /) -> None:
        """Not called: `complete` speaks for all appends."""
        raise AssertionError(result)

    def set_exception(self, exception: Any, /) -> None:
        """The handle failed, or takes no more."""
        if not self._is_broken:
            assert self._handle is not None
            self._is_broken = True
            is_lost = isinstance(exception, LOST)
            self._tell(LedgerBroken(self._handle.id, is_lost, exception))
