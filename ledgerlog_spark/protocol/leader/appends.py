"""Appends of a leader that are not acknowledged yet, in the order of their offsets (LOGS.md#J7-J9).

An append first waits in a queue. Then it is assigned to a ledger, and gets the entry id in
`AppendEntry`. An append is acknowledged when this append and all earlier appends are confirmed. If
the ledger is closed without the append, the append waits again and keeps its offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ledgerlog_spark.errors import (
    DataLossError,
    LeaderDeposedError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LocalProtocolError,
    LogNotFoundError,
)
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader.entry import OFFSET_END
from ledgerlog_spark.protocol.leader.messages import (
    AppendEntry,
    AppendRequested,
    AppendsAcknowledged,
    LeaderStopped,
    LedgerEnd,
)
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window

_HAPPENED: tuple[tuple[type[LedgerLogError], str], ...] = (
    (LedgerFencedError, "another client recovers {ledger}"),
    (LedgerClosedError, "another client closed {ledger}"),
    (LedgerNotFoundError, "another client deleted {ledger}"),
    (LeaderDeposedError, "the list names ledgers of another leader"),
)


@dataclass(slots=True, eq=False, repr=False)
class LeaderLedger:
    """A ledger that this leader created."""

    ledger_id: int
    first_offset: int = 0
    """Offset of the ledger's first record; valid after the first append to the ledger."""
    entries: int = 0
    """Number of appends that were assigned to the ledger. The next entry has this number as its
    id."""
    size_bytes: int = 0
    """Size of the appends that were assigned to the ledger."""
    last_confirmed: int = NO_ENTRY
    """The last entry that the ledger's writer confirmed."""
    confirmed_end_offset: int = 0
    """The offset after the last acknowledged record of the ledger."""
    confirmed_ms: int = 0
    """Append time of the last acknowledged entry of the ledger."""
    opened_ms: int = 0
    """Time by the store's clock at which this ledger became the current ledger."""
    is_broken: bool = False
    """Whether the ledger's writer failed."""
    fence: LedgerLogError | None = None
    """The error of the writer if another client fenced, closed or deleted the ledger."""
    may_recover: bool = False
    """Whether this leader may recover the fenced ledger, because it still led the log after the
    fence (LOGS.md#J15)."""
    end: LedgerEnd | None = None
    """The contents of the ledger; None until this leader has closed the ledger."""

    def __repr__(self) -> str:
        return f"LeaderLedger({self.ledger_id}: {self.last_confirmed + 1} of {self.entries})"

    @property
    def is_contested(self) -> bool:
        """Whether the ledger was fenced, and may belong to another leader now."""
        return self.fence is not None and not self.may_recover and self.end is None

    def close_at(self, last_entry_id: int, size_bytes: int) -> None:
        """Note that the ledger was closed at its last confirmed entry."""
        assert last_entry_id < self.entries, (self, last_entry_id)
        assert last_entry_id == self.last_confirmed, (self, last_entry_id)
        self.end = LedgerEnd(
            last_entry_id=last_entry_id,
            size_bytes=size_bytes,
            first_offset=self.first_offset,
            end_offset=self.confirmed_end_offset,
            append_time_ms=self.confirmed_ms,
        )


@dataclass(slots=True, eq=False)
class PendingAppend:
    """One append, and the ledger to which it was assigned last."""

    number: int
    first_offset: int
    append_time_ms: int
    records: int
    size_bytes: int
    ledger: LeaderLedger | None = None
    entry_id: int = NO_ENTRY

    @property
    def is_confirmed(self) -> bool:
        """Whether the entry of this append is on an ack quorum."""
        return self.ledger is not None and self.entry_id <= self.ledger.last_confirmed


class LeaderAppends:
    """The queue of one leader's appends."""

    def __init__(self, log: str, window: Window) -> None:
        self._log = log
        self.next_offset = 0  # the offset that the next appended record gets
        self.end_offset = 0  # the offset after the last acknowledged record
        self.last_ms = 0  # time of the newest append; this time never decreases
        self.next_append = 0  # number of the next append
        self._window = window
        self._size_bytes = 0
        self._ordered: deque[PendingAppend] = deque()
        self._waiting: deque[PendingAppend] = deque()

    def begin(self, *, next_offset: int, last_ms: int) -> None:
        """Set the offset of the first append, and the earliest time that this append can get."""
        assert self.next_append == 0, "appends were taken before the log was led"
        self.next_offset = self.end_offset = next_offset
        self.last_ms = last_ms

    @property
    def can_add(self) -> bool:
        """Whether the window has room. The last append in the window may exceed its byte limit."""
        pending = len(self._ordered) + len(self._waiting)
        return pending < self._window.entries_max and self._size_bytes < self._window.size_bytes_max

    @property
    def is_empty(self) -> bool:
        """Whether every append is acknowledged."""
        return not self._ordered and not self._waiting

    @property
    def has_ordered(self) -> bool:
        """Whether an append is assigned to a ledger and is not acknowledged yet."""
        return bool(self._ordered)

    def deposed(self, reason: LedgerLogError) -> LeaderDeposedError:
        """Return the error of this leader after `reason` has shown that another leader took over.

        The message of `reason` is for users of single ledgers, so this error has another message.
        """
        others, then = "No other record of this leader is in it", ""
        if self.end_offset < self.next_offset:
            others = f"The records from there to offset {self.next_offset} may be in it"
            then = (
                ". Before you append these records again, read the log from offset "
                f"{self.end_offset}"
            )
        return LeaderDeposedError(
            f"log {self._log!r} has another leader, or one of its ledgers was sealed "
            f"({_happened(reason)}). The records below offset {self.end_offset} are in the log. "
            f"{others}. To continue, open the log with lead=True again{then}",
            log=self._log,
            end_offset=self.end_offset,
            pending_end_offset=self.next_offset,
        )

    def lost(self, ledger: LeaderLedger, last_entry_id: int) -> DataLossError:
        """Return the error of this leader if its ledger was closed before an acknowledged entry."""
        return DataLossError(
            f"ledger {ledger.ledger_id} of log {self._log!r} was closed at entry {last_entry_id}, "
            f"although entry {ledger.last_confirmed} was acknowledged: an operator must inspect "
            "the ledgers of the log",
            definite=False,
            log=self._log,
            ledger_id=ledger.ledger_id,
            last_entry_id=last_entry_id,
            end_offset=self.end_offset,
        )

    def deleted(self) -> LogNotFoundError:
        """Return the error of this leader after its log was deleted."""
        return LogNotFoundError(
            f"log {self._log!r} and its records up to offset {self.end_offset} were deleted while "
            "this process led the log: open it with lead=True again to create a new log",
            definite=False,
            log=self._log,
            end_offset=self.end_offset,
            pending_end_offset=self.next_offset,
        )

    def stopped(self, error: LedgerLogError) -> LeaderStopped:
        """Return the last indication of this leader, which has stopped because of `error`."""
        return LeaderStopped(
            error,
            end_offset=self.end_offset,
            first_unknown_append=self._ordered[0].number if self._ordered else None,
            first_unsent_append=self._waiting[0].number if self._waiting else self.next_append,
        )

    def add(self, event: AppendRequested) -> None:
        """Add an append to the waiting appends.

        Raises LocalProtocolError if the window is full or the number of records is wrong.
        """
        if not self.can_add:
            raise LocalProtocolError(
                "the window is full: wait until can_add is true again", log=self._log
            )
        if event.records < 1 or self.next_offset + event.records > OFFSET_END:
            raise LocalProtocolError(
                f"the append at offset {self.next_offset} has {event.records} records: an append "
                f"needs at least 1 record, and offsets must be less than {OFFSET_END}",
                log=self._log,
            )
        self.last_ms = max(self.last_ms, event.now_ms)
        self._waiting.append(
            PendingAppend(
                self.next_append, self.next_offset, self.last_ms, event.records, event.size_bytes
            )
        )
        self.next_append += 1
        self.next_offset += event.records
        self._size_bytes += event.size_bytes

    def order(self, ledger: LeaderLedger) -> Iterator[AppendEntry]:
        """Assign all waiting appends to a ledger, as its next entries."""
        waiting, self._waiting = self._waiting, deque()
        for append in waiting:
            append.ledger = ledger
            append.entry_id = ledger.entries
            if not ledger.entries:
                ledger.first_offset = append.first_offset
            ledger.entries += 1
            ledger.size_bytes += append.size_bytes
            self._ordered.append(append)
            yield AppendEntry(
                ledger.ledger_id,
                append.entry_id,
                append.number,
                append.first_offset,
                append.append_time_ms,
                append.records,
            )

    def requeue_ordered(self) -> int:
        """Make all assigned, unacknowledged appends wait again. Return the number of appends.

        A call is allowed only after the ledger was closed without these appends.
        """
        count = len(self._ordered)
        self._ordered.extend(self._waiting)
        self._waiting, self._ordered = self._ordered, deque()
        return count

    def confirm(self, ledger: LeaderLedger, last_entry_id: int) -> list[AppendsAcknowledged]:
        """Confirm the entries of a ledger up to `last_entry_id` (inclusive).

        Return the acknowledgements that these entries allow.
        """
        ledger.last_confirmed = max(ledger.last_confirmed, last_entry_id)
        acknowledged: list[AppendsAcknowledged] = []
        while self._ordered and self._ordered[0].is_confirmed:
            acknowledged.append(self._acknowledge_oldest())
        return acknowledged

    def _acknowledge_oldest(self) -> AppendsAcknowledged:
        """Acknowledge the oldest append, and the confirmed appends after it in the same ledger."""
        ordered = self._ordered
        first = last = ordered[0]
        ledger = first.ledger
        assert ledger is not None
        confirmed = ledger.last_confirmed
        while ordered and ordered[0].ledger is ledger and ordered[0].entry_id <= confirmed:
            last = ordered.popleft()
            self._size_bytes -= last.size_bytes
        self.end_offset = last.first_offset + last.records
        ledger.confirmed_end_offset = self.end_offset
        ledger.confirmed_ms = last.append_time_ms
        return AppendsAcknowledged(
            first.number, last.number, ledger.ledger_id, last.entry_id, self.end_offset
        )


def _happened(reason: LedgerLogError) -> str:
    ledger_id = reason.fields.get("ledger_id")
    ledger = "one of its ledgers" if ledger_id is None else f"ledger {ledger_id}"
    for kind, what in _HAPPENED:
        if isinstance(reason, kind):
            return what.format(ledger=ledger)
    return reason.message
