"""Entries that a leader has sent and that are not acknowledged yet.

Each entry has the waiters of its appends. A waiter gets the positions of the records of its append.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.append_queue import AppendQueue, Gathered
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.records import Positions, RecordEntry
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.messages import AppendEntry, AppendsAcknowledged

if TYPE_CHECKING:
    from ledgerlog_spark.log.entry_codec import EncodedBody


class EntriesInFlight:
    """The entries in flight. They are numbered from 0 in the order of sending, as in the machine.

    `first` is the number of the oldest entry in flight. The records of one append can be in several
    entries. If the oldest entry in flight is not the first entry of its append, `cut` contains the
    acknowledged entries of this append.
    """

    def __init__(self, log_id: str, queue: AppendQueue) -> None:
        """Create the object without entries.

        Each run in flight in `queue` must have its encoded body.
        """
        self.first = 0
        self.cut: list[RecordEntry] = []
        self._log_id = log_id
        self._queue = queue

    @property
    def records(self) -> int:
        """Number of records in all entries in flight."""
        return sum(gathered.body.count for gathered in self._queue.in_flight)

    def entry_of(self, order: AppendEntry) -> bytes:
        """Return the bytes of the entry for one request of the machine.

        Each request for the same entry gets the same bytes.
        """
        body: EncodedBody = self._queue.in_flight[order.append - self.first].body
        return body.entry(first_offset=order.first_offset, append_time_ms=order.append_time_ms)

    def acknowledged(self, entries: AppendsAcknowledged) -> list[tuple[Any, Any]]:
        """Return the futures and positions of all appends that end in these entries."""
        first, last, ledger_id, last_entry_id, end_offset = entries
        assert first == self.first, (first, self.first)
        done = [self._queue.in_flight.popleft() for _ in range(first, last + 1)]
        offset = end_offset - sum(gathered.body.count for gathered in done)
        results: list[tuple[Any, Any]] = []
        for entry_id, gathered in enumerate(done, last_entry_id - (last - first)):
            results += self._results(gathered, RecordEntry(offset, ledger_id, entry_id))
            offset += gathered.body.count
        self.first = last + 1
        return results

    def _results(self, gathered: Gathered, last: RecordEntry) -> list[tuple[Any, Any]]:
        log_id = self._log_id
        first, ledger_id, entry_id = last
        entries = (*self.cut, last)
        waiters = gathered.waiters
        results: list[tuple[Any, Any]] = [
            (
                waiter,
                Positions(log_id, range(first + at + 1 - count, first + at + 1), entries)
                if count
                else Position(log_id, first + at, ledger_id, entry_id),
            )
            for waiter, at, count in waiters
        ]
        if waiters and waiters[-1][1] == gathered.body.count - 1:
            self.cut = []
        elif waiters:
            self.cut = [last]
        else:
            self.cut.append(last)
        return results


def error_of_append(error: LedgerLogError, *, is_definite: bool) -> LedgerLogError:
    """Return a copy of `error` for an append.

    `is_definite` states whether the records of the append are certainly not in the log
    (LOGS.md#H6).
    """
    found = copy.copy(error)
    found.definite = is_definite
    found.retriable = False  # this leader accepts no more appends
    return found
