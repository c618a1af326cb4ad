"""Keeps the record of the bookie's directory in the metadata store, and compares it at the start.

At a start, the MANIFEST with raised counters is durable first, then the record is written by
compare-and-swap, then the bookie serves. So a directory with a smaller counter than the record is
an older copy (`core.directory_identity`). While the bookie stores data, the counter rises once in
an interval. It also rises at a clean stop. At most one rise waits for the metadata store.

After each possible loss, the record gets the new epoch of doubt, which is durable in the MANIFEST.
The id of the transaction of this write, or of a later one, dates the doubt: a ledger that a later
transaction creates has lost nothing. While the store is away, the write is repeated.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from bookie_server.core.directory_identity import (
    ACCEPTED,
    DirectoryFinding,
    DirectoryIdentity,
    FoundOutside,
    compare,
    found_outside,
    older_copy,
    refusal,
)
from bookie_server.core.doubt import Doubt
from bookie_server.ports import Tasks
from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.wire.known_bookie import KnownBookie

ATTEMPTS_MAX = 4
PAUSES = RetryPolicy(first_delay_ms=1_000, delay_max_ms=60_000)

_logger = get_logger("directory")


class CountedStorage(Protocol):
    """The part of the storage that has the counters of the directory."""

    @property
    def identity(self) -> DirectoryIdentity:
        """The identity and the counters in the durable MANIFEST."""

    @property
    def records_stored(self) -> int:
        """Number of records that this process has stored."""

    @property
    def doubt(self) -> Doubt:
        """The doubt in the durable MANIFEST."""

    async def count_change(self) -> None:
        """Raise the counter, unless the MANIFEST has no room."""

    async def date_doubt(self, epoch: int, transaction: int) -> None:
        """Store a transaction that began after the epoch was durable."""


class DirectoryRecord:
    """The record of one directory, from before the start of the storage until after its end."""

    def __init__(self, known: KnownBookies, bookie_id: str, path: str) -> None:
        self._known = known
        self._bookie_id = bookie_id
        self._path = path
        self._storage: CountedStorage | None = None  # from the first record of this process on
        self._written = DirectoryIdentity()  # what the record has
        self._version: Version | None = None
        self._records = 0  # records that the counter covers
        self._is_writing = False
        self._is_dating = False
        self._is_stopped = False

    async def check(self, local: DirectoryIdentity) -> FoundOutside:
        """Compare a directory with the record, and return the values of the record.

        An older copy lacks entries and fences, so the start with it raises the doubt.

        Raises:
            DirectoryIdentityError: It is another directory, or the bookie was taken out of service.
        """
        found = await self._known.read(self._bookie_id)
        known = None if found is None else found.value
        finding = compare(local, known)
        if known is None or finding in ACCEPTED:
            return found_outside(known)
        if finding is DirectoryFinding.OLDER_COPY:
            return found_outside(known, older_copy(self._path, local, known))
        raise refusal(finding, self._path, self._bookie_id, local, known)

    async def begin(self, storage: CountedStorage) -> None:
        """Write the raised counters of a start. The bookie may serve afterwards.

        Raises:
            DirectoryIdentityError: Another process has changed the record meanwhile.
            MetadataError: The record could not be written.
        """
        for attempt in range(ATTEMPTS_MAX):
            found = await self._compared(storage.identity)
            try:
                await self._write(storage.identity, None if found is None else found.version)
            except MetadataVersionError:
                # The last process of the bookie may have been writing its last record.
                if attempt == ATTEMPTS_MAX - 1:
                    raise
            else:
                break
        self._storage = storage
        self._records = storage.records_stored

    def follow(self, tasks: Tasks, interval_ms: int) -> None:
        """Raise the counter once in each interval in which the storage got records."""
        tasks.spawn("counter of the directory", self._follow(tasks, interval_ms))

    def note_doubt(self, tasks: Tasks) -> None:
        """Write the record with the newest epoch of doubt, and date the doubt, as soon as possible.

        The storage calls this after it has raised the doubt durably.
        """
        if not self._is_dating and not self._is_stopped:
            self._is_dating = True
            tasks.spawn("date of the doubt", self._date_until_it_succeeds(tasks))

    async def _date_until_it_succeeds(self, tasks: Tasks) -> None:
        try:
            for pause_ms in PAUSES.pauses_ms():
                if self._is_stopped or await self._has_dated():
                    break
                await tasks.sleep(pause_ms)
        finally:
            self._is_dating = False

    async def _has_dated(self) -> bool:
        storage = self._storage
        assert storage is not None, "the doubt is dated after the start"
        await self.write_record()
        try:
            await self._date(storage)
        except LedgerLogError as error:
            _logger.warning("doubt_not_dated", **fields_of(error))
            return False
        doubt = storage.doubt
        return doubt.epoch == 0 or doubt.transaction > 0

    async def _date(self, storage: CountedStorage) -> None:
        """Date the doubt if the record has its epoch.

        The epoch was durable before the record was written. So any transaction that wrote the
        record since then began after the epoch was durable.
        """
        doubt = storage.doubt
        is_open = doubt.epoch > 0 and not doubt.transaction
        if is_open and self._written.doubt_epoch == doubt.epoch:
            transaction = await self._known.transaction(self._bookie_id)
            await storage.date_doubt(doubt.epoch, transaction)

    def stop(self) -> None:
        """Raise the counter no more."""
        self._is_stopped = True

    async def close(self, timeout_ms: int) -> None:
        """Write the counter of a clean stop, after the storage is closed.

        If this fails, the counter of the directory is ahead of the record, which the next start
        accepts.
        """
        self._is_stopped = True
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self.write_record()
        except TimeoutError as error:
            _logger.warning("counter_not_written", **fields_of(error))

    async def _follow(self, tasks: Tasks, interval_ms: int) -> None:
        while not self._is_stopped:
            await tasks.sleep(interval_ms)
            if not self._is_stopped:
                await self.advance()

    async def advance(self) -> None:
        """End an interval: raise the counter if the storage got records, and write the record."""
        storage = self._storage
        assert storage is not None, "the counter is followed after the start"
        records = storage.records_stored
        # While the store is away, the counter waits: it is ahead of the record at most by one.
        if records != self._records and storage.identity == self._written:
            # Records that arrive during the commit are counted in the next interval.
            self._records = records
            await storage.count_change()
        await self.write_record()

    async def write_record(self) -> None:
        """Write the record if the directory has changed. Without success, the next call tries it.

        The record is never ahead of the MANIFEST on the device.
        """
        # The writes follow each other, because each needs the version of the last one.
        if self._storage is None or self._storage.identity == self._written or self._is_writing:
            return
        self._is_writing = True
        try:
            await self._write(self._storage.identity, self._version)
        except MetadataVersionError as error:
            # An operator has changed the record, or another process serves with this bookie id.
            self._is_stopped = True
            _logger.error("record_was_changed", **fields_of(error))  # noqa: TRY400 - no bug
        except LedgerLogError as error:
            _logger.warning("counter_not_written", **fields_of(error))
        finally:
            self._is_writing = False

    async def _write(self, identity: DirectoryIdentity, version: Version | None) -> None:
        self._version = await self._known.write(self._bookie_id, identity.known(), version)
        self._written = identity

    async def _compared(self, local: DirectoryIdentity) -> Versioned[KnownBookie] | None:
        found = await self._known.read(self._bookie_id)
        known = None if found is None else found.value
        finding = compare(local, known)
        if known is not None and finding not in ACCEPTED:
            raise refusal(finding, self._path, self._bookie_id, local, known)
        return found
