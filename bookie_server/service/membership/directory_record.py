"""Keeps the record of the bookie's directories in the metadata store. A start compares it.

At a start, the MANIFESTs with raised counters are durable first, then the record is written by
compare-and-swap, then the bookie serves. So a directory with a smaller counter than the record is
an older copy (`core.directory_identity`). While a directory gets data, its counter rises once in an
interval. It also rises at a clean stop. At most one rise of each counter waits for the metadata
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from bookie_server.core.directory_identity import (
    ACCEPTED,
    DirectoryIdentity,
    compare_all,
    known_bookie,
    missing_directory,
    refusal,
)
from bookie_server.ports import Tasks
from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie

ATTEMPTS_MAX = 4

_logger = get_logger("directory")


class CountedStorage(Protocol):
    """The part of the storage that has the counters of a directory."""

    @property
    def identity(self) -> DirectoryIdentity:
        """The identity and the counters in the durable MANIFEST."""

    @property
    def records_stored(self) -> int:
        """Number of records that this process has stored."""

    async def count_change(self) -> None:
        """Raise the counter, unless the MANIFEST has no room."""


class DirectoryRecord:
    """The record of all directories, from before the start of the storage until after its end.

    Args:
        known: The store of the records.
        bookie_id: The bookie.
        paths: The paths of its directories.
    """

    def __init__(self, known: KnownBookies, bookie_id: str, paths: Sequence[str]) -> None:
        self._known = known
        self._bookie_id = bookie_id
        self._paths = paths
        self._storages: Sequence[CountedStorage] = ()  # from the first record of this process on
        self._written: Sequence[DirectoryIdentity] = ()  # what the record has
        self._version: Version | None = None
        self._records: list[int] = []  # records that the counters cover
        self._is_stopped = False

    async def check(self, local: Sequence[DirectoryIdentity], *, may_miss: bool = False) -> None:
        """Refuse a directory that is not the newest state. Nothing is changed.

        With `may_miss`, the record may have further directories, which the next record removes.

        Raises:
            DirectoryIdentityError: A directory is an older copy or another directory.
        """
        await self._compared(local, may_miss=may_miss)

    async def begin(
        self,
        storages: Sequence[CountedStorage],
        change: tuple[Cookie, Version] | None = None,
    ) -> None:
        """Write the raised counters of a start. The bookie may serve afterwards.

        `change` is a new cookie for the bookie, and the version of the cookie that it replaces. It
        is written in the same transaction, and the record loses the directories that are not among
        the storages.

        Raises:
            DirectoryIdentityError: Another process has changed the record meanwhile.
            MetadataError: The record could not be written.
        """
        for attempt in range(ATTEMPTS_MAX):
            local = [storage.identity for storage in storages]
            found = await self._compared(local, may_miss=change is not None)
            version = None if found is None else found.version
            try:
                if change is None:
                    await self._write(local, version)
                else:
                    await self._write_change(local, version, *change)
            except MetadataVersionError:
                # The last process of the bookie may have been writing its last record.
                if attempt == ATTEMPTS_MAX - 1:
                    raise
            else:
                break
        self._storages = storages
        self._records = [storage.records_stored for storage in storages]

    def follow(self, tasks: Tasks, interval_ms: int) -> None:
        """Raise the counters once in each interval in which their directories got records."""
        tasks.spawn("counters of the directories", self._follow(tasks, interval_ms))

    def stop(self) -> None:
        """Raise the counters no more."""
        self._is_stopped = True

    async def close(self, timeout_ms: int) -> None:
        """Write the counters of a clean stop, after the storage is closed.

        If this fails, the counters of the directories are ahead of the record, which the next start
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
        """End an interval: raise the counters of directories with records, write the record."""
        assert self._storages, "the counters are followed after the start"
        for number, storage in enumerate(self._storages):
            records = storage.records_stored
            # While the store is away, the counter waits: it is ahead of the record at most by one.
            if records != self._records[number] and storage.identity == self._written[number]:
                # Records that arrive during the commit are counted in the next interval.
                self._records[number] = records
                await storage.count_change()
        await self.write_record()

    async def write_record(self) -> None:
        """Write the record if a directory has changed. Without success, the next call tries it.

        The record is never ahead of the MANIFESTs on the devices.
        """
        local = [storage.identity for storage in self._storages]
        if local == self._written:
            return
        try:
            await self._write(local, self._version)
        except MetadataVersionError as error:
            # An operator has changed the record, or another process serves with this bookie id.
            self._is_stopped = True
            _logger.error("record_was_changed", **fields_of(error))  # noqa: TRY400 - no bug
        except LedgerLogError as error:
            _logger.warning("counter_not_written", **fields_of(error))

    async def _write(self, local: Sequence[DirectoryIdentity], version: Version | None) -> None:
        self._version = await self._known.write(self._bookie_id, known_bookie(local), version)
        self._written = local

    async def _write_change(
        self,
        local: Sequence[DirectoryIdentity],
        version: Version | None,
        cookie: Cookie,
        cookie_version: Version,
    ) -> None:
        await self._known.write_with_cookie(
            self._bookie_id, known_bookie(local), version, cookie.encode(), cookie_version
        )
        found = await self._known.read(self._bookie_id)
        self._version = None if found is None else found.version
        self._written = local

    async def _compared(
        self, local: Sequence[DirectoryIdentity], *, may_miss: bool
    ) -> Versioned[KnownBookie] | None:
        found = await self._known.read(self._bookie_id)
        known = None if found is None else found.value
        findings = compare_all(local, known)
        if known is None:
            return found
        for path, identity, finding in zip(self._paths, local, findings, strict=True):
            if finding not in ACCEPTED:
                raise refusal(finding, path, self._bookie_id, identity, known)
        if len(known.directories) > len(local) and not may_miss:
            raise missing_directory(self._bookie_id, local, known)
        return found
