"""Entries that a leader sent and that are not acknowledged, with the waiters of their records."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.log.records import Positions, RecordEntry
from ledgerlog_spark.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.append_queue import AppendQueue, Gathered
    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.log.entry_codec import EncodedBody
    from ledgerlog_spark.protocol.leader.messages import AppendEntry, AppendsAcknowledged


class _Sent:
    """One entry; its bytes are fixed as soon as it has an offset and a time."""

    __slots__ = ("body", "entry", "first_offset")

    def __init__(self, body: EncodedBody) -> None:
        self.body = body
        self.first_offset = -1
        self.entry: bytes | None = None


class EntriesInFlight:
    """Numbered from 0 in the order in which they were sent, as the machine counts appends.

    `first` is the number of the oldest. `cut` has the entries of the batch that continues in it.
    """

    def __init__(
        self, log_id: str, encode: Callable[[Gathered], EncodedBody], queue: AppendQueue
    ) -> None:
        """Nothing in flight; `encode` builds an entry of the appends that `queue` gathered."""
        self.first = 0
        self.cut: list[RecordEntry] = []
        self._log_id = log_id
        self._encode = encode
        self._queue = queue

    @property
    def records(self) -> int:
        """Number of records in all of them."""
        return sum(gathered.body.body.count for gathered in self._queue.in_flight)

    def add(self, gathered: Gathered) -> EncodedBody:
        """Add the records of the next entry; returns their encoded body."""
        body = self._encode(gathered)
        gathered.payloads = []  # the body has them now
        gathered.body = _Sent(body)
        return body

    def entry_of(self, order: AppendEntry) -> bytes:
        """The entry to store; the same each time that the machine orders it."""
        sent: _Sent = self._queue.in_flight[order.append - self.first].body
        if sent.entry is None:
            sent.first_offset = order.first_offset
            sent.entry = sent.body.entry(
                first_offset=order.first_offset, append_time_ms=order.append_time_ms
            )
        assert sent.first_offset == order.first_offset
        return sent.entry

    def acknowledged(self, entries: AppendsAcknowledged) -> list[tuple[Any, Any]]:
        """Futures and positions of all appends that end in these entries."""
        first, last, ledger_id, last_entry_id, _ = entries
        assert first == self.first, (first, self.first)
        results: list[tuple[Any, Any]] = []
        for entry_id in range(last_entry_id - (last - first), last_entry_id + 1):
            gathered = self._queue.in_flight.popleft()
            results += self._results(
                gathered, RecordEntry(gathered.body.first_offset, ledger_id, entry_id)
            )
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
        if waiters and waiters[-1][1] == gathered.body.body.count - 1:
            self.cut = []
        elif waiters:
            self.cut = [last]
        else:
            self.cut.append(last)
        return results


def error_of_append(error: LedgerLogError, *, is_definite: bool) -> LedgerLogError:
    """The error of an append, which is certainly not in the log or may be in it."""
    found = copy.copy(error)
    found.definite = is_definite
    found.retriable = False  # this leader takes no more appends
    return found
