"""Deletes expired versions, and ledgers and pages that no version lists (LOGS.md#W1-W7).

A sweeper works in steps. It may run at any time, and several sweepers may run in parallel. A
sweeper may be killed at any moment, because before each deletion the store already contains the
work that remains.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.maintenance.check import LogChecker
from ledgerlog_spark.log.maintenance.older_ledgers import seal_open
from ledgerlog_spark.log.maintenance.sweep_memory import (
    LOOK_AGAIN_MS,
    LogDue,
    PassClock,
    SweepMemory,
)
from ledgerlog_spark.log.ports import Ledgers
from ledgerlog_spark.metadata.logs.producers import MarkedLedger
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.log.change.expiry import ExpiryMachine
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX, LogProperties
from ledgerlog_spark.protocol.log.read.versions import listed_ledgers
from ledgerlog_spark.protocol.log.state.records import Item, LogHead, LogKind, Paged, ProducerRecord
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.log.sweep import (
    STEP_LEDGERS_MAX,
    LedgerSweep,
    PagesSweep,
    StagedSweep,
)

PAGES_GRACE_MS = 3_600_000
"""Minimum age of pages that are deleted, so that running commits need not start again."""

PAGES_AT_ONCE = 100

FAILED_SEALS_MAX = 64
"""Number of failed seals after which a pass over a deleted log seals no further ledger."""

_logger = logging.getLogger(__name__)

EXPIRY_STEPS_MAX = 100
"""Maximum number of steps in which one pass removes expired versions of a log.

The next pass removes further expired versions."""

ATTEMPTS_MAX = 20
"""Number of conflicts with other changes after which a pass leaves the remaining steps to the next
pass. If a stream commits very often, most attempts have a conflict."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one pass over one log.

    Attributes:
        log_id: Id of the log.
        unlisted: Number of ledgers that no retained version lists any more.
        deregistered: Number of staged ledgers that can never be committed any more.
        ledgers_deleted: Number of ledgers that were sealed and deleted.
        pages_deleted: Number of tokens whose pages were deleted. Each attempt of a change has its
            own token.
        is_removed: Whether this pass deleted the last node of a deleted log.
        ledgers_kept: Ledgers of a deleted log that this pass did not seal and delete. The log
            cannot be removed before these ledgers.
    """

    log_id: str
    unlisted: int = 0
    deregistered: int = 0
    ledgers_deleted: int = 0
    pages_deleted: int = 0
    is_removed: bool = False
    ledgers_kept: tuple[int, ...] = ()


class Sweeper:
    """Sweeps the logs of one cluster, one pass at a time."""

    def __init__(
        self,
        *,
        store: LogStore,
        ledgers: Ledgers,
        pages_grace_ms: int = PAGES_GRACE_MS,
        memory: SweepMemory | None = None,
        clock: PassClock | None = None,
        random: Random | None = None,
    ) -> None:
        """Create a sweeper of the logs of one cluster.

        It deletes no page younger than `pages_grace_ms`. `memory` contains the results of earlier
        passes. If it is None, each pass reads everything. `clock` is the clock of this pass. If it
        is None, each step reads the store's clock.
        """
        self._store = store
        self._ledgers = ledgers
        self._pages_grace_ms = pages_grace_ms
        self._memory = memory
        self._clock = clock
        self._random = random

    async def sweep_all(self) -> tuple[list[Swept], list[LedgerLogError]]:
        """Run one pass over every log. Return the results, and the errors of the failed passes."""
        swept, errors = [], []
        for log_id in await self._store.ids():
            try:
                swept.append(await self.sweep(log_id))
            except LedgerLogError as error:
                errors.append(error)
        return swept, errors

    async def sweep(self, log_id: str, head: Versioned[LogHead] | None = None) -> Swept:
        """Run one pass over one log. If `head` is None, this method reads the head.

        If the store fails during the pass, the earlier changes of the pass remain.
        """
        found = head or await self._store.read_head(log_id)
        if found is None:
            return await self._remove_rest(log_id)
        due = (self._memory or SweepMemory()).of(log_id, found.value)
        work = _LogSweep(self._host(found.value.name, log_id), found.value, due)
        if found.value.deleted_ms:
            return await work.sweep_deleted()
        return await work.sweep(self._pages_grace_ms)

    def _host(self, name: str, log_id: str) -> LogHost:
        return LogHost(
            name,
            log_id,
            store=self._store,
            ledgers=self._ledgers,
            keeps_pages=True,
            clock=self._clock,
            random=self._random,
        )

    async def _remove_rest(self, log_id: str) -> Swept:
        """Finish the removal of a log that already has no head.

        While the log was removed, another pass may have marked a ledger. Such a ledger is deleted
        first.
        """
        await self._store.sync()
        if await self._store.read_head(log_id) is not None:
            return Swept(log_id)
        host = self._host(log_id, log_id)
        marked = [mark.ledger_id for mark in await self._store.producers.marked(log_id)]
        kept = tuple([i for i in marked if not await host.drop_ledger(i)])
        is_removed = not kept and await self._store.remove_log(log_id)
        deleted = len(marked) - len(kept)
        return Swept(log_id, ledgers_deleted=deleted, is_removed=is_removed, ledgers_kept=kept)


class _LogSweep:
    """One pass over one log, after its head was read."""

    def __init__(self, host: LogHost, head: LogHead, due: LogDue) -> None:
        self._host = host
        self._producers = host.store.producers
        self._head = head
        self._log_id = head.log_id
        self._due = due
        self._properties = LogProperties.from_mapping(head.properties)

    async def sweep(self, pages_grace_ms: int) -> Swept:
        """Do the work that is due, and calculate when more work is due."""
        due, now_ms = self._due, await self._host.clock.now_ms(self._log_id)
        due.see(now_ms)
        unlisted = deregistered = deleted = pages = 0
        if due.versions <= now_ms:
            unlisted = await self._expire(now_ms)
        if due.registrations <= now_ms:
            deregistered = await self._sweep_staged(now_ms)
        if due.marks <= now_ms or unlisted or deregistered:
            deleted = await self._sweep_ledgers()
        if due.pages <= now_ms:
            pages = await self._sweep_pages(now_ms, pages_grace_ms)
        if due.producers <= now_ms:
            await self._sweep_producers(now_ms)
        return Swept(self._log_id, unlisted, deregistered, deleted, pages)

    async def _expire(self, now_ms: int) -> int:
        unlisted = crossed = steps = 0
        while crossed < ATTEMPTS_MAX and steps < EXPIRY_STEPS_MAX:
            machine = ExpiryMachine(
                self._head.name,
                version_retention_ms=self._properties.version_retention_ms,
                token=uuid.uuid4().hex,
                is_fresh=not crossed,
            )
            step = await self._host.run(machine)
            unlisted += len(step.unlisted)
            crossed += not step.is_changed
            steps += step.is_changed
            if step.is_complete:
                self._due.versions = min(
                    machine.next_due_ms, now_ms + self._properties.version_retention_ms
                )
                break
        return unlisted

    async def _sweep_staged(self, now_ms: int) -> int:
        """Delete registrations that are too old, and calculate when others become too old."""
        ttl_ms = self._properties.staging_ttl_ms
        deregistered, next_due_ms = 0, now_ms + ttl_ms + 1
        for app in await self._producers.names(self._log_id):
            staged_ms = await self._producers.staged_ms(self._log_id, app)
            young = [at_ms for at_ms in staged_ms.values() if now_ms - at_ms <= ttl_ms]
            if young:
                next_due_ms = min(next_due_ms, min(young) + ttl_ms + 1)
            if len(young) == len(staged_ms):
                continue
            gone, is_complete = await self._deregister(app, ttl_ms)
            deregistered += gone
            if not is_complete:
                next_due_ms = now_ms
        self._due.registrations = next_due_ms
        return deregistered

    async def _deregister(self, app: str, ttl_ms: int) -> tuple[int, bool]:
        deregistered = crossed = 0
        while crossed < ATTEMPTS_MAX:
            machine = StagedSweep(self._head.name, app=app, staging_ttl_ms=ttl_ms)
            step = await self._host.run(machine)
            deregistered += len(step.unlisted)
            crossed += not (step.unlisted or step.released)
            await seal_open(step.released, self._host)
            if step.is_complete:
                return deregistered, True
        return deregistered, False

    async def _sweep_ledgers(self) -> int:
        grace_ms = self._properties.deleted_retention_ms
        ttl_ms = self._properties.staging_ttl_ms
        now_ms = await self._host.clock.now_ms(self._log_id)
        marked = await self._claimed(now_ms, ttl_ms)
        due = due_ledgers(marked, now_ms, grace_ms)
        deleted, is_crossed = 0, False
        for first in range(0, len(due), STEP_LEDGERS_MAX):
            some = dict(itertools.islice(due.items(), first, first + STEP_LEDGERS_MAX))
            for _ in range(ATTEMPTS_MAX):
                machine = LedgerSweep(self._head.name, some)
                deleted += len(await self._host.run(machine))
                is_crossed = machine.is_crossed
                if not is_crossed:
                    break
        later = [
            mark.marked_ms + (ttl_ms + 1 if mark.is_made else grace_ms)
            for mark in marked
            if mark.ledger_id not in due
        ]
        again_ms = now_ms if is_crossed else now_ms + min(grace_ms, LOOK_AGAIN_MS)
        self._due.marks = min([*later, again_ms])
        return deleted

    async def _claimed(self, now_ms: int, ttl_ms: int) -> Sequence[MarkedLedger]:
        """Claim old marks `made`, so that no leader can list their ledgers (LOGS.md#W11).

        Return all marks.
        """
        marked = await self._producers.marked(self._log_id)
        late = [mark for mark in marked if mark.is_made and now_ms - mark.marked_ms > ttl_ms]
        for mark in late:
            await self._producers.claim_made(self._log_id, mark.ledger_id)
        return await self._producers.marked(self._log_id) if late else marked

    async def _sweep_pages(self, now_ms: int, grace_ms: int) -> int:
        created_ms = await self._host.store.page_nodes(self._log_id)
        tokens = [token for token in created_ms if now_ms - created_ms[token] > grace_ms]
        deleted = 0
        for first in range(0, len(tokens), PAGES_AT_ONCE):
            machine = PagesSweep(self._head.name, tuple(tokens[first : first + PAGES_AT_ONCE]))
            deleted += len(await self._host.run(machine))
        self._due.pages = now_ms + min(grace_ms, LOOK_AGAIN_MS)
        return deleted

    async def _sweep_producers(self, now_ms: int) -> None:
        sealed: dict[str, int] = {}
        for app in await self._producers.names(self._log_id):
            found = await self._producers.read(self._log_id, app)
            if found is None:
                continue
            if await self._are_older_closed(app, found.value.epoch):
                sealed[app] = found.value.epoch
            await self._shrink(app, found, now_ms)
            await self._forget_job(app, found, now_ms)
        self._due.sealed = sealed
        self._due.producers = now_ms + LOOK_AGAIN_MS

    async def _are_older_closed(self, app: str, epoch: int) -> bool:
        """Seal open ledgers of replaced runs.

        Return whether no such ledger is open now (LOGS.md#P6).
        """
        if epoch == 1 or self._due.sealed.get(app) == epoch:
            return True
        older = await self._producers.registered_before(self._log_id, app, epoch)
        return not (await seal_open(older, self._host)).left

    async def _shrink(self, app: str, found: Versioned[ProducerRecord], now_ms: int) -> None:
        """Remove replaced runs from a producer record after `txnRetentionMs`.

        The last run and the last batch id stay. The last run shows which query wrote the producer's
        batches (LOGS.md#P4).
        """
        is_due = now_ms - found.value.time_ms > self._properties.txn_retention_ms
        if len(found.value.runs) <= 1 or not is_due:
            return
        if await self._producers.registered(self._log_id, app):
            return
        shrunk = replace(found.value, runs=found.value.runs[-1:])
        with contextlib.suppress(MetadataVersionError):  # the query started again
            await self._producers.write(self._log_id, app, shrunk, found.version)

    async def _forget_job(self, app: str, found: Versioned[ProducerRecord], now_ms: int) -> None:
        """Delete a producer that was created for one job, `stagingTtlMs` after its last change."""
        is_job = app.startswith(JOB_APP_PREFIX)
        if not is_job or now_ms - found.value.time_ms <= self._properties.staging_ttl_ms:
            return
        # While a ledger is registered, the job may still run, and the store refuses the deletion.
        with contextlib.suppress(MetadataVersionError):
            await self._producers.delete(self._log_id, app, found.version)

    async def sweep_deleted(self) -> Swept:
        """Delete the ledgers of a deleted log, and then the nodes of the log (LOGS.md#W10)."""
        # `recent_ms` needs no node of the log. Some nodes may be missing, if a process died while
        # it deleted them.
        log_id, now_ms = self._log_id, await self._host.store.recent_ms()
        self._due.see(now_ms)
        if now_ms < self._due.removal:
            return Swept(log_id)
        deleted_ms = await self._host.store.deleted_ms(log_id)
        if deleted_ms is None:
            return Swept(log_id)
        self._due.removal = deleted_ms + self._properties.deleted_retention_ms
        if now_ms < self._due.removal:
            return Swept(log_id)
        items = await self._items()
        ledger_ids = dict.fromkeys(sorted(listed_ledgers(self._head, items)))
        await self._deregister_all()
        ledger_ids |= dict.fromkeys(m.ledger_id for m in await self._producers.marked(log_id))
        if self._head.kind is LogKind.LEADER:
            # A leader that died before it listed a ledger may have left an orphan (LOGS.md#U19).
            ledger_ids |= dict.fromkeys(sorted(await LogChecker(self._host).own_ledgers()))
        kept: list[int] = []
        # The order is random. If the order were fixed, ledgers that cannot be sealed would delay
        # the same later ledgers in each pass.
        for ledger_id in self._host.random.sample(list(ledger_ids), len(ledger_ids)):
            may_seal = len(kept) < FAILED_SEALS_MAX
            if not await self._host.drop_ledger(ledger_id, may_seal=may_seal):
                kept.append(ledger_id)
        deleted = len(ledger_ids) - len(kept)
        if kept:
            await self._keep_marked(kept)
            self._due.removal = now_ms + LOOK_AGAIN_MS
            return Swept(log_id, ledgers_deleted=deleted, ledgers_kept=tuple(sorted(kept)))
        # If another pass could not seal a ledger and has just marked it, the log stays. The next
        # pass seals and deletes this ledger.
        is_removed = await self._host.store.remove_log(log_id)
        if not is_removed:
            self._due.removal = now_ms
        return Swept(log_id, ledgers_deleted=deleted, is_removed=is_removed)

    async def _keep_marked(self, ledger_ids: Sequence[int]) -> None:
        """Mark the remaining ledgers of a deleted log. The next pass reads only the marks."""
        _logger.warning(
            "deleted log %s still has ledgers that could not be sealed (%s, such as ledger %s): "
            "start the bookies of these ledgers, or run `ledgerlog ledgers delete`",
            *(self._head.name, len(ledger_ids), ledger_ids[0]),
        )
        for first in range(0, len(ledger_ids), STEP_LEDGERS_MAX):
            found = await self._host.store.read_head(self._log_id)
            if found is None or not found.value.items.count + len(found.value.open_ledgers):
                return
            some = tuple(ledger_ids[first : first + STEP_LEDGERS_MAX])
            is_last = first + STEP_LEDGERS_MAX >= len(ledger_ids)
            head = replace(found.value, token=uuid.uuid4().hex)
            if is_last:
                head = replace(head, items=Paged(), open_ledgers=())
            write = WriteHead(head.token, head, found.version, unlisted=some)
            await self._host.store.write_head(self._log_id, write)

    async def _items(self) -> tuple[Item, ...]:
        name = self._head.name
        walk: ListWalk[Item] = ListWalk(ITEMS, self._head.items, 0, self._head.end_offset)
        while walk.wanted:
            pages = await self._host.store.read_pages(self._log_id, walk.wanted)
            if pages is None:
                raise MetadataVersionError(
                    f"another process is already deleting the pages of the deleted log {name!r}",
                    log=name,
                )
            walk.feed(pages)
        return walk.records()

    async def _deregister_all(self) -> None:
        """Delete all registrations.

        Every producer record is written, so that no task can register a ledger any more.
        """
        for app in await self._producers.names(self._log_id):
            while (found := await self._producers.read(self._log_id, app)) is not None:
                registered = await self._producers.registered(self._log_id, app)
                some = registered[:STEP_LEDGERS_MAX]
                await self._producers.write(self._log_id, app, found.value, found.version, some)
                if not some:
                    break


def due_ledgers(marked: Sequence[MarkedLedger], now_ms: int, grace_ms: int) -> dict[int, int]:
    """Return the ledgers to delete, each with the time of its mark.

    A staged ledger, which was never listed, has no grace period.
    """
    return {
        mark.ledger_id: mark.marked_ms
        for mark in marked
        if mark.is_staged or (not mark.is_made and now_ms - mark.marked_ms >= grace_ms)
    }
