"""Effects and replies of `LedgerReplication`.

Each effect is a request with one reply, which repeats its number. The last effect, `JobEnded`, has
no reply.
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
"""Stands for all fragments of the ledger, in place of the first entry of a fragment."""


class TaskQueue(Enum):
    """The queue from which a ledger was taken."""

    MARK = "mark"
    HOLE = "hole"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class DamagedCopies:
    """Copies of a registered bookie that are damaged, although it lists them.

    Attributes:
        bookie_id: The bookie; "" stands for every member.
        first_entry_id: First entry of the fragment, or `WHOLE_LEDGER`.
        ranges: The damaged entries. If there are no ranges, all entries of the fragment that the
            bookie holds count as damaged.
    """

    bookie_id: str
    first_entry_id: int
    ranges: tuple[EntryRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """The content of a queue for one ledger.

    Attributes:
        version: The version of the note, or of the mark, before the lock was taken.
        lost: For a mark: the bookies that were lost.
        damaged: For holes: the copies that are damaged. The lists of the bookies show the missing
            copies.
        moves: For moves: each bookie that must be replaced, with the first entry of the fragment,
            or `WHOLE_LEDGER`.
    """

    queue: TaskQueue
    version: Version
    lost: frozenset[str] = frozenset()
    damaged: tuple[DamagedCopies, ...] = ()
    moves: frozenset[tuple[str, int]] = frozenset()


class Copy(NamedTuple):
    """One stored entry, whose digest the host has verified if the ledger has digests."""

    entry_id: int
    length: int
    payload: Payload
    stored: bytes | memoryview


@dataclass(frozen=True, slots=True)
class UnreadableEntries:
    """Consecutive entries that no bookie returned.

    Attributes:
        is_lost: Whether every bookie of the write set denied them both before and after a sync.
        answers: Pairs of a bookie and its answer.
    """

    first_entry_id: int
    last_entry_id: int
    is_lost: bool
    answers: tuple[tuple[str, Code], ...]


class JobOutcome(Enum):
    """Why a job ended.

    After `HEALED` and `DELETED`, the task is deleted. After `NOTHING`, no task exists. After other
    outcomes, the task is tried again.
    """

    HEALED = "healed"
    DELETED = "the ledger does not exist"
    NOTHING = "the queue does not contain the ledger"
    LOCKED = "another worker has the ledger"
    NO_SPARE = "no bookie can take a copy"
    WAITING = "a member of the ledger is away, or its list of entries is unknown"
    UNREADABLE = "entries could not be read from any bookie"
    COPIES_DIFFER = "copies without a digest differ"
    NO_KEY = "the metadata has no password, so no entry can be added"
    TARGET_FAILED = "the bookies that were chosen for a copy failed"
    RECOVERY_FAILED = "the ledger could not be closed"
    CONFLICTS = "other clients changed the ledger too often"
    UNAVAILABLE = "the metadata store did not answer"
    UNREADABLE_RECORD = "the metadata of the ledger cannot be read"
    CHANGED = "the task or the record has changed meanwhile"
    CRASHED = "a defect of the worker ended the job"

    @property
    def ends_task(self) -> bool:
        """Whether nothing is left to do."""
        return self in (JobOutcome.HEALED, JobOutcome.DELETED, JobOutcome.NOTHING)


# Effects.


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Load the task of the ledger, after a sync. Reply: `TaskLoaded`."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class TakeLock:
    """Take the lock of the ledger in the current session. Reply: `LockTaken`.

    All later requests of the job belong to this session. When the session has ended, the host drops
    the job.
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
    """List the entries of the ledger that a bookie holds. Reply: `EntriesListed`."""

    bookie_id: str
    request: int = 0


@dataclass(frozen=True, slots=True)
class ForceEntries:
    """Sync all entries of the ledger that the bookie has received. Reply: `EntriesForced`.

    `entry_id` is an entry that the bookie holds.
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
    """Delete the task at its version, in the session that took the lock. Reply: `TaskDeleted`.

    Attributes:
        version: The version of the task.
        record: The version of the ledger's record, which must not have changed; None if the ledger
            is deleted.
    """

    version: Version
    record: Version | None
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReportUnreadable:
    """Store the unreadable entries. If there are none, delete the report. Reply: `Reported`."""

    entries: tuple[UnreadableEntries, ...]
    request: int = 0


@dataclass(frozen=True, slots=True)
class MeasureQuiet:
    """Measure how long an open ledger has got no entry. Reply: `QuietMeasured`."""

    bookies: tuple[str, ...]
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReadFloor:
    """Read the last entry of the ledger that a log lists. Reply: `FloorRead`."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class RecoverForCopies:
    """Fence the ledger, and close it at `floor` or later. Reply: `LedgerRecovered`."""

    floor: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job has ended, and has no lock.

    Attributes:
        detail: The bookie or the reason, for an operator.
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
    """Whether the session holds the lock; the outcome is OK or UNAVAILABLE."""

    request: int
    outcome: MetadataOutcome
    is_mine: bool = False


@dataclass(frozen=True, slots=True)
class LockReleased:
    """The lock is released, or ends with the session."""

    request: int


@dataclass(frozen=True, slots=True)
class RegisteredListed:
    """The registered bookies; the outcome is OK or UNAVAILABLE.

    Attributes:
        writable: Bookies that take new entries.
        read_only: Bookies that only serve reads, and recovery adds of their own entries.
        places: The places of the bookies.
        policy: The rules for targets.
    """

    request: int
    outcome: MetadataOutcome
    writable: tuple[str, ...] = ()
    read_only: frozenset[str] = frozenset()
    places: BookieMap = field(default_factory=BookieMap)
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)


@dataclass(frozen=True, slots=True)
class EntriesListed:
    """With OK: the ranges of the entries, ascending. BAD_REQUEST: the bookie cannot list them.

    With any other code, it is unknown which entries the bookie holds.

    Attributes:
        given_up: The entries that an operator gave up, ascending. `ranges` contains them too, so
            they do not count as missing. Perhaps no bookie can return them.
    """

    request: int
    code: Code
    ranges: Sequence[EntryRange] = ()
    given_up: Sequence[EntryRange] = ()


@dataclass(frozen=True, slots=True)
class EntriesForced:
    """OK means that all entries are durable that the bookie received before the request."""

    request: int
    code: Code


@dataclass(frozen=True, slots=True)
class CopiesRead:
    """With OK: at least one entry. The entries begin with the first requested one, without gaps."""

    request: int
    code: Code
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesAdded:
    """The answer of the bookie.

    `connection` is the number of the connection. All answers on one connection are from one process
    of the bookie.
    """

    request: int
    code: Code
    connection: int = 0


@dataclass(frozen=True, slots=True)
class TaskDeleted:
    """Whether the task was deleted. If so, neither the task nor the record had changed."""

    request: int
    outcome: MetadataOutcome
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """The report is stored, or could not be stored."""

    request: int
    outcome: MetadataOutcome


@dataclass(frozen=True, slots=True)
class QuietMeasured:
    """Time without a new entry since the first measurement of this worker; 0 if it is unknown."""

    request: int
    quiet_ms: int


@dataclass(frozen=True, slots=True)
class FloorRead:
    """The last entry that a log lists; NO_ENTRY if no log lists the ledger."""

    request: int
    outcome: MetadataOutcome
    floor: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class LedgerRecovered:
    """None if the ledger is closed; otherwise the reason why it is not closed."""

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
