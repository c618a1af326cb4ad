"""The requests of replication jobs to the metadata store.

Each method returns the reply for the machine. All requests of a job belong to the session that took
the lock. After the end of this session, no request of the job is sent (AUTORECOVERY.md#X2).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ledgerlog_spark.autorecovery.replicate.quiet import QuietLedgers
from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.client.errors_from_codes import outcome_of
from ledgerlog_spark.client.identities import read_identities, stored_identities
from ledgerlog_spark.errors import (
    LedgerLogError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    NeedsOperatorError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.metadata.replication.ports import HeldLock
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import NodeOperation
from ledgerlog_spark.model import NO_ENTRY, LedgerMetadata, Versioned
from ledgerlog_spark.protocol.autorecovery.replicate import messages as m
from ledgerlog_spark.protocol.ledger import messages as p
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from ledgerlog_spark.protocol.ledger.messages import Failure, MetadataOutcome
from ledgerlog_spark.wire.repair_notes import HoleKind, Unreadable, UnreadableRange

RECOVERY_PAUSE_SECONDS = 0.02
"""Pause in seconds after each recovery. So a worker fences at most 50 ledgers per second."""

Recover = Callable[[int, bytes, int], Awaitable[LedgerMetadata]]
"""A function that fences and closes a ledger. It gets the ledger id, the password and the floor."""


class FencePace:
    """Ensures that the jobs of a worker recover only one ledger at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def recover(self, recover: Callable[[], Awaitable[LedgerMetadata]]) -> None:
        """Recover a ledger after the recoveries of earlier callers have ended."""
        async with self._turn:
            await recover()
            await asyncio.sleep(RECOVERY_PAUSE_SECONDS)


class StoreRequests:
    """Performs the requests of one job to the metadata store.

    Attributes:
        lock: The lock of the ledger; None before it is taken.
        record: The newest metadata that the job has read.
    """

    def __init__(
        self,
        stores: MetadataStores,
        queue: m.TaskQueue,
        ledger_id: int,
        worker_id: str,
        *,
        bookies: BookieChoice,
        floor_of: Callable[[int], Awaitable[int]],
        recover: Recover,
        read_lac: Callable[[str, int], Awaitable[int]],
        quiet: QuietLedgers,
        fences: FencePace,
    ) -> None:
        """Create the requests of one job.

        Args:
            stores: The stores of the cluster.
            queue: The queue of the task.
            ledger_id: The ledger.
            worker_id: The id that the lock contains, for Apache's tools.
            bookies: The places of the bookies, and the policy for targets.
            floor_of: Reads the last entry of a ledger that a log lists.
            recover: Fences and closes a ledger.
            read_lac: Reads the LAC of a ledger on a bookie.
            quiet: Measures the time since open ledgers got their last entry.
            fences: Limits the recoveries of the worker.
        """
        self._stores = stores
        self._queue = queue
        self._ledger_id = ledger_id
        self._worker_id = worker_id
        self._bookies = bookies
        self._floor_of = floor_of
        self._recover_ledger = recover
        self._read_lac = read_lac
        self._quiet = quiet
        self._fences = fences
        self._session_id = stores.tree.session_id
        self.lock: HeldLock | None = None
        self.record: Versioned[LedgerMetadata] | None = None
        self.performs: Mapping[type, Callable[[Any], Awaitable[Any]]] = {
            m.LoadTask: self._load_task,
            m.TakeLock: self._take_lock,
            m.ReleaseLock: self._release_lock,
            p.LoadMetadata: self._load,
            m.ListRegistered: self._list_registered,
            ReadIdentities: self._read_identities,
            p.CasMetadata: self._cas,
            m.DeleteTask: self._delete_task,
            m.ReportUnreadable: self._report,
            m.MeasureQuiet: self._measure,
            m.ReadFloor: self._read_floor,
            m.RecoverForCopies: self._recover,
        }

    def _require_session(self) -> None:
        """Raise an error if the session in which the job began has ended."""
        if self._stores.tree.session_id != self._session_id:
            raise MetadataUnavailableError(
                f"the session in which ledger {self._ledger_id} was taken has ended",
                ledger_id=self._ledger_id,
            )

    async def _load_task(self, effect: m.LoadTask) -> m.TaskLoaded:
        try:
            self._require_session()
            task = await self._task()
        except LedgerLogError:
            return m.TaskLoaded(effect.request, MetadataOutcome.UNAVAILABLE)
        outcome = MetadataOutcome.GONE if task is None else MetadataOutcome.OK
        return m.TaskLoaded(effect.request, outcome, task)

    async def _task(self) -> m.Task | None:
        stores, ledger_id = self._stores, self._ledger_id
        if self._queue is m.TaskQueue.MARK:
            mark = await stores.marks.load(ledger_id)
            if mark is None:
                return None
            return m.Task(self._queue, mark.version, lost=frozenset(mark.replicas))
        if self._queue is m.TaskQueue.HOLE:
            holes = await stores.holes.load(ledger_id)
            if holes is None:
                return None
            damaged = tuple(
                m.DamagedCopies(one.bookie_id, one.first_entry_id, one.ranges)
                for one in holes.value.holes
                if one.kind == HoleKind.DAMAGED
            )
            return m.Task(self._queue, holes.version, damaged=damaged)
        moves = await stores.moves.load(ledger_id)
        if moves is None:
            return None
        named = frozenset((one.bookie_id, one.first_entry_id) for one in moves.value.moves)
        return m.Task(self._queue, moves.version, moves=named)

    async def _take_lock(self, effect: m.TakeLock) -> m.LockTaken:
        try:
            self._require_session()
            locks = self._stores.replication_locks
            self.lock = await locks.acquire(self._ledger_id, self._worker_id)
        except LedgerLogError:
            return m.LockTaken(effect.request, MetadataOutcome.UNAVAILABLE)
        return m.LockTaken(effect.request, MetadataOutcome.OK, self.lock is not None)

    async def _release_lock(self, effect: m.ReleaseLock) -> m.LockReleased:
        await self.release()
        return m.LockReleased(effect.request)

    async def release(self) -> None:
        """Release the lock if this session has it. If this fails, the worker releases it later."""
        lock, self.lock = self.lock, None
        if lock is not None and self._stores.replication_locks.is_held(lock):
            try:
                await self._stores.replication_locks.release(self._ledger_id)
            except LedgerLogError:
                return

    async def _load(self, effect: p.LoadMetadata) -> p.MetadataLoaded:
        try:
            self._require_session()
            await self._stores.ledgers.sync()
            self.record = await self._stores.ledgers.load(self._ledger_id)
        except LedgerLogError as error:
            outcome = outcome_of(error) or MetadataOutcome.UNAVAILABLE
            return p.MetadataLoaded(effect.request, outcome)
        return p.MetadataLoaded(effect.request, MetadataOutcome.OK, self.record)

    async def _list_registered(self, effect: m.ListRegistered) -> m.RegisteredListed:
        registration = self._stores.registration
        try:
            self._require_session()
            await registration.sync()
            writable = tuple(await registration.writable())
            read_only = frozenset(await registration.read_only())
            places = await self._bookies.known(writable)
            policy = await self._bookies.policy()
        except LedgerLogError:
            return m.RegisteredListed(effect.request, MetadataOutcome.UNAVAILABLE)
        return m.RegisteredListed(
            effect.request, MetadataOutcome.OK, writable, read_only, places, policy
        )

    async def _read_identities(self, effect: ReadIdentities) -> IdentitiesRead:
        store = self._stores.identities
        try:
            self._require_session()
            identities = await read_identities(store, effect.bookie_ids)
        except LedgerLogError:
            return IdentitiesRead(effect.request, None)
        return IdentitiesRead(effect.request, identities)

    async def _cas(self, effect: p.CasMetadata) -> p.MetadataWritten:
        identities = stored_identities(effect.identities)
        try:
            self._require_session()
            written = await self._stores.ledgers.replace(
                self._ledger_id, effect.metadata, effect.version, identities
            )
        except LedgerLogError as error:
            outcome = outcome_of(error) or MetadataOutcome.UNAVAILABLE
            return p.MetadataWritten(effect.request, outcome)
        self.record = written
        return p.MetadataWritten(effect.request, MetadataOutcome.OK, written)

    async def _delete_task(self, effect: m.DeleteTask) -> m.TaskDeleted:
        try:
            self._require_session()
            is_deleted = await self._delete(effect)
        except LedgerLogError:
            return m.TaskDeleted(effect.request, MetadataOutcome.UNAVAILABLE)
        return m.TaskDeleted(effect.request, MetadataOutcome.OK, is_deleted)

    async def _delete(self, effect: m.DeleteTask) -> bool:
        assert self.lock is not None, "a task is deleted under its lock"
        stores = self._stores
        queues = {
            m.TaskQueue.MARK: stores.marks.delete,
            m.TaskQueue.HOLE: stores.holes.delete,
            m.TaskQueue.MOVE: stores.moves.delete,
        }
        checks: list[NodeOperation] = []
        if effect.record is not None:
            checks.append(stores.ledgers.unchanged(self._ledger_id, effect.record))
        return await queues[self._queue](self._ledger_id, effect.version, self.lock, checks)

    async def _report(self, effect: m.ReportUnreadable) -> m.Reported:
        notes = self._stores.unreadable
        try:
            self._require_session()
            if effect.entries:
                ranges = tuple(map(_range_of, effect.entries))
                now_ms = time.time_ns() // 1_000_000
                await notes.add(self._ledger_id, Unreadable(ranges, self._worker_id, now_ms))
            else:
                found = await notes.load(self._ledger_id)
                if found is not None:
                    await notes.delete(self._ledger_id, found.version, self.lock)
        except LedgerLogError:
            return m.Reported(effect.request, MetadataOutcome.UNAVAILABLE)
        return m.Reported(effect.request, MetadataOutcome.OK)

    async def _measure(self, effect: m.MeasureQuiet) -> m.QuietMeasured:
        lacs = await asyncio.gather(
            *(self._read_lac(name, self._ledger_id) for name in effect.bookies)
        )
        last = max(lacs, default=NO_ENTRY)
        now_ms = asyncio.get_running_loop().time() * 1e3
        quiet_ms = self._quiet.measure(self._ledger_id, last, now_ms)
        return m.QuietMeasured(effect.request, quiet_ms)

    async def _read_floor(self, effect: m.ReadFloor) -> m.FloorRead:
        try:
            self._require_session()
            floor = await self._floor_of(self._ledger_id)
        except LedgerNotFoundError:
            return m.FloorRead(effect.request, MetadataOutcome.OK, NO_ENTRY)
        except LedgerLogError:
            return m.FloorRead(effect.request, MetadataOutcome.UNAVAILABLE)
        return m.FloorRead(effect.request, MetadataOutcome.OK, floor)

    async def _recover(self, effect: m.RecoverForCopies) -> m.LedgerRecovered:
        record = self.record
        assert record is not None, "a ledger is recovered after its record was read"
        password, ledger_id = record.value.password, self._ledger_id
        try:
            self._require_session()
            await self._fences.recover(
                lambda: self._recover_ledger(ledger_id, password, effect.floor)
            )
        except LedgerNotFoundError:
            return m.LedgerRecovered(effect.request, None)  # the next load then finds no record
        except NeedsOperatorError:
            return m.LedgerRecovered(effect.request, Failure.NEEDS_OPERATOR)
        except NotEnoughBookiesError:
            return m.LedgerRecovered(effect.request, Failure.NOT_ENOUGH_BOOKIES)
        except LedgerLogError:
            return m.LedgerRecovered(effect.request, Failure.RECOVERY)
        return m.LedgerRecovered(effect.request, None)


def _range_of(one: m.UnreadableEntries) -> UnreadableRange:
    answers = tuple((name, code.value) for name, code in one.answers)
    return UnreadableRange(one.first_entry_id, one.last_entry_id, one.is_lost, answers)
