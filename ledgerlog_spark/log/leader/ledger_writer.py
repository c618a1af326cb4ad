"""Appends a leader's entries to one ledger, and reports the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.ports import LedgerWriterHandle
from ledgerlog_spark.protocol.leader.messages import CloseAnswered, EntriesConfirmed, LedgerBroken
from ledgerlog_spark.protocol.ledger.messages import Payload


class LeaderWriter:
    """The listener of a write handle. The same object is the waiter of all appends of the handle.

    The handle confirms runs of entries in order, and calls `complete` once for each run. After the
    first failure, all pending entries count as not written, and later results are ignored. A
    failure is reported even if no append is pending.
    """

    def __init__(self, report: Callable[[EntriesConfirmed | LedgerBroken], None]) -> None:
        """Create a listener without a handle. `report` receives the events."""
        self.handle: LedgerWriterHandle  # set before the first append
        self._report = report
        self._is_broken = False
        self._is_reporting = False

    def order(self, entry: Payload) -> None:
        """Append the next entry."""
        self.handle.queue.add(entry, self)

    def send_now(self) -> None:
        """Send the appended entries immediately, unless the handle is calling this listener.

        During such a call, the queue of the handle is not empty, and the handle itself sends the
        entries after the call.
        """
        if not self._is_broken and not self._is_reporting:
            self.handle.queue.send_now()

    async def close(self, request: int) -> CloseAnswered:
        """Close the ledger, and return the answer to the `CloseLedger` with the id `request`."""
        try:
            metadata = await self.handle.close()
        except LedgerLogError as error:
            return CloseAnswered(request, error=error)
        return CloseAnswered(request, metadata.last_entry_id, metadata.length)

    def abandon(self) -> None:
        """Stop writing to the ledger, and report no more events."""
        self._is_broken = True
        self.handle.abandon()

    # --- methods that the handle calls ---

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """Do nothing.

        This listener needs no such report, because the leader itself limits the entries in flight.
        """

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Report that all entries up to the last entry in `results` are confirmed."""
        if self._is_broken:
            return
        self._is_reporting = True
        try:
            self._report(EntriesConfirmed(self.handle.id, results[-1][1]))
        finally:
            self._is_reporting = False

    def done(self) -> bool:
        """Whether the ledger has failed or was abandoned. If so, no more events are reported."""
        return self._is_broken

    def set_result(self, result: Any, /) -> None:
        """Raise AssertionError.

        This method is never called, because `complete` receives all results.
        """
        raise AssertionError(result)

    def set_exception(self, exception: Any, /) -> None:
        """Report that the handle has failed, so that it accepts no more entries."""
        if not self._is_broken:
            self._is_broken = True
            self._report(LedgerBroken(self.handle.id, exception))
