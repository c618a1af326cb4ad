"""Phases, limits, events and effects of the machine of a leader log.

The host is in `ledgerlog_spark.log`, the rules in LOGS.md#leader-logs. There are three kinds of
effects:

- A *request* has a number in `request`. The host answers it with exactly one reply that repeats the
  number, whatever happens. Several may be pending at once. The machine itself waits before it
  retries, so the host answers without delay.
- An *order* (`AppendEntry`) has no reply of its own. The host hands entries to the ledger's writer
  in the order of their orders; `EntriesConfirmed` reports the confirmed entries.
- An *indication* notifies the application. `LeaderClosed` or `LeaderStopped` is the last. Requests
    that are pending then still get replies: a ledger that is created too late is dropped.

Duties of the host towards the writer of each ledger that `CreateLedger` made:

1. `EntriesConfirmed` is passed on in order, before a later `LedgerBroken` or `CloseAnswered` of the
   same ledger, and never for an entry that the writer withdrew.
2. The first failure of a writer is one `LedgerBroken`; only `CloseAnswered` follows it.
3. With `changes_ensemble` false the writer may not replace a bookie: the first failed bookie breaks
   the ledger (`WriterSettings.ensemble_changes_max=0`).
4. The payload of an append is kept until `AppendsAcknowledged` names it. It may be ordered again,
   into another ledger, with the same offset and time, so the encoded entry can be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, Start, StartTimer, TimerFired
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.log.messages import (
    DropLedger,
    HeadRead,
    LogRequest,
    PagesRead,
    PagesWritten,
    ReadHead,
    ReadPages,
    Sync,
    Synced,
    WriteHead,
    WritePages,
    Written,
)
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.retry import RetryPolicy


class LeaderPhase(Enum):
    """Where a leader is."""

    NEW = "new"
    OPENING = "opening"
    LEADING = "leading"
    CLOSING = "closing"
    CLOSED = "closed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Limits of a leader."""

    window: Window = field(default_factory=Window)
    """The limits of `can_add`: unacknowledged appends and their bytes."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """Between attempts to change the list, to create or to close a ledger. The attempts are not
    limited while appends succeed in the current ledger, or none waits."""
    open_timeout_ms: int = 120_000
    """From `Start` to `LeaderOpened` or `LeaderStopped`."""


class LedgerOutcome(Enum):
    """Outcome of a request about a ledger.

    `FAILED` is definite only if the error in the reply is.
    """

    OK = "ok"
    LOST = "another client recovered the ledger, or closed it at another entry"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CreateLedger(LogRequest["LedgerCreated"]):
    """Create a ledger and a writer for it."""

    properties: LogProperties


@dataclass(frozen=True, slots=True)
class SealLedger(LogRequest["LedgerSealed"]):
    """Fence, recover and close a ledger of an earlier leader, and read its first and last entry."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """Close a ledger of this leader at its last add confirmed. Answered by `CloseAnswered`.

    Requested when nothing is pending in it, or after `LedgerBroken`: pending entries are then cut
    off. May be requested again for the same ledger after a `FAILED` answer.
    """

    request: int
    ledger_id: int


class AppendEntry(NamedTuple):
    """Order: append one entry to a ledger."""

    ledger_id: int
    entry_id: int
    """The id that the entry will get; dense from 0 in each ledger."""
    append: int
    """Number of the append; `AppendRequested` are counted from 0."""
    first_offset: int
    append_time_ms: int
    records: int


class AppendRequested(NamedTuple):
    """Append one entry; only while the machine's `can_add` is true.

    Appends are numbered from 0 in the order of these events, and get consecutive offsets.
    """

    records: int
    size_bytes: int
    """Approximate size of the stored entry, with its header."""
    now_ms: int
    """The store's clock. If it goes back, times in the log do not."""


class EntriesConfirmed(NamedTuple):
    """Every entry of the ledger up to and including `last_entry_id` is on its ack quorum."""

    ledger_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class LedgerBroken:
    """A ledger's writer failed, and withdrew everything that is not confirmed."""

    ledger_id: int
    is_lost: bool
    """Another client recovers or closed the ledger, or deleted it."""
    error: LedgerLogError


@dataclass(frozen=True, slots=True)
class RollRequested:
    """Continue in a new ledger as soon as possible, at any size and age.

    Nothing happens when the current ledger is empty, or during a roll.
    """


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End now with this error and close nothing; the next leader seals the open ledgers."""

    error: LedgerLogError


@dataclass(frozen=True, slots=True)
class HeadChanged:
    """The head was changed, or may have been. Sent from `Start` to the end.

    Changes close together may be one event, but none is missed: a read of the head that begins
    after this event is at least as new as the change.
    """


@dataclass(frozen=True, slots=True)
class LedgerCreated:
    """Reply to `CreateLedger`. A ledger that may or may not exist is FAILED, and never used."""

    request: int
    outcome: LedgerOutcome
    ledger_id: int = -1
    error: LedgerLogError | None = None


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The contents of a closed ledger of a leader log; all zero when it has no entries."""

    last_entry_id: int = NO_ENTRY
    size_bytes: int = 0
    """Payload bytes, as in the ledger's metadata."""
    first_offset: int = 0
    end_offset: int = 0
    append_time_ms: int = 0
    """Of the last entry."""

    @property
    def is_empty(self) -> bool:
        """Whether the ledger has no entries."""
        return self.last_entry_id == NO_ENTRY


@dataclass(frozen=True, slots=True)
class LedgerSealed:
    """Reply to `SealLedger`."""

    request: int
    outcome: LedgerOutcome
    end: LedgerEnd | None = None
    error: LedgerLogError | None = None


@dataclass(frozen=True, slots=True)
class CloseAnswered:
    """Reply to `CloseLedger`.

    Attributes:
        outcome: OK: the ledger is CLOSED at `last_entry_id`, by this writer or with the same
            result. LOST: another client decides, or decided, otherwise. FAILED: request it again
            later.
        last_entry_id: With OK; the writer's last add confirmed.
    """

    request: int
    outcome: LedgerOutcome
    last_entry_id: int = NO_ENTRY
    size_bytes: int = 0
    error: LedgerLogError | None = None


@dataclass(frozen=True, slots=True)
class LeaderOpened:
    """This is the leader: the written head lists the ledger, and appends are allowed from now."""

    head: LogHead
    ledger_id: int
    next_offset: int


class AppendsAcknowledged(NamedTuple):
    """Appends `first_append` to `last_append` (inclusive) are durably in the log.

    In order, without gaps. All of them are in one ledger: append n is its entry `last_entry_id -
    last_append + n`. Everything below `end_offset` is safe.
    """

    first_append: int
    last_append: int
    ledger_id: int
    last_entry_id: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LedgerRolled:
    """Appends go to this ledger from now on."""

    ledger_id: int
    first_offset: int
    reordered: int
    """Appends that were repeated, because the earlier ledger was closed without them."""


@dataclass(frozen=True, slots=True)
class ListChanged:
    """This leader changed the list; `head` is the new head."""

    head: LogHead


@dataclass(frozen=True, slots=True)
class LeaderClosed:
    """Everything was acknowledged and every ledger is closed and listed; the last indication."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderStopped:
    """This leader has stopped; the last indication.

    The error is `LeaderDeposedError` when another client took the log over, `LogNotFoundError` when
    it was deleted.
    """

    error: LedgerLogError
    end_offset: int
    """After the last acknowledged record; everything below is safe if the log still exists."""
    first_unknown_append: int | None
    """The oldest append that was not acknowledged but may be in the log."""
    first_unsent_append: int
    """Appends from this number on were not sent, or were cut off: certainly not in the log."""


ListReply = Synced | HeadRead | PagesRead | PagesWritten | Written
"""A reply to a request that reads or changes the list."""

OpeningReply = ListReply | LedgerSealed | LedgerCreated
LeaderEvent = (
    Start
    | AppendRequested
    | EntriesConfirmed
    | LedgerBroken
    | RollRequested
    | CloseRequested
    | GiveUp
    | HeadChanged
    | OpeningReply
    | CloseAnswered
    | TimerFired
)
LeaderRequest = (
    Sync
    | ReadHead
    | ReadPages
    | WritePages
    | WriteHead
    | DropLedger
    | CreateLedger
    | SealLedger
    | CloseLedger
    | StartTimer
)
LeaderEffect = (
    LeaderRequest
    | AppendEntry
    | LeaderOpened
    | AppendsAcknowledged
    | LedgerRolled
    | ListChanged
    | LeaderClosed
    | LeaderStopped
)
