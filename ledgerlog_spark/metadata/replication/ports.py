"""The interfaces of the stores of auto-recovery. They contain no paths.

All calls run on the event loop of the tree. All loads are made after a sync. Every call may raise
the errors of the metadata store: `MetadataUnavailableError` (nothing was sent), and
`MetadataFormatError` (a node is damaged, or a later release wrote it; the node is not changed). A
lost answer is settled inside the call. If it cannot be settled, the call raises
`MetadataUnknownError`.

A walk yields names of nodes, and does not read their data. So a damaged node never ends a walk.
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
    """One ledger in the queue of ledgers with lost bookies, which Apache's workers share.

    Attributes:
        ledger_id: The ledger.
        replicas: Ids of the bookies that were lost, without repetition.
        created_ms: Time by the clock of the auditor, which is compared with no other time. None if
            the mark contains no time.
        version: Each write of the mark increases it.
    """

    ledger_id: int
    replicas: tuple[str, ...]
    created_ms: int | None
    version: Version


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The lock of a ledger, and the session that took it.

    After this session has ended, another worker may take the lock. Then calls with this object
    change nothing.
    """

    ledger_id: int
    session_id: int


class LedgerLocks(Protocol):
    """One lock for each ledger, which Apache's workers share.

    A lock saves work, and protects no data. `metadata.replication.locks.ReplicationLocks`
    implements it.
    """

    async def acquire(self, ledger_id: int, holder: str) -> HeldLock | None:
        """Take the lock if it is free; None if another session or another caller holds it.

        After an error, the same caller may take it again.

        `holder` is an id of a bookie or of a daemon, for Apache's tools.
        """
        ...

    async def release(self, ledger_id: int) -> None:
        """Give the lock back. Do nothing if this session does not hold the lock."""

    async def release_left(self) -> None:
        """Release some locks that no caller has, because `acquire` or `release` failed.

        A session may live for weeks, and until it ends no other worker can take these locks. After
        an error, the next call releases the remaining locks.
        """

    async def holder(self, ledger_id: int) -> str | None:
        """The id that the holder stored; None for a free lock."""

    def is_held(self, lock: HeldLock) -> bool:
        """Whether the session that took the lock is still the current session.

        If the result is False, the lock is lost, and the worker abandons the ledger. Even if the
        result is True, the session may already have ended.
        """
        ...


class MarkQueue(Protocol):
    """Apache's queue of ledgers with lost bookies (`underreplication/ledgers`)."""

    async def mark(self, ledger_id: int, replicas: Collection[str]) -> Version:
        """Create a mark, or merge `replicas` (at least one) into it. Return the new version.

        The version always rises, even if the mark already has these replicas. So a worker that
        loaded the mark before this call cannot delete the mark.
        """
        ...

    async def load(self, ledger_id: int) -> Mark | None:
        """The mark of a ledger; None if it has none."""

    async def delete(
        self,
        ledger_id: int,
        version: Version,
        lock: HeldLock,
        checks: Sequence[NodeOperation] = (),
    ) -> bool:
        """Delete the mark at a version, if the session that took `lock` still lives.

        All `checks` must succeed too, such as the check that `LedgerStore.unchanged` returns.

        Returns:
            True if the mark is deleted. False if the mark has changed or does not exist, if the
            lock's session has ended, or if a check failed. Then the worker abandons the ledger.
        """
        ...

    def walk(self, after: int = -1) -> AsyncIterator[int]:
        """Yield the ledger ids of the marks above `after`, ascending."""
        ...

    def watch(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a mark may have been created.

        The call is certain only if the queue was empty before. So callers must also walk regularly.
        """
        ...


class LedgerNotes(Protocol[Note]):
    """Notes of one kind, at most one for each ledger: holes, moves, unreadable or attempts."""

    async def add(self, ledger_id: int, note: Note) -> Version:
        """Create the note, or merge `note` into it. Return the new version, which always rises.

        The result is the union of two notes about holes or moves. For the other kinds, the new note
        replaces the old one.
        """
        ...

    async def load(self, ledger_id: int) -> Versioned[Note] | None:
        """The note of a ledger; None if it has none."""

    async def replace(self, ledger_id: int, note: Note, version: Version) -> Version | None:
        """Replace the note at a version. Return the new version; None if the note has changed."""

    async def delete(
        self,
        ledger_id: int,
        version: Version,
        lock: HeldLock | None = None,
        checks: Sequence[NodeOperation] = (),
    ) -> bool:
        """Delete the note at a version.

        If `lock` is given, the session of the lock must live, and all `checks` must succeed.

        Returns:
            True if the note is deleted. False if it has changed or does not exist, if the lock has
            ended, or if a check failed.
        """
        ...

    def walk(self, after: int = -1) -> AsyncIterator[int]:
        """Yield the ledger ids of the notes above `after`, ascending."""
        ...

    def watch(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a note may have been created, as `MarkQueue.watch` does."""
        ...


class RecoverySwitch(Protocol):
    """The settings of auto-recovery for the whole cluster, which Apache's daemons share."""

    async def is_enabled(self) -> bool:
        """Whether auditors mark ledgers, and workers begin to heal further ledgers."""
        ...

    async def enable(self) -> bool:
        """Enable auto-recovery. Return False if it was enabled already."""
        ...

    async def disable(self) -> bool:
        """Disable auto-recovery, so that no work begins. Return False if it was disabled before."""
        ...

    async def lost_bookie_delay(self) -> Versioned[int] | None:
        """How many seconds the auditor waits before it marks the ledgers of one lost bookie.

        None if no delay was stored. A new version with the same value requests an audit now.
        """

    async def initialize_delay(self, seconds: int) -> None:
        """Store the delay unless one is stored."""

    async def set_lost_bookie_delay(self, seconds: int) -> None:
        """Store the delay (at least 0 seconds)."""

    async def audit_now(self) -> None:
        """Request an audit: write the stored delay again."""

    def watch_enabled(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a change of `is_enabled`, or a new session."""
        ...

    def watch_delay(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a write of the delay (even of the same value) or a new session."""
        ...


class AuditorVote(Protocol):
    """One vote in the election of the auditor. It belongs to one session.

    Attributes:
        elected: Set while this vote is the oldest vote.
        lost: Set after the session was replaced, after the vote was deleted, and after `leave`. It
            is never cleared. When it is set, the auditor steps down. The auditor may join again.
    """

    elected: asyncio.Event
    lost: asyncio.Event

    @property
    def may_publish(self) -> bool:
        """Whether this vote is elected and the store is connected.

        If not, the auditor publishes nothing.
        """
        ...

    async def leave(self) -> None:
        """Delete the vote. A second call does nothing."""


class AuditorElection(Protocol):
    """Apache's election of the auditor. Auditors of ledgerlog and of Apache take part in it."""

    async def join(self, candidate_id: str) -> AuditorVote:
        """Become a candidate. `candidate_id` is a bookie id, or `host:port` of a daemon."""
        ...

    async def current(self) -> str | None:
        """The id of the elected auditor; None if no auditor is elected."""


class WorkerReports(Protocol):
    """The progress of the workers. A report ends with the session of its worker."""

    async def publish(self, worker_id: str, report: WorkerReport) -> None:
        """Create or replace the report of a worker."""

    async def withdraw(self, worker_id: str) -> None:
        """Delete the report of a worker of this session."""

    async def all(self) -> Mapping[str, WorkerReport]:
        """The reports of all workers, by worker id. Damaged reports are omitted."""
        ...


class VacationStore(Protocol):
    """The vacations of bookies: drain, decommission and recover."""

    async def load(self, bookie_id: str) -> Versioned[Vacation] | None:
        """The vacation of a bookie; None if it has none."""

    async def write(self, bookie_id: str, vacation: Vacation, version: Version | None) -> Version:
        """Create (`version` None) or replace the vacation of a bookie. Return the new version.

        Raises:
            MetadataVersionError: Another process has changed the vacation; this call changed
                nothing.
        """
        ...

    async def write_and_delete_cookie(
        self, bookie_id: str, vacation: Vacation, version: Version, cookie: Version
    ) -> Version:
        """Replace the vacation and delete the bookie's cookie in one transaction.

        If the bookie has a record (`KnownBookie`), the transaction also marks it as retired.

        Raises:
            MetadataVersionError: Another process has changed one of these nodes; this call changed
                nothing.
        """
        ...

    async def delete(self, bookie_id: str, version: Version) -> bool:
        """Delete a vacation at a version. Return False if it has changed or does not exist."""
        ...

    async def all(self) -> Mapping[str, Versioned[Vacation]]:
        """The vacations of all bookies, by bookie id. A damaged node raises an error."""
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
    """A walk over all ledgers that a successor can continue."""

    LEDGERS = "ledgers"
    REPLICAS = "replicas"
    DIGESTS = "digests"
    PLACEMENT = "placement"


@dataclass(frozen=True, slots=True)
class WalkPosition:
    """The progress of a walk.

    Attributes:
        ledger_id: The last ledger that was handled; -1 at the start.
        begun_ms: The begin of this pass, by the clock of the store or of the auditor.
        passes: Number of finished passes.
    """

    ledger_id: int = -1
    begun_ms: int = 0
    passes: int = 0


class CheckTimes(Protocol):
    """The times of the last checks, and the positions of the walks."""

    async def time_ms(self, check: Check) -> int | None:
        """When a check ended last, in ms since 1970; None if it never ran."""

    async def set_time_ms(self, check: Check, time_ms: int) -> None:
        """Store when a check ended."""

    async def position(self, walk: Walk) -> WalkPosition:
        """The position of a walk. A damaged node counts as a walk that did not begin."""
        ...

    async def set_position(self, walk: Walk, position: WalkPosition) -> None:
        """Store the position of a walk."""


@dataclass(frozen=True, slots=True)
class BookieIdentity:
    """Values that change if another bookie gets the id, or if the bookie may have lost entries.

    Attributes:
        bookie_id: The bookie.
        cookie: The version of its cookie.
        directories: From the bookie's record (`KnownBookie`): the id of each directory, and the
            number of times that the directory may have lost entries. None for a bookie of Apache,
            which has no record. The version of the record is not compared, because a bookie that
            stores data writes its record regularly.
    """

    bookie_id: str
    cookie: Version
    directories: frozenset[tuple[str, int]] | None


class BookieIdentities(Protocol):
    """Reads the identities that `LedgerStore.replace` checks.

    `LedgerStore.replace(ledger_id, metadata, version, identities)` is one transaction: it replaces
    the ledger's metadata at `version` if `identities` have not changed. It raises
    MetadataVersionError if the metadata (field `ledger_id`) or an identity (field `bookie_id`) has
    changed, and LedgerNotFoundError if the ledger was deleted.
    """

    async def load(self, bookie_id: str) -> BookieIdentity | None:
        """The identity of a bookie; None if it has no cookie.

        Raises:
            MetadataFormatError: The record of the bookie cannot be read.
        """

    async def checks(self, identity: BookieIdentity) -> Sequence[NodeOperation]:
        """Operations of a transaction, which fail if the bookie changes after this call.

        Raises:
            MetadataVersionError: The bookie has already changed. The error has the field
                `bookie_id`.
        """
        ...
