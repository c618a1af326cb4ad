"""The events and effects of the machines of the audit.

Each effect with a `request` number gets exactly one reply, with the same number. An effect without
such a number gets no reply. `StartTimer` and `TimerFired` are defined in the messages of the ledger
machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.model import LedgerMetadata, Version


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The metadata record of one ledger, with the version at which it was read."""

    ledger_id: int
    metadata: LedgerMetadata
    version: Version

    @property
    def names(self) -> frozenset[str]:
        """All bookies that a fragment of the ledger names."""
        return frozenset(one for each in self.metadata.fragments for one in each.ensemble)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of the cluster in the store, read after a sync.

    Attributes:
        registered: Bookies that are registered, writable or read-only.
        known: Bookies that have a cookie.
        is_enabled: Whether auto-recovery is enabled in the whole cluster.
        delay_ms: Time from the loss of one bookie to the marking of its ledgers.
        delay_writes: A number that changes each time the delay is written.
    """

    registered: frozenset[str]
    known: frozenset[str]
    is_enabled: bool = True
    delay_ms: int = 0
    delay_writes: int = 0


# Requests to the store.


@dataclass(frozen=True, slots=True)
class ReadCluster:
    """Read the state of the cluster, after a sync of the store. Reply: `ClusterRead`."""

    request: int


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Read the next records with ledger ids above `after`, ascending. Reply: `RecordsRead`.

    Attributes:
        count_max: Maximum number of records.
    """

    request: int
    after: int
    count_max: int


@dataclass(frozen=True, slots=True)
class LoadRecords:
    """Read the records of these ledgers, after a sync of the store. Reply: `RecordsRead`."""

    request: int
    ledger_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class WriteMark:
    """Add bookies to the mark of a ledger in the queue of lost bookies. Reply: `NoteWritten`.

    The mark gets a new version even if it already has all these bookies.
    """

    request: int
    ledger_id: int
    bookie_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorePosition:
    """Store the position of a walk, at which a successor continues. There is no reply."""

    after: int


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """Answer to a `ReadCluster`. `state` is None if the store could not be read."""

    request: int
    state: ClusterState | None


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Answer to a `ReadRecords` or a `LoadRecords`.

    Attributes:
        is_read: Whether the store answered. If it did not, all other fields are empty.
        records: The records, with ascending ledger ids. Ledgers that do not exist are omitted.
        unreadable: Ids of records that cannot be decoded.
        last: The largest id of this page; `after` for an empty page.
        is_end: Whether there are no records after this page.
    """

    request: int
    is_read: bool
    records: Sequence[LedgerRecord] = ()
    unreadable: Sequence[int] = ()
    last: int = -1
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class NoteWritten:
    """Answer to a `WriteMark`, `WriteHole` or `WriteMove`.

    If `is_written` is false, it is unknown whether the note was written.
    """

    request: int
    is_written: bool


# Calls of the host.


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """A registration, the switch of auto-recovery, or the delay may have changed."""


@dataclass(frozen=True, slots=True)
class StoreSuspended:
    """The connection to the store was lost. The session may have ended."""


@dataclass(frozen=True, slots=True)
class StoreResumed:
    """The connection to the store was restored, with the same session."""


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session has ended, so the auditor is not elected any more, or the lease has ended."""


# Indications.


@dataclass(frozen=True, slots=True)
class BookiesLost:
    """Bookies are lost, and the auditor begins to mark their ledgers."""

    bookie_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WalkEnded:
    """A whole walk over all records has ended.

    Attributes:
        ledgers: Number of records that were read.
        marks: Number of marks that were written since the end of the previous walk.
        unreadable: Number of records that could not be decoded.
        handled: Lost bookies of which the walk has marked all ledgers.
    """

    ledgers: int
    marks: int
    unreadable: int
    handled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SteppedDown:
    """The machine has ended, because its session has ended. This is its last effect."""


AuditEffect = (
    ReadCluster
    | ReadRecords
    | LoadRecords
    | WriteMark
    | StorePosition
    | StartTimer
    | BookiesLost
    | WalkEnded
    | SteppedDown
)
AuditEvent = (
    ClusterRead
    | RecordsRead
    | NoteWritten
    | TimerFired
    | ClusterChanged
    | StoreSuspended
    | StoreResumed
    | SessionEnded
)


# Requests about copies.


class ListOutcome(Enum):
    """The outcome of a request for the list of a bookie's entries."""

    LISTED = "listed"
    UNKNOWN = "unknown"
    """The bookie did not answer, or may have lost records of the ledger."""
    UNSUPPORTED = "unsupported"
    """The bookie cannot list the entries, so only reads show which entries it has."""


@dataclass(frozen=True, slots=True)
class ListCopies:
    """Read the list of the entries of a ledger that a bookie has. Reply: `CopiesListed`."""

    request: int
    bookie_id: str
    ledger_id: int


@dataclass(frozen=True, slots=True)
class CopiesListed:
    """Answer to a `ListCopies`.

    Attributes:
        outcome: Whether the bookie listed its entries; if not, the reason why.
        ranges: The first and the last id of each stretch of entries, ascending.
    """

    request: int
    outcome: ListOutcome
    ranges: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class VerifyCopies:
    """Read entries from one bookie, and verify their digests. Reply: `CopiesVerified`.

    Attributes:
        record: The record of the ledger, which contains the digest type and the password.
        entry_ids: Ids of the entries, ascending.
    """

    request: int
    bookie_id: str
    record: LedgerRecord
    entry_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class CopiesVerified:
    """Answer to a `VerifyCopies`.

    Attributes:
        verified: Id of the last requested entry that was read, whether its copy is intact or not.
            If no entry was read, this is the id before the first requested entry.
        absent: Ids of entries that the bookie denied.
        damaged: Ids of entries whose digest is wrong.
        is_unknown: Whether the entry after `verified` could not be read, so that its copy is
            unknown.
        size_bytes: Number of bytes that were read.
    """

    request: int
    verified: int
    absent: Sequence[int] = ()
    damaged: Sequence[int] = ()
    is_unknown: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FoundHole:
    """Copies of one fragment that a registered bookie lacks, or has only as damaged copies.

    Attributes:
        bookie_id: The bookie.
        fragment_id: Id of the first entry of the fragment, or `WHOLE_LEDGER`.
        first_entry_id: Id of the first missing or damaged copy. The bookie may have intact copies
            of some entries between `first_entry_id` and `last_entry_id`.
        last_entry_id: Id of the last missing or damaged copy.
        is_damaged: Whether the bookie has the copies, but they are damaged. The bookie's list of
            entries contains damaged copies too.
    """

    bookie_id: str
    fragment_id: int
    first_entry_id: int
    last_entry_id: int
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class WriteHole:
    """Report the holes of a ledger in the queue for workers of ledgerlog. Reply: `NoteWritten`.

    Attributes:
        holes: The holes, at least one and at most `HOLES_MAX`.
    """

    request: int
    ledger_id: int
    holes: tuple[FoundHole, ...]


@dataclass(frozen=True, slots=True)
class WriteMove:
    """Report bookies whose copies of a ledger must move to other bookies. Reply: `NoteWritten`."""

    request: int
    ledger_id: int
    bookie_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadPlaces:
    """Read the places of the bookies, and the policy of placement. Reply: `PlacesRead`."""

    request: int


@dataclass(frozen=True, slots=True)
class PlacesRead:
    """Answer to a `ReadPlaces`.

    Attributes:
        is_read: Whether the store answered.
        bookies: The places of all known bookies.
        policy: The policy of the cluster.
        writable: The bookies that can get copies, in the order of preference.
    """

    request: int
    is_read: bool
    bookies: BookieMap = field(default_factory=BookieMap)
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)
    writable: Sequence[str] = ()


class CheckKind(Enum):
    """A check that is repeated. The store contains the time of its last run."""

    REPLICAS = "replicas"
    PLACEMENT = "placement"
    DIGESTS = "digests"


@dataclass(frozen=True, slots=True)
class ReadCheckTime:
    """Read the time of the last complete check and the present position. Reply: `CheckTimeRead`."""

    request: int
    kind: CheckKind


@dataclass(frozen=True, slots=True)
class CheckTimeRead:
    """Answer to a `ReadCheckTime`.

    Attributes:
        is_read: Whether the store answered.
        elapsed_ms: Time since the start of the last complete check, by the store's clock. If the
            store contains only the end of this check, this is the time since the end. The value is
            None if no check was completed.
        after: The largest ledger id that the present check has read; -1 if no check runs now.
    """

    request: int
    is_read: bool
    elapsed_ms: int | None = None
    after: int = -1


@dataclass(frozen=True, slots=True)
class StoreCheckTime:
    """Store the position of a check, at which a successor continues. There is no reply.

    Attributes:
        after: The largest ledger id that was checked.
        is_complete: Whether all ledgers were checked. The next check then begins with the first
            ledger.
    """

    kind: CheckKind
    after: int
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class CheckEnded:
    """A check of all ledgers, or of the changed ledgers, has ended.

    Attributes:
        ledgers: Number of ledgers that were checked.
        holes: Number of ledgers with holes, or with copies to move.
        size_bytes: Number of bytes that were read.
        unreadable: Number of records that could not be decoded.
    """

    kind: CheckKind
    ledgers: int
    holes: int
    size_bytes: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class CheckLate:
    """A check of all ledgers takes longer than its interval. The check continues.

    Attributes:
        elapsed_ms: Time since the start of the check, without pauses.
        interval_ms: The interval of the check.
        after: The last ledger that was checked.
    """

    kind: CheckKind
    elapsed_ms: int
    interval_ms: int
    after: int


CheckEffect = (
    ReadCluster
    | ReadRecords
    | LoadRecords
    | ListCopies
    | VerifyCopies
    | WriteHole
    | WriteMove
    | ReadPlaces
    | ReadCheckTime
    | StoreCheckTime
    | StartTimer
    | CheckEnded
    | CheckLate
    | SteppedDown
)
CheckReply = (
    ClusterRead
    | RecordsRead
    | CopiesListed
    | CopiesVerified
    | NoteWritten
    | PlacesRead
    | CheckTimeRead
    | TimerFired
)
CheckEvent = CheckReply | StoreSuspended | StoreResumed | SessionEnded
