"""Entries that a leader sent and that are not acknowledged, and who waits for their records."""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.log.records import Piece, Positions
from ledgerlog_spark.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.appends.batches import AppendBatches, Gathered
    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.log.entry_codec import EncodedBody
    from ledgerlog_spark.protocol.leader.messages import AppendEntry, AppendsAcknowledged


class _Sent:
    """One entry; its bytes are fixed as soon as it has an offset and a time."""

    __slots__ = ("body", "entry", "first_offset", "gathered")

    def __init__(self, gathered: Gathered, body: EncodedBody) -> None:
        self.gathered = gathered
        self.body = body
        self.first_offset = -1
        self.entry: bytes | None = None

    @property
    def is_cut(self) -> bool:
        """Whether its last record belongs to a batch that goes on in the next entry."""
        waiters = self.gathered.waiters
        return not waiters or waiters[-1][1] < self.body.count - 1


class EntriesInFlight:
    """Numbered from 0 in the order in which they were sent, as the machine counts appends.

    Attributes:
        first: Number of the oldest.
    """

    def __init__(self, log_id: str, encode: Callable[[Gathered], EncodedBody]) -> None:
        """Nothing in flight; `encode` makes an entry of what was gathered."""
        self.first = 0
        self._log_id = log_id
        self._encode = encode
        self._sent: deque[_Sent] = deque()
        self._cut: list[Piece] = []

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def end(self) -> int:
        """Number of the next entry."""
        return self.first + len(self._sent)

    @property
    def records(self) -> int:
        """In all of them."""
        return sum(sent.body.count for sent in self._sent)

    def add(self, gathered: Gathered) -> EncodedBody:
        """Take the records of the next entry; their encoded body."""
        body = self._encode(gathered)
        gathered.payloads = []  # the body has them now
        self._sent.append(_Sent(gathered, body))
        return body

    def entry_of(self, order: AppendEntry) -> bytes:
        """The entry to be stored; the same each time that it is ordered."""
        sent = self._sent[order.append - self.first]
        if sent.entry is None:
            sent.first_offset = order.first_offset
            sent.entry = sent.body.entry(
                first_offset=order.first_offset, append_time_ms=order.append_time_ms
            )
        assert sent.first_offset == order.first_offset
        return sent.entry

    def acknowledged(self, entries: AppendsAcknowledged) -> list[tuple[Any, Any]]:
        """Futures and their positions, of all appends that end in these entries."""
        first, last, ledger_id, last_entry_id, _ = entries
        assert first == self.first, (first, self.first)
        results: list[tuple[Any, Any]] = []
        for entry_id in range(last_entry_id - (last - first), last_entry_id + 1):
            sent = self._sent.popleft()
            results += self._results(sent, Piece(sent.first_offset, ledger_id, entry_id))
        self.first = last + 1
        return results

    def fail(
        self,
        error: LedgerLogError,
        waiting: AppendBatches,
        *,
        first_unknown: int,
        first_unsent: int,
    ) -> list[Gathered]:
        """Fail everything, also what was not sent yet, which is returned.

        Args:
            error: Why.
            waiting: What was not sent yet.
            first_unknown: Entries from this number on may be in the log.
            first_unsent: Entries from this number on are certainly not.
        """
        was_cut = bool(self._cut)
        sent, self._sent, self._cut = self._sent, deque(), []
        for number, one in enumerate(sent, self.first):
            is_unknown = was_cut or first_unknown <= number < first_unsent
            one.gathered.fail(error_of_append(error, is_definite=not is_unknown))
            was_cut = is_unknown and one.is_cut
        unsent: list[Gathered] = []
        while (gathered := waiting.take()) is not None:
            gathered.fail(error_of_append(error, is_definite=not was_cut))
            was_cut = was_cut and not gathered.waiters
            unsent.append(gathered)
        return unsent

    def _results(self, sent: _Sent, piece: Piece) -> list[tuple[Any, Any]]:
        log_id = self._log_id
        first, ledger_id, entry_id = piece
        pieces = (*self._cut, piece)
        results: list[tuple[Any, Any]] = [
            (
                waiter,
                Positions(log_id, range(first + at + 1 - count, first + at + 1), pieces)
                if count
                else Position(log_id, first + at, ledger_id, entry_id),
            )
            for waiter, at, count in sent.gathered.waiters
        ]
        if not sent.is_cut:
            self._cut = []
        elif results:
            self._cut = [piece]
        else:
            self._cut.append(piece)
        return results


def error_of_append(error: LedgerLogError, *, is_definite: bool) -> LedgerLogError:
    """The error of an append, which is certainly not in the log or may be."""
    found = copy.copy(error)
    found.definite = is_definite
    found.retriable = False  # this leader takes no more appends
    return found
