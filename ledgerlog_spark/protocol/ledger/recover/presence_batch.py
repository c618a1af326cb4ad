"""Recovery's batches: they show entries present, never absent.

Only fencing reads of an entry itself show its absence. So a batch need not fence, and a short, late
or lost batch only costs time (PROTOCOL.md#C2, PROTOCOL.md#C8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.messages import SendReadBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgerlog_spark.protocol.ledger.messages import BatchReplied
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers

LAST_ID = (1 << 63) - 1


class PresenceBatches:
    """One batch at a time, from the member with the most entries."""

    def __init__(
        self,
        *,
        ensemble: tuple[str, ...],
        members: Sequence[int],
        last_entry_ids: Mapping[int, int],  # by index, as reported when it was fenced
        entries_max: int,
        size_bytes_max: int,
        numbers: RequestNumbers,
    ) -> None:
        self.is_refused = False  # a bookie does not support batches
        self._current = 0
        self._ensemble = ensemble
        self._last_entry_ids = last_entry_ids
        # Stable: among equals the preference stays.
        self._order = sorted(members, key=lambda index: -last_entry_ids.get(index, -1))
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._numbers = numbers
        self._sent: dict[int, int] = {}
        self._is_slow = False

    @property
    def is_out(self) -> bool:
        """Whether a batch is pending."""
        return self._current != 0

    def ends_before(self, entry_id: int) -> bool:
        """Whether the member for the next batch had no entry from `entry_id` on."""
        return entry_id > self._last_entry_ids.get(self._order[0], LAST_ID)

    def request(self, first_entry_id: int) -> SendReadBatch:
        """Request everything from `first_entry_id` on, within the limits of a batch."""
        index = self._order[0]
        self._current = number = self._numbers.next()
        self._sent[number] = index
        self._is_slow = False
        return SendReadBatch(
            number,
            self._ensemble[index],
            index,
            first_entry_id,
            self._entries_max,
            self._size_bytes_max,
            is_recovery=True,
        )

    def take_reply(self, reply: BatchReplied, first_entry_id: int) -> EntryBatch | None:
        """Entries from `first_entry_id` on without gaps, None when there are none.

        Late answers count too: an entry that a bookie had is present.
        """
        index = self._sent.pop(reply.request)
        if reply.request == self._current:
            self._current = 0
        if reply.code is Code.BAD_REQUEST:
            self.is_refused = True
        if reply.code is not Code.OK:
            self._order.remove(index)
            self._order.append(index)
        if not reply.entries:
            return None
        entries = EntryBatch.of(reply.entries)
        if entries.first_entry_id > first_entry_id:
            return None
        return entries.between(first_entry_id, LAST_ID)

    def awaits(self, reply: BatchReplied) -> bool:
        """Whether it is the answer to one of these batches."""
        return reply.request in self._sent

    def prefer(self, index: int) -> None:
        """Use this member next: it had an entry that the others did not have."""
        self._order.remove(index)
        self._order.insert(0, index)

    def tick(self) -> bool:
        """Abandon a batch that was already pending at the last tick; whether there was one."""
        if self.is_out and self._is_slow:
            self._current = 0
            return True
        self._is_slow = self.is_out
        return False
