"""Keeps the record of the bookie's directory in the metadata store, and compares it at the start.

At a start, the MANIFEST with raised counters is durable first, then the record is written by
compare-and-swap, then the bookie serves. So a directory with a smaller counter than the record is
an older copy (`core.directory_identity`). While the bookie stores data, the counter rises once in
an interval. It also rises at a clean stop. At most one rise waits for the metadata store.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from bookie_server.core.directory_identity import (
    ACCEPTED,
    DirectoryIdentity,
    compare,
    refusal,
)
from bookie_server.ports import Tasks
from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.known_bookie import KnownBookie

ATTEMPTS_MAX = 4

_logger = get_logger("directory")


class CountedStorage(Protocol):
    """The part of the storage that has the counters of the directory."""

    @property
    def identity(self) -> DirectoryIdentity:
        """The identity and the counters in the durable MANIFEST."""

    @property
    def records_stored(self) -> int:
        """Number of records that this process has stored."""

    async def count_change(self) -> None:
        """Raise the counter, unless the MANIFEST has no room."""


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
        self._is_stopped = False

    async def check(self, local: DirectoryIdentity) -> None:
        """Refuse a directory that is not the newest state. Nothing is changed.

        Raises:
            DirectoryIdentityError: The directory is an older copy or another directory.
        """
        await self._compared(local)

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
        if self._storage is None or self._storage.identity == self._written:
            return
        try:
            await self._write(self._storage.identity, self._version)
        except MetadataVersionError as error:
            # An operator has changed the record, or another process serves with this bookie id.
            self._is_stopped = True
            _logger.error("record_was_changed", **fields_of(error))  # noqa: TRY400 - no bug
        except LedgerLogError as error:
            _logger.warning("counter_not_written", **fields_of(error))

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
