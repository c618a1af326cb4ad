"""One ledger that a leader writes: takes its orders, and reports their results."""

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
"""Another client recovered, closed or deleted the ledger."""


class LeaderWriter:
    """The listener of a write handle, and the one waiter of all its appends.

    The handle confirms runs of entries in order and calls `complete` once for each. The first
    failure withdraws all pending entries; later results are not passed on. A handle that fails
    between two appends reports that too.
    """

    def __init__(self, report: Callable[[EntriesConfirmed | LedgerBroken], None]) -> None:
        """A listener without a handle yet; `report` receives the events."""
        self._report = report
        self._handle: LedgerWriterHandle | None = None
        self._is_broken = False
        self._is_reporting = False

    def adopt(self, handle: LedgerWriterHandle) -> None:
        """Set the handle that reports to this listener."""
        self._handle = handle

    def order(self, entry: Payload) -> None:
        """Append the next entry."""
        assert self._handle is not None
        self._handle.queue.add(entry, self)

    def send_now(self) -> None:
        """Send the ordered entries, in this turn of the loop; unless the handle is calling.

        In that case its own queue is not empty, and it sends by itself later.
        """
        if not self._is_broken and not self._is_reporting:
            assert self._handle is not None
            self._handle.queue.send_now()

    async def close(self, request: int) -> CloseAnswered:
        """The response to a `CloseLedger`."""
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
        """Stop writing, and report nothing more."""
        self._is_broken = True
        if self._handle is not None:
            self._handle.abandon()

    # --- calls of the handle, to its listener and to the waiter of its appends ---

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """Does nothing: the leader bounds the entries in flight."""

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Entries were confirmed, up to the last one here."""
        assert self._handle is not None
        if self._is_broken:
            return
        self._is_reporting = True
        try:
            self._report(EntriesConfirmed(self._handle.id, results[-1][1]))
        finally:
            self._is_reporting = False

    def done(self) -> bool:
        """Whether there is nothing more to report."""
        return self._is_broken

    def set_result(self, result: Any, /) -> None:
        """Not called: `complete` receives all results."""
        raise AssertionError(result)

    def set_exception(self, exception: Any, /) -> None:
        """The handle failed, or accepts no more entries."""
        if not self._is_broken:
            assert self._handle is not None
            self._is_broken = True
            is_lost = isinstance(exception, LOST)
            self._report(LedgerBroken(self._handle.id, is_lost, exception))
