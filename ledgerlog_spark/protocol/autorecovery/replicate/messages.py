"""Effects and replies of `LedgerReplication`.

Each effect is a request, which gets one reply with the same number. Only the last effect,
`JobEnded`, gets no reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ledgerlog_spark.model import NO_ENTRY, Code, Version
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from ledgerlog_spark.protocol.ledger.messages import (
    CasMetadata,
    Failure,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    Payload,
    StartTimer,
    TimerFired,
)
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

EntryRange = tuple[int, int]
"""The first and the last entry id of a range, both inclusive."""

WHOLE_LEDGER = -1
"""Value of a `first_entry_id` that means all fragments of the ledger, not one fragment."""


class TaskQueue(Enum):
    """The queue from which a ledger was taken."""

    MARK = "mark"
    HOLE = "hole"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class DamagedCopies:
    """Damaged copies of a registered bookie. The bookie's list of entries contains these copies.

    Attributes:
        bookie_id: Id of the bookie; "" means every member.
        first_entry_id: First entry of the fragment, or `WHOLE_LEDGER`.
        ranges: The damaged entries. If there are no ranges, all copies of entries of the fragment
            that the bookie has count as damaged.
    """

    bookie_id: str
    first_entry_id: int
    ranges: tuple[EntryRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a job: the mark or the note of one ledger in a queue.

    Attributes:
        version: The version that the mark or the note had before the lock was taken.
        lost: The bookies that were lost, if the task is a mark.
        damaged: The damaged copies, if the task is a note of holes. The lists of the bookies show
            the missing copies.
        moves: The bookies that must be replaced, if the task is a note of moves. Each bookie has
            the first entry of the fragment, or `WHOLE_LEDGER`.
    """

    queue: TaskQueue
    version: Version
    lost: frozenset[str] = frozenset()
    damaged: tuple[DamagedCopies, ...] = ()
    moves: frozenset[tuple[str, int]] = frozenset()


class Copy(NamedTuple):
    """One stored entry. The host has verified its digest if the ledger has digests."""

    entry_id: int
    length: int
    payload: Payload
    stored: bytes | memoryview


@dataclass(frozen=True, slots=True)
class UnreadableEntries:
    """Consecutive entries that no bookie returned.

    Attributes:
        is_lost: Whether every bookie of the write set denied the entries both before and after a
            sync.
        answers: Pairs of a bookie id and the answer of this bookie.
    """

    first_entry_id: int
    last_entry_id: int
    is_lost: bool
    answers: tuple[tuple[str, Code], ...]


class JobOutcome(Enum):
    """The reason why a job ended.

    After `HEALED` and `DELETED`, the task is deleted. After `NOTHING`, no task exists. After other
    outcomes, the task is tried again.
    """

    HEALED = "healed"
    DELETED = "the ledger does not exist"
    NOTHING = "the queue does not contain the ledger"
    LOCKED = "another worker has the ledger"
    NO_SPARE = "no bookie can take a copy"
    WAITING = "a member of the ledger is unavailable, or its list of entries is unknown"
    UNREADABLE = "entries could not be read from any bookie"
    COPIES_DIFFER = "copies without a digest differ"
    NO_KEY = "the metadata has no password, so no entry can be added"
    TARGET_FAILED = "the bookies that were chosen for a copy failed"
    RECOVERY_FAILED = "the ledger could not be closed"
    CONFLICTS = "other clients changed the ledger too often"
    UNAVAILABLE = "the metadata store did not answer"
    UNREADABLE_RECORD = "the metadata of the ledger cannot be read"
    CHANGED = "the task or the record has changed during the job"
    CRASHED = "a defect of the worker ended the job"

    @property
    def ends_task(self) -> bool:
        """Whether the task is done, so that it is deleted."""
        return self in (JobOutcome.HEALED, JobOutcome.DELETED, JobOutcome.NOTHING)


# Effects.


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Load the task of the ledger, after a sync. Reply: `TaskLoaded`."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class TakeLock:
    """Take the lock of the ledger in the current session. Reply: `LockTaken`.

    All later requests of the job belong to the session that took the lock. When this session ends,
    the host drops the job.
    """

    request: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseLock:
    """Release the lock. Reply: `LockReleased`."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class ListRegistered:
    """List the registered bookies, after a sync. Reply: `RegisteredListed`."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class ListEntries:
    """List the entries of the ledger that a bookie has. Reply: `EntriesListed`."""

    bookie_id: str
    request: int = 0


@dataclass(frozen=True, slots=True)
class ForceEntries:
    """Sync all entries of the ledger that the bookie has received. Reply: `EntriesForced`.

    `entry_id` must be an entry that the bookie has.
    """

    bookie_id: str
    entry_id: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReadCopies:
    """Read consecutive entries from one bookie, without a fence. Reply: `CopiesRead`."""

    bookie_id: str
    first_entry_id: int
    count_max: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class AddCopies:
    """Store unchanged copies on a bookie, with recovery adds. Reply: `CopiesAdded`."""

    bookie_id: str
    copies: tuple[Copy, ...]
    request: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Delete the unchanged task, in the session that took the lock. Reply: `TaskDeleted`.

    Attributes:
        version: The version that the task must still have.
        record: The version of the ledger's record, which must not have changed; None if the ledger
            is deleted.
    """

    version: Version
    record: Version | None
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReportUnreadable:
    """Store a report of the unreadable entries, or delete it if there are none.

    Reply: `Reported`.
    """

    entries: tuple[UnreadableEntries, ...]
    request: int = 0


@dataclass(frozen=True, slots=True)
class MeasureQuiet:
    """Measure the time without a new entry in an open ledger. Reply: `QuietMeasured`."""

    bookies: tuple[str, ...]
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReadFloor:
    """Read the last entry of the ledger that a log lists. Reply: `FloorRead`."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class RecoverForCopies:
    """Fence the ledger, and close it at entry `floor` or later. Reply: `LedgerRecovered`."""

    floor: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job has ended, and does not have the lock of the ledger any more.

    Attributes:
        detail: A text for an operator, with the bookie or the reason.
        entries_copied: Number of entries that the job stored on bookies.
        bytes_copied: Number of the stored bytes of these entries.
        replaced: Number of members that the job replaced in the record.
    """

    outcome: JobOutcome
    detail: str = ""
    entries_copied: int = 0
    bytes_copied: int = 0
    replaced: int = 0


Request = (
    LoadTask
    | TakeLock
    | ReleaseLock
    | LoadMetadata
    | ListRegistered
    | ListEntries
    | ForceEntries
    | ReadCopies
    | AddCopies
    | ReadIdentities
    | CasMetadata
    | DeleteTask
    | ReportUnreadable
    | MeasureQuiet
    | ReadFloor
    | RecoverForCopies
    | StartTimer
)
Effect = Request | JobEnded


# Replies.


@dataclass(frozen=True, slots=True)
class TaskLoaded:
    """The outcome is OK, GONE or UNAVAILABLE. `task` is present only if the outcome is OK."""

    request: int
    outcome: MetadataOutcome
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class LockTaken:
    """The answer to `TakeLock`. The outcome is OK or UNAVAILABLE."""

    request: int
    outcome: MetadataOutcome
    is_mine: bool = False


@dataclass(frozen=True, slots=True)
class LockReleased:
    """The lock is released, or will be released when the session ends."""

    request: int


@dataclass(frozen=True, slots=True)
class RegisteredListed:
    """The registered bookies; the outcome is OK or UNAVAILABLE.

    Attributes:
        writable: Bookies that accept new entries.
        read_only: Bookies that accept only reads, and recovery adds of their own entries.
        places: The places of the bookies.
        policy: The policy of placement for targets.
    """

    request: int
    outcome: MetadataOutcome
    writable: tuple[str, ...] = ()
    read_only: frozenset[str] = frozenset()
    places: BookieMap = field(default_factory=BookieMap)
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)


@dataclass(frozen=True, slots=True)
class EntriesListed:
    """Answer to `ListEntries`: with OK, the ranges of the entries that the bookie has, ascending.

    BAD_REQUEST means that the bookie cannot list its entries. With any other code, it is unknown
    which entries the bookie has.

    Attributes:
        given_up: The entries that an operator gave up, ascending. `ranges` contains these entries
            too, so that they do not count as missing. Possibly no bookie can return them.
    """

    request: int
    code: Code
    ranges: Sequence[EntryRange] = ()
    given_up: Sequence[EntryRange] = ()


@dataclass(frozen=True, slots=True)
class EntriesForced:
    """Answer to `ForceEntries`.

    OK means that all entries received before the request are durable.
    """

    request: int
    code: Code


@dataclass(frozen=True, slots=True)
class CopiesRead:
    """Answer to `ReadCopies`.

    With OK, it has the first requested entries: at least one, without gaps.
    """

    request: int
    code: Code
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesAdded:
    """Answer to `AddCopies`.

    `connection` is the number of the connection. All answers on one connection come from the same
    process of the bookie.
    """

    request: int
    code: Code
    connection: int = 0


@dataclass(frozen=True, slots=True)
class TaskDeleted:
    """Answer to `DeleteTask`. If the task was deleted, neither it nor the record had changed."""

    request: int
    outcome: MetadataOutcome
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """Answer to `ReportUnreadable`. The report may be stored or not."""

    request: int
    outcome: MetadataOutcome


@dataclass(frozen=True, slots=True)
class QuietMeasured:
    """Time without a new entry since the first measurement by this worker; 0 if it is unknown."""

    request: int
    quiet_ms: int


@dataclass(frozen=True, slots=True)
class FloorRead:
    """The last entry of the ledger that a log lists; NO_ENTRY if no log lists the ledger."""

    request: int
    outcome: MetadataOutcome
    floor: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class LedgerRecovered:
    """The reason why the ledger could not be closed; None if the ledger is closed."""

    request: int
    failure: Failure | None


Reply = (
    TaskLoaded
    | LockTaken
    | LockReleased
    | MetadataLoaded
    | MetadataWritten
    | RegisteredListed
    | EntriesListed
    | EntriesForced
    | CopiesRead
    | CopiesAdded
    | IdentitiesRead
    | TaskDeleted
    | Reported
    | QuietMeasured
    | FloorRead
    | LedgerRecovered
    | TimerFired
)
