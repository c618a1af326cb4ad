"""The interfaces of the stores of auto-recovery. They contain no paths.

All calls run on the event loop of the tree. Each load syncs with the store before it reads. Every
call may raise the errors of the metadata store: `MetadataUnavailableError` (nothing was sent), and
`MetadataFormatError` (a node is damaged, or a later release wrote it; the node is not changed).
After a lost answer, the call itself finds out whether the change happened. If this fails, the call
raises `MetadataUnknownError`.

The methods `walk` read only the names of nodes, and not their data. Therefore a damaged node never
ends a walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from ledgerlog_spark.metadata.tree import CancelWatch, NodeOperation, OnChange
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.repair_notes import Vacation, WorkerReport

Note = TypeVar("Note")


@dataclass(frozen=True, slots=True)
class Mark:
    """One ledger in the queue of ledgers with lost bookies. Apache's workers use the same queue.

    Attributes:
        ledger_id: Id of the ledger.
        replicas: Ids of the bookies that were lost, without repetition.
        created_ms: Creation time by the clock of the auditor, only as information for people. None
            if the mark contains no time.
        version: The version of the mark. Each write of the mark increases it.
    """

    ledger_id: int
    replicas: tuple[str, ...]
    created_ms: int | None
    version: Version


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The lock of a ledger, and the session that took it.

    After this session has ended, another worker may take the lock. From then on, calls with this
    object change nothing.
    """

    ledger_id: int
    session_id: int


class LedgerLocks(Protocol):
    """One lock for each ledger. Apache's workers use the same locks.

    A lock only saves work, and protects no data. `metadata.replication.locks.ReplicationLocks`
    implements this interface.
    """

    async def acquire(self, ledger_id: int, holder: str) -> HeldLock | None:
        """Take and return the lock if it is free; return None if another session or caller has it.

        After an error, the same caller may call this method again.

        `holder` is the id of a bookie or of a daemon, which Apache's tools show.
        """
        ...

    async def release(self, ledger_id: int) -> None:
        """Give the lock back. Do nothing if this session does not hold the lock."""

    async def release_left(self) -> None:
        """Release locks that no caller has, because `acquire` or `release` failed.

        A session may live for weeks, and until it ends, no other worker can take such a lock. A
        call may leave some of these locks to the next call, also after an error.
        """

    async def holder(self, ledger_id: int) -> str | None:
        """Return the id that the holder of the lock stored; None for a free lock."""

    def is_held(self, lock: HeldLock) -> bool:
        """Whether the session that took the lock is still the current session.

        If the result is false, the lock is lost, and the worker must abandon the ledger. Even if
        the result is true, the session may already have ended.
        """
        ...


class MarkQueue(Protocol):
    """Apache's queue of ledgers with lost bookies (`underreplication/ledgers`)."""

    async def mark(self, ledger_id: int, replicas: Collection[str]) -> Version:
        """Create a mark, or add `replicas` (at least one) to an existing mark.

        Return the new version. The version always rises, even if the mark already has these
        replicas. Therefore a worker that loaded the mark before this call cannot delete the mark.
        """
        ...

    async def load(self, ledger_id: int) -> Mark | None:
        """Return the mark of a ledger; None if the ledger has no mark."""

    async def delete(
        self,
        ledger_id: int,
        version: Version,
        lock: HeldLock,
        checks: Sequence[NodeOperation] = (),
    ) -> bool:
        """Delete the mark if it has `version` and the session that took `lock` still lives.

        All `checks` must succeed too, such as the check that `LedgerStore.unchanged` returns.

        Returns:
            True if the mark is deleted. False if the mark has changed or does not exist, if the
            lock's session has ended, or if a check failed. If the result is false, the worker must
            abandon the ledger.
        """
        ...

    def walk(self, after: int = -1) -> AsyncIterator[int]:
        """Yield the ledger ids of the marks above `after`, ascending."""
        ...

    def watch(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a mark may have been created.

        The call is certain only if the queue was empty before. Therefore callers must also call
        `walk` regularly.
        """
        ...


class LedgerNotes(Protocol[Note]):
    """The notes of one kind: holes, moves, unreadable or attempts.

    A ledger has at most one note of a kind.
    """

    async def add(self, ledger_id: int, note: Note) -> Version:
        """Create a note, or merge `note` into the existing note. Return the new version.

        The version always rises. Notes about holes or moves are merged to their union. For the
        other kinds, the new note replaces the existing note.
        """
        ...

    async def load(self, ledger_id: int) -> Versioned[Note] | None:
        """Return the note of a ledger; None if the ledger has no note."""

    async def replace(self, ledger_id: int, note: Note, version: Version) -> Version | None:
        """Replace the note if it has `version`. Return the new version; None if it has changed."""

    async def delete(
        self,
        ledger_id: int,
        version: Version,
        lock: HeldLock | None = None,
        checks: Sequence[NodeOperation] = (),
    ) -> bool:
        """Delete the note if it has `version`.

        If `lock` is given, the session of the lock must live, and all `checks` must succeed.

        Returns:
            True if the note is deleted. False if the note has changed or does not exist, if the
            session of the lock has ended, or if a check failed.
        """
        ...

    def walk(self, after: int = -1) -> AsyncIterator[int]:
        """Yield the ledger ids of the notes above `after`, ascending."""
        ...

    def watch(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a note may have been created, as `MarkQueue.watch` does."""
        ...


class RecoverySwitch(Protocol):
    """The settings of auto-recovery for the whole cluster.

    Apache's daemons use the same settings.
    """

    async def is_enabled(self) -> bool:
        """Return whether auditors mark ledgers, and workers begin to heal further ledgers."""
        ...

    async def enable(self) -> bool:
        """Enable auto-recovery. Return whether it was disabled before."""
        ...

    async def disable(self) -> bool:
        """Disable auto-recovery, so that no work begins. Return whether it was enabled before."""
        ...

    async def lost_bookie_delay(self) -> Versioned[int] | None:
        """Return the seconds that the auditor waits before it marks the ledgers of a lost bookie.

        The result is None if no delay was stored. A new version with the same value requests an
        audit now.
        """

    async def initialize_delay(self, seconds: int) -> None:
        """Store the delay, unless a delay is already stored."""

    async def set_lost_bookie_delay(self, seconds: int) -> None:
        """Store the delay (at least 0 seconds)."""

    async def audit_now(self) -> None:
        """Request an audit. To do so, write the stored delay again."""

    def watch_enabled(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a change of `is_enabled`, or a new session."""
        ...

    def watch_delay(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a write of the delay (even of the same value) or a new session."""
        ...


class AuditorVote(Protocol):
    """One vote in the election of the auditor. A vote belongs to one session.

    Attributes:
        elected: An event that is set when this vote is the oldest vote.
        lost: An event that is set after the session was replaced, after the vote was deleted, and
            after `leave`. It is never cleared. When it is set, the auditor must stop its work. The
            auditor may join again.
    """

    elected: asyncio.Event
    lost: asyncio.Event

    @property
    def may_publish(self) -> bool:
        """Whether this vote is elected and the store is connected.

        If not, the auditor must not store results or the progress of its checks.
        """
        ...

    async def leave(self) -> None:
        """Delete the vote. A second call does nothing."""


class AuditorElection(Protocol):
    """Apache's election of the auditor. Auditors of ledgerlog and of Apache take part in it."""

    async def join(self, candidate_id: str) -> AuditorVote:
        """Become a candidate, and return the vote.

        `candidate_id` is a bookie id, or the `host:port` of a daemon.
        """
        ...

    async def current(self) -> str | None:
        """Return the id of the elected auditor; None if no auditor is elected."""


class WorkerReports(Protocol):
    """Reports about the progress of the workers.

    A report is deleted when its worker's session ends.
    """

    async def publish(self, worker_id: str, report: WorkerReport) -> None:
        """Create or replace the report of a worker."""

    async def withdraw(self, worker_id: str) -> None:
        """Delete the report of a worker of this session."""

    async def all(self) -> Mapping[str, WorkerReport]:
        """Return the reports of all workers, by worker id. Damaged reports are omitted."""
        ...


class VacationStore(Protocol):
    """The vacations of bookies: drain, decommission and recover."""

    async def load(self, bookie_id: str) -> Versioned[Vacation] | None:
        """Return the vacation of a bookie; None if the bookie has no vacation."""

    async def write(self, bookie_id: str, vacation: Vacation, version: Version | None) -> Version:
        """Create a vacation (if `version` is None) or replace it. Return the new version.

        Raises:
            MetadataVersionError: Another process has changed the vacation; this call changed
                nothing.
        """
        ...

    async def write_and_delete_cookie(
        self, bookie_id: str, vacation: Vacation, version: Version, cookie: Version
    ) -> Version:
        """Replace the vacation and delete the bookie's cookie in one transaction.

        If the bookie has a record (`KnownBookie`), the transaction also marks the record as
        retired.

        Raises:
            MetadataVersionError: Another process has changed one of these nodes; this call changed
                nothing.
        """
        ...

    async def delete(self, bookie_id: str, version: Version) -> bool:
        """Delete a vacation if it has `version`. Return whether it was deleted."""
        ...

    async def all(self) -> Mapping[str, Versioned[Vacation]]:
        """Return the vacations of all bookies, by bookie id. A damaged node raises an error."""
        ...

    def watch(self, bookie_id: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a change of one bookie's vacation, or a new session."""
        ...


class Check(Enum):
    """A periodic check of the auditor. Apache's auditor reads and writes the same times."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


class Walk(Enum):
    """A pass over all ledgers that another auditor can continue."""

    LEDGERS = "ledgers"
    REPLICAS = "replicas"
    DIGESTS = "digests"
    PLACEMENT = "placement"


@dataclass(frozen=True, slots=True)
class WalkPosition:
    """The progress of a walk.

    Attributes:
        ledger_id: The last ledger that was checked; -1 at the start.
        begun_ms: The time when this pass began, by the clock of the store or of the auditor.
        passes: Number of finished passes.
    """

    ledger_id: int = -1
    begun_ms: int = 0
    passes: int = 0


class CheckTimes(Protocol):
    """The times of the last checks, and the positions of the walks."""

    async def time_ms(self, check: Check) -> int | None:
        """Return when a check last ended, in ms since 1970; None if it never ended."""

    async def set_time_ms(self, check: Check, time_ms: int) -> None:
        """Store the time when a check ended."""

    async def position(self, walk: Walk) -> WalkPosition:
        """Return the position of a walk. If the node is damaged, the walk starts again."""
        ...

    async def set_position(self, walk: Walk, position: WalkPosition) -> None:
        """Store the position of a walk."""


@dataclass(frozen=True, slots=True)
class BookieIdentity:
    """Values that change if another bookie gets the id `bookie_id`, or if entries may be lost.

    Attributes:
        bookie_id: Id of the bookie.
        cookie: The version of the bookie's cookie.
        directories: The id of each directory, and the number of times that the directory may have
            lost entries, from the bookie's record (`KnownBookie`). None for a bookie of Apache,
            which has no record. The version of the record is not compared, because a bookie that
            stores data writes its record regularly.
    """

    bookie_id: str
    cookie: Version
    directories: frozenset[tuple[str, int]] | None


class BookieIdentities(Protocol):
    """Reads the identities that `LedgerStore.replace` checks.

    `LedgerStore.replace(ledger_id, metadata, version, identities)` is one transaction. It replaces
    the ledger's metadata if the metadata has `version` and `identities` have not changed. It raises
    MetadataVersionError if the metadata (field `ledger_id`) or an identity (field `bookie_id`) has
    changed, and LedgerNotFoundError if the ledger was deleted.
    """

    async def load(self, bookie_id: str) -> BookieIdentity | None:
        """Return the identity of a bookie; None if the bookie has no cookie.

        Raises:
            MetadataFormatError: The record of the bookie cannot be read.
        """

    async def checks(self, identity: BookieIdentity) -> Sequence[NodeOperation]:
        """Return operations that make a transaction fail if the bookie changes after this call.

        Raises:
            MetadataVersionError: The bookie has already changed. The error has the field
                `bookie_id`.
        """
        ...
