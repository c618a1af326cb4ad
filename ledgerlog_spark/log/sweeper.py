"""Lets go of what no version of a log names, step by step (DESIGN 6.4, 6.6; docs/LOGS.md W1-W7).

Safe to run at any time, several times at once, and to be killed at any moment: what is due is
written down before anything is deleted.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError
from ledgerlog_spark.log.driver import Driver
from ledgerlog_spark.log.older_ledgers import seal_open
from ledgerlog_spark.protocol.log_expiry import Expired, ExpiryMachine
from ledgerlog_spark.protocol.log_properties import JOB_APP_PREFIX, LogProperties
from ledgerlog_spark.protocol.log_read import listed_ledgers
from ledgerlog_spark.protocol.log_records import LogHead
from ledgerlog_spark.protocol.log_rows import ITEMS
from ledgerlog_spark.protocol.log_sweep import (
    STEP_LEDGERS_MAX,
    Deregistered,
    LedgerSweep,
    PagesSweep,
    StagedSweep,
)
from ledgerlog_spark.protocol.log_walk import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.log.ports import Ledgers
    from ledgerlog_spark.metadata.log_store_port import LogStore, MarkedLedger
    from ledgerlog_spark.protocol.log_records import Item

PAGES_GRACE_MS = 3_600_000
"""Pages younger than this are left alone, so that commits on their way need not start again."""

PAGES_AT_ONCE = 100

ATTEMPTS_MAX = 20
"""Of a step that a commit crossed: a stream with a commit every few milliseconds crosses most."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass over one log let go of.

    Attributes:
        log_id: Of the log.
        unlisted: Ledgers that no retained version names from now on.
        deregistered: Staged ledgers that nobody can commit any more.
        ledgers_deleted: Ledgers sealed and deleted.
        pages_deleted: Tokens of which pages were deleted.
        is_removed: The log was deleted long enough ago, and now its last record is gone.
    """

    log_id: str
    unlisted: int = 0
    deregistered: int = 0
    ledgers_deleted: int = 0
    pages_deleted: int = 0
    is_removed: bool = False


class Sweeper:
    """One pass at a time; run it from time to time."""

    def __init__(
        self, *, store: LogStore, ledgers: Ledgers, pages_grace_ms: int = PAGES_GRACE_MS
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._pages_grace_ms = pages_grace_ms

    async def sweep_all(self) -> tuple[list[Swept], list[LedgerLogError]]:
        """One pass over every log; one that fails does not keep the others waiting."""
        swept, errors = [], []
        for log_id in await self._store.ids():
            try:
                swept.append(await self.sweep(log_id))
            except LedgerLogError as error:
                errors.append(error)
        return swept, errors

    async def sweep(self, log_id: str) -> Swept:
        """One pass over one log.

        Raises:
            MetadataError: The store failed; what was done so far stands.
        """
        driver = Driver(self._store, log_id, ledgers=self._ledgers, keeps_pages=True)
        found = await self._store.read_head(log_id)
        if found is None or found.value.deleted_ms:
            return await self._sweep_deleted(log_id, found.value if found else None)
        head = found.value
        properties = LogProperties.from_mapping(head.properties)
        unlisted = await self._expire(driver, head, properties)
        deregistered = await self._sweep_staged(driver, head, properties)
        deleted = await self._sweep_ledgers(driver, head, properties.deleted_retention_ms)
        pages = await self._sweep_pages(driver, head)
        await self._shrink_producers(log_id, properties)
        await self._forget_jobs(log_id, properties)
        return Swept(log_id, unlisted, deregistered, deleted, pages)

    async def _expire(self, driver: Driver, head: LogHead, properties: LogProperties) -> int:
        unlisted = crossed = 0
        while crossed < ATTEMPTS_MAX:
            machine = ExpiryMachine(
                head.name,
                version_retention_ms=properties.version_retention_ms,
                token=uuid.uuid4().hex,
                is_fresh=not crossed,
            )
            step: Expired = await driver.run(machine)
            unlisted += len(step.unlisted)
            crossed += not step.is_changed
            if step.is_complete:
                break
        return unlisted

    async def _sweep_staged(self, driver: Driver, head: LogHead, properties: LogProperties) -> int:
        deregistered = 0
        for app in await self._store.producers(driver.log_id):
            await self._seal_older(driver, head, app)
            crossed = 0
            while crossed < ATTEMPTS_MAX:
                machine = StagedSweep(head.name, app=app, staging_ttl_ms=properties.staging_ttl_ms)
                step: Deregistered = await driver.run(machine)
                deregistered += len(step.unlisted)
                crossed += not (step.unlisted or step.released)
                await seal_open(step.released, log=head.name, driver=driver, ledgers=self._ledgers)
                if step.is_complete:
                    break
        return deregistered

    async def _seal_older(self, driver: Driver, head: LogHead, app: str) -> None:
        """Close what replaced runs left open, in case that nobody else could (P6)."""
        found = await self._store.read_producer(driver.log_id, app)
        if found is not None:
            older = await self._store.registered_before(driver.log_id, app, found.value.epoch)
            await seal_open(older, log=head.name, driver=driver, ledgers=self._ledgers)

    async def _sweep_ledgers(self, driver: Driver, head: LogHead, grace_ms: int) -> int:
        marked = await self._store.marked(driver.log_id)
        due = due_ledgers(marked, await self._store.now_ms(driver.log_id), grace_ms)
        deleted = 0
        for first in range(0, len(due), STEP_LEDGERS_MAX):
            some = due[first : first + STEP_LEDGERS_MAX]
            for _ in range(ATTEMPTS_MAX):
                machine = LedgerSweep(head.name, some)
                gone: tuple[int, ...] = await driver.run(machine)
                deleted += len(gone)
                if not machine.is_crossed:
                    break
        return deleted

    async def _sweep_pages(self, driver: Driver, head: LogHead) -> int:
        now_ms = await self._store.now_ms(driver.log_id)
        tokens = [
            node.token
            for node in await self._store.page_nodes(driver.log_id)
            if now_ms - node.created_ms > self._pages_grace_ms
        ]
        deleted = 0
        for first in range(0, len(tokens), PAGES_AT_ONCE):
            some = tuple(tokens[first : first + PAGES_AT_ONCE])
            gone: tuple[str, ...] = await driver.run(PagesSweep(head.name, some))
            deleted += len(gone)
        return deleted

    async def _shrink_producers(self, log_id: str, properties: LogProperties) -> None:
        """After `txnRetentionMs` replaced runs go; the last run and the last batch id never do.

        The last run names the query whose batches these are (P4).
        """
        now_ms = await self._store.now_ms(log_id)
        for app in await self._store.producers(log_id):
            found = await self._store.read_producer(log_id, app)
            if found is None or len(found.value.runs) <= 1:
                continue
            idle_ms = now_ms - found.value.time_ms
            if idle_ms <= properties.transaction_retention_ms:
                continue
            if await self._store.registered(log_id, app):
                continue
            shrunk = replace(found.value, runs=found.value.runs[-1:])
            try:
                await self._store.write_producer(log_id, app, shrunk, found.version)
            except MetadataVersionError:
                continue  # it came back to life

    async def _forget_jobs(self, log_id: str, properties: LogProperties) -> None:
        """Producers that were made up for one job go, `stagingTtlMs` after their last change."""
        now_ms = await self._store.now_ms(log_id)
        for app in await self._store.producers(log_id):
            if not app.startswith(JOB_APP_PREFIX):
                continue
            found = await self._store.read_producer(log_id, app)
            if found is None or now_ms - found.value.time_ms <= properties.staging_ttl_ms:
                continue
            # Refused while a ledger is registered: the job may still be at work.
            with contextlib.suppress(MetadataVersionError):
                await self._store.delete_producer(log_id, app, found.version)

    async def _sweep_deleted(self, log_id: str, head: LogHead | None) -> Swept:
        """Ledgers first, then the records; the deletion already made every commit fail."""
        deleted_ms = await self._store.deleted_ms(log_id)
        if deleted_ms is None:
            return Swept(log_id)
        if head is None:
            await self._store.remove_log(log_id)
            return Swept(log_id, is_removed=True)
        properties = LogProperties.from_mapping(head.properties)
        now_ms = await self._store.now_ms(log_id)
        if now_ms - deleted_ms < properties.deleted_retention_ms:
            return Swept(log_id)
        items = await self._items(log_id, head)
        ledger_ids = dict.fromkeys(sorted(listed_ledgers(head, items)))
        await self._deregister_all(log_id)
        ledger_ids |= dict.fromkeys(m.ledger_id for m in await self._store.marked(log_id))
        driver = Driver(self._store, log_id, ledgers=self._ledgers)
        for ledger_id in ledger_ids:
            await driver.drop_ledger(ledger_id)
        await self._store.remove_log(log_id)
        return Swept(log_id, ledgers_deleted=len(ledger_ids), is_removed=True)

    async def _items(self, log_id: str, head: LogHead) -> tuple[Item, ...]:
        walk: Walk[Item] = Walk(ITEMS, head.items, 0, head.end_offset)
        while walk.wanted:
            pages = await self._store.read_pages(log_id, walk.wanted)
            if pages is None:
                raise MetadataVersionError(
                    f"the pages of deleted log {head.name!r} are going already", log=head.name
                )
            walk.feed(pages)
        return walk.records()

    async def _deregister_all(self, log_id: str) -> None:
        """Every producer record moves, so no task can register a ledger unseen afterwards."""
        for app in await self._store.producers(log_id):
            while True:
                found = await self._store.read_producer(log_id, app)
                if found is None:
                    break
                ledger_ids = list(await self._store.registered(log_id, app))[:STEP_LEDGERS_MAX]
                await self._store.write_producer(
                    log_id, app, found.value, found.version, ledger_ids
                )
                if not ledger_ids:
                    break


def due_ledgers(marked: Sequence[MarkedLedger], now_ms: int, grace_ms: int) -> tuple[int, ...]:
    """Ledgers whose time of grace is over; those that were never listed need none."""
    return tuple(
        mark.ledger_id for mark in marked if mark.is_staged or now_ms - mark.marked_ms >= grace_ms
    )
