"""Phases, limits, events and effects of the machine of a leader log.

The host is in `ledgerlog_spark.log`. The rules are in LOGS.md#leader-logs. There are three kinds of
effects:

- A *request* has a number in `request`. The host always answers a request with exactly one reply,
  which repeats this number. Several requests may be pending. The machine waits before it retries,
  so the host need not delay a reply.
- A *command* (`AppendEntry`) has no reply of its own. The host hands the entries to the ledger's
  writer in the order of the commands. `EntriesConfirmed` reports the confirmed entries.
- An *indication* notifies the application. The last indication is `LeaderClosed` or
  `LeaderStopped`. Requests that are still pending at this time also get replies. After such a late
  reply, the machine can drop a ledger that it does not need.

Duties of the host for the writer of each ledger that `CreateLedger` created:

1. The host passes on each `EntriesConfirmed` in sequence, and before a later `LedgerBroken` or
   `CloseAnswered` of the same ledger. The host never confirms an entry that the writer withdrew.
2. The host reports the first failure of a writer with one `LedgerBroken`. After that the host
   reports only `CloseAnswered` for this ledger.
3. If `changes_ensemble` is false, the writer may not replace a bookie, so the first failed bookie
   breaks the ledger (`WriterSettings.ensemble_changes_max=0`).
4. The host keeps the payload of an append until `AppendsAcknowledged` contains the append, because
   the machine may move the append to another ledger. The offset and the time of the append stay the
   same. So the host may keep the encoded entry instead of the payload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ledgerlog_spark.errors import (
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
)
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, Start, StartTimer, TimerFired
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.log.messages import (
    HeadRead,
    LogReply,
    LogRequest,
    PagesRead,
    PagesWritten,
    Synced,
    Written,
)
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import Item, LogHead
from ledgerlog_spark.retry import RetryPolicy


class LeaderPhase(Enum):
    """The phases of a leader, from its creation to its end."""

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
    """Limits for the number and for the bytes of the unacknowledged appends."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """Delays between attempts to change the list, to create a ledger or to close a ledger. The
    number of attempts has a limit only if the leader is closing or appends wait for another ledger.
    """
    open_timeout_ms: int = 120_000
    """Maximum time from `Start` to `LeaderOpened`."""


LOST = (LedgerFencedError, LedgerClosedError, LedgerNotFoundError)
"""Errors of a writer that mean that another client fenced, closed or deleted the ledger."""


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
    """Close a ledger of this leader at its last add confirmed. The reply is `CloseAnswered`.

    The machine requests the close when no entry of the ledger is pending, or after `LedgerBroken`.
    After `LedgerBroken`, the ledger is closed without the pending entries. After an error that is
    not in `LOST`, the machine may request the close of the same ledger again.
    """

    request: int
    ledger_id: int


@dataclass(frozen=True, slots=True)
class RecoverLedger:
    """Recover a ledger of this leader that another client fenced. The reply is `CloseAnswered`.

    The reply contains the last entry of the closed ledger, even if another client closed it. The
    recovery must not close the ledger below `floor_entry_id`, the last entry that the writer
    confirmed.
    """

    request: int
    ledger_id: int
    floor_entry_id: int


@dataclass(frozen=True, slots=True)
class JoinCandidates(LogRequest["CandidatesJoined"]):
    """Create the candidate node of this client, an ephemeral node that contains the client's claim.

    The host deletes the node when the machine has ended. The outcome is `GONE` if the log was
    deleted.
    """

    claim: str


@dataclass(frozen=True, slots=True)
class ReadCandidate(LogRequest["CandidateRead"]):
    """Read whether a candidate node with this claim exists."""

    claim: str


@dataclass(frozen=True, slots=True)
class Pause(LogRequest[TimerFired]):
    """Wait for this time. Only a machine inside a leader sends this request.

    The leader replaces it with a `StartTimer`.
    """

    delay_ms: int


class AppendEntry(NamedTuple):
    """Command to append one entry to a ledger."""

    ledger_id: int
    entry_id: int
    """The id that the entry will get. The ids in each ledger are 0, 1, 2 and so on."""
    append: int
    """Number of the append, counted from 0 as in `AppendRequested`."""
    first_offset: int
    append_time_ms: int
    records: int


class AppendRequested(NamedTuple):
    """Append one entry. This event is allowed only while the machine's `can_add` is true.

    Appends are numbered from 0 in the order of these events, and get consecutive offsets.
    """

    records: int
    size_bytes: int
    """Approximate size of the stored entry, including the header."""
    now_ms: int
    """Time of the append by the store's clock.

    If this clock is set back, the times in the log still do not decrease.
    """


class EntriesConfirmed(NamedTuple):
    """All entries of the ledger up to `last_entry_id` (inclusive) are on their ack quorums."""

    ledger_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class LedgerBroken:
    """A ledger's writer failed. The writer withdrew all entries that are not confirmed."""

    ledger_id: int
    error: LedgerLogError


@dataclass(frozen=True, slots=True)
class RollRequested:
    """Continue in a new ledger as soon as possible, even if the current ledger is small and new.

    The event has no effect during a roll, or when the current ledger is empty.
    """


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop the leader now with this error.

    The open ledgers stay open until the next leader seals them.
    """

    error: LedgerLogError


@dataclass(frozen=True, slots=True)
class HeadChanged:
    """The head changed, or may have changed. The host sends this event from `Start` to the end.

    Several changes in a short time may cause only one event. A read of the head after the event
    returns a head that is at least as new as the last of these changes.
    """


@dataclass(frozen=True, slots=True)
class SessionReplaced:
    """Another session with the metadata store replaced a lost session of this client.

    The store deleted the ephemeral nodes of the lost session. The host sends this event from
    `Start` to the end.
    """


@dataclass(frozen=True, slots=True)
class CandidatesJoined(LogReply):
    """Reply to `JoinCandidates`."""


@dataclass(frozen=True, slots=True)
class CandidateRead(LogReply):
    """Reply to `ReadCandidate`, with the session of this client in which the node was read."""

    is_there: bool = False
    session_id: int = 0
    session_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class LedgerCreated:
    """Reply to `CreateLedger`. If it contains an error, the leader never uses the ledger."""

    request: int
    ledger_id: int = -1
    error: LedgerLogError | None = None


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The contents of a closed ledger. In an empty ledger, only `last_entry_id` has a meaning."""

    last_entry_id: int = NO_ENTRY
    size_bytes: int = 0
    """Number of payload bytes, as in the ledger's metadata."""
    first_offset: int = 0
    end_offset: int = 0
    append_time_ms: int = 0
    """Append time of the last entry."""

    @property
    def is_empty(self) -> bool:
        """Whether the ledger has no entries."""
        return self.last_entry_id == NO_ENTRY

    def item(self, ledger_id: int, schema_id: int) -> Item:
        """Return the item for all entries of the ledger, which has at least one entry."""
        return Item(
            ledger_id=ledger_id,
            first_entry_id=0,
            last_entry_id=self.last_entry_id,
            index_entry_id=NO_ENTRY,
            rows=self.end_offset - self.first_offset,
            size_bytes=self.size_bytes,
            first_offset=self.first_offset,
            schema_id=schema_id,
            newest_ms=self.append_time_ms,
        )


@dataclass(frozen=True, slots=True)
class LedgerSealed:
    """Reply to `SealLedger`."""

    request: int
    end: LedgerEnd = LedgerEnd()
    error: LedgerLogError | None = None


@dataclass(frozen=True, slots=True)
class CloseAnswered:
    """Reply to `CloseLedger` or `RecoverLedger`.

    Without an error, the ledger is closed at `last_entry_id`, by this client or by another client.
    An error in `LOST` means that another client fenced, closed or deleted the ledger. After any
    other error, the machine sends the request again later.
    """

    request: int
    last_entry_id: int = NO_ENTRY  # after `CloseLedger`, the last add confirmed of the writer
    size_bytes: int = 0
    error: LedgerLogError | None = None


@dataclass(frozen=True, slots=True)
class LeaderOpened:
    """This client is the leader now, and appends are allowed.

    The last open ledger in `head` is the ledger of this leader. The first append gets the end
    offset of `head`.
    """

    head: LogHead


class AppendsAcknowledged(NamedTuple):
    """The appends from `first_append` to `last_append` (inclusive) are durably in the log.

    Every append is acknowledged once, in sequence. All appends of one indication are in the same
    ledger. In this ledger, append n is the entry `last_entry_id - last_append + n`. All records
    below `end_offset` are durable.
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
    """Number of appends that are repeated, because the earlier ledger was closed without these
    appends."""


@dataclass(frozen=True, slots=True)
class ListChanged:
    """This leader changed the list; `head` is the new head."""

    head: LogHead


@dataclass(frozen=True, slots=True)
class LeaderClosed:
    """The last indication. All appends are acknowledged, and all ledgers are closed and listed."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderStopped:
    """The last indication: this leader has stopped because of an error.

    The error is `LeaderDeposedError` after another client took the log over, and `LogNotFoundError`
    after the log was deleted.
    """

    error: LedgerLogError
    end_offset: int
    """The offset after the last acknowledged record. Records with lower offsets are in the log,
    unless the log was deleted."""
    first_unknown_append: int | None
    """Number of the oldest append that was not acknowledged but may be in the log; None if there is
    no such append."""
    first_unsent_append: int
    """Number of the first append that was not sent, or whose ledger was closed without it. This
    append and all later appends are certainly not in the log."""


ListReply = Synced | HeadRead | PagesRead | PagesWritten | Written
"""A reply to a request that reads or changes the list."""

LeaderReply = (
    ListReply | LedgerSealed | LedgerCreated | CandidatesJoined | CandidateRead | TimerFired
)
"""A reply to a request of a machine inside a leader."""

LeaderEvent = (
    Start
    | AppendRequested
    | EntriesConfirmed
    | LedgerBroken
    | RollRequested
    | CloseRequested
    | GiveUp
    | HeadChanged
    | SessionReplaced
    | CandidatesJoined
    | CandidateRead
    | ListReply
    | LedgerSealed
    | LedgerCreated
    | CloseAnswered
    | TimerFired
)
LeaderIndication = (
    LeaderOpened | AppendsAcknowledged | LedgerRolled | ListChanged | LeaderClosed | LeaderStopped
)
LeaderEffect = (
    LogRequest[Any] | CloseLedger | RecoverLedger | StartTimer | AppendEntry | LeaderIndication
)
