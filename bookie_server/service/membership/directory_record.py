"""Keeps the record of the bookie's directories in the metadata store, for checks at each start.

A start increases the counters in the MANIFESTs and makes the MANIFESTs durable. Then it writes the
record with a compare-and-swap. Only then does the bookie serve. So a directory with a smaller
counter than the record is an older copy (`core.directory_identity`). While a directory gets data,
its counter is increased once in an interval. The counter is also increased at a clean stop. Each
counter is at most one ahead of the record in the metadata store. Another process may change the
record while the bookie serves. If a start would accept the changed record, the bookie overwrites
the record. Otherwise, the bookie stops writing the record.

After each possible loss, the record gets the new epoch of doubt, which is durable in the MANIFEST.
The id of the transaction of this write, or of a later write, is stored with the doubt. A ledger
that is created by a later transaction has lost nothing. The write is repeated until it reaches the
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from bookie_server.core.directory_identity import (
    ACCEPTED,
    DirectoryFinding,
    DirectoryIdentity,
    FoundOutside,
    compare_all,
    equal_copy,
    found_outside,
    known_bookie,
    missing_directory,
    older_copy,
    refusal,
)
from bookie_server.core.doubt import Doubt
from bookie_server.errors import DirectoryIdentityError, StorageError
from bookie_server.ports import Tasks
from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import Version
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie

ATTEMPTS_MAX = 4
PAUSES = RetryPolicy(first_delay_ms=1_000, delay_max_ms=60_000)

_logger = get_logger("directory")


class CountedStorage(Protocol):
    """The part of the storage that has the counters of a directory."""

    @property
    def identity(self) -> DirectoryIdentity:
        """The identity and the counters in the durable MANIFEST."""

    @property
    def records_stored(self) -> int:
        """Number of records that this process has stored."""

    @property
    def doubt(self) -> Doubt:
        """The doubt in the durable MANIFEST."""

    @property
    def failure(self) -> StorageError | None:
        """The error that ended the storage, or None if the storage works."""

    async def count_change(self) -> None:
        """Increase the counter by one, unless the disk has no room for the MANIFEST."""

    async def date_doubt(self, epoch: int, transaction: int) -> None:
        """Store the id of a transaction that began after the epoch of doubt was durable."""


class DirectoryRecord:
    """The record of all directories. It is used before, while and after the storage is open.

    Args:
        known: The store of the records.
        bookie_id: The bookie.
        paths: The paths of its directories.
    """

    def __init__(self, known: KnownBookies, bookie_id: str, paths: Sequence[str]) -> None:
        self._known = known
        self._bookie_id = bookie_id
        self._paths = paths
        self._storages: Sequence[CountedStorage] = ()  # empty before `begin`
        self._written: Sequence[DirectoryIdentity] = ()  # contents of the record
        self._version: Version | None = None
        self._records: list[int] = []  # per directory: number of stored records at its last count
        self._is_writing = False
        self._is_dating = False
        self._is_stopped = False

    async def check(
        self, local: Sequence[DirectoryIdentity], *, may_miss: bool = False
    ) -> list[FoundOutside]:
        """Compare each directory with the record, and return the values of the record.

        An older copy lacks entries and fences, so a start with an older copy begins a new epoch of
        doubt. If `may_miss` is true, the record may contain further directories. The next write of
        the record removes them.

        Raises:
            DirectoryIdentityError: A directory does not belong to the bookie, or the bookie was
                taken out of service.
        """
        found = await self._known.read(self._bookie_id)
        known = None if found is None else found.value
        return [
            found_outside(known, older_copy(path, identity, known) if is_older and known else "")
            for path, identity, is_older in self._compared(local, known, may_miss=may_miss)
        ]

    async def begin(
        self,
        storages: Sequence[CountedStorage],
        change: tuple[Cookie, Version] | None = None,
    ) -> None:
        """Write the increased counters of a start into the record. The bookie may serve afterwards.

        `change` is a new cookie for the bookie, and the version of the cookie that it replaces. The
        new cookie is written in the same transaction. The new record contains only the directories
        of `storages`.

        Raises:
            DirectoryIdentityError: Another process has changed the record since `check`.
            MetadataError: The metadata store could not write the record.
        """
        for attempt in range(ATTEMPTS_MAX):
            local = [storage.identity for storage in storages]
            found = await self._known.read(self._bookie_id)
            known, version = (None, None) if found is None else (found.value, found.version)
            self._refuse_older(self._compared(local, known, may_miss=change is not None), known)
            for path, identity in zip(self._paths, local, strict=True):
                if error := equal_copy(path, self._bookie_id, identity, known):
                    raise error
            try:
                if change is None:
                    await self._write(local, version)
                else:
                    await self._write_change(local, version, *change)
            except MetadataVersionError:
                # The previous process of the bookie may have written the record at this time.
                if attempt == ATTEMPTS_MAX - 1:
                    raise
            else:
                break
        self._storages = storages
        self._records = [storage.records_stored for storage in storages]

    def follow(self, tasks: Tasks, interval_ms: int) -> None:
        """After each interval, increase the counters of the directories that got records."""
        tasks.spawn("counters of the directories", self._follow(tasks, interval_ms))

    def note_doubt(self, tasks: Tasks) -> None:
        """Write the record with the newest epoch of doubt. Then store the id of this transaction.

        The storage calls this after the new epoch of doubt is durable.
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
        assert self._storages, "the transaction of a doubt is stored after the start"
        await self.write_record()
        # A directory that has failed cannot store a transaction.
        storages = [each for each in self._storages if each.failure is None]
        try:
            for storage in storages:
                await self._date(storage)
        except LedgerLogError as error:
            _logger.warning("doubt_not_dated", **fields_of(error))
            return False
        doubts = [storage.doubt for storage in storages]
        return all(doubt.epoch == 0 or doubt.transaction > 0 for doubt in doubts)

    async def _date(self, storage: CountedStorage) -> None:
        """Store the transaction id of a directory's doubt if the record has the doubt's epoch.

        The epoch was durable before the record was written. So any transaction that wrote the
        record since then began after the epoch was durable.
        """
        doubt = storage.doubt
        is_open = doubt.epoch > 0 and not doubt.transaction
        written = self._written[self._storages.index(storage)]
        if is_open and written.doubt_epoch == doubt.epoch:
            transaction = await self._known.transaction(self._bookie_id)
            await storage.date_doubt(doubt.epoch, transaction)

    def stop(self) -> None:
        """Stop increasing the counters."""
        self._is_stopped = True

    async def close(self, timeout_ms: int) -> None:
        """Write the counters of a clean stop into the record, after the storage is closed.

        If this fails, the counters of the directories are ahead of the record. The next start
        accepts this.
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
        """End an interval: increase the counters of directories with new records.

        Write the record.
        """
        assert self._storages, "the counters are raised after the start"
        for number, storage in enumerate(self._storages):
            records = storage.records_stored
            # The counter is at most one ahead of the record. So while the store is away, the
            # counter rises at most once.
            if records != self._records[number] and storage.identity == self._written[number]:
                # Records that arrive while the counter is stored are counted in the next interval.
                self._records[number] = records
                await storage.count_change()
        await self.write_record()

    async def write_record(self) -> None:
        """Write the record if a directory has changed. If this fails, the next call writes it.

        The counters in the record are never above the counters in the durable MANIFESTs.
        """
        local = [storage.identity for storage in self._storages]
        # Only one write runs at a time, because each write needs the version that the last write
        # returned.
        if not local or local == self._written or self._is_writing:
            return
        self._is_writing = True
        try:
            await self._write(local, self._version)
        except MetadataVersionError as error:
            _logger.warning("record_was_changed", **fields_of(error))
            await self._accept_change(local)
        except LedgerLogError as error:
            _logger.warning("counter_not_written", **fields_of(error))
        finally:
            self._is_writing = False

    async def _accept_change(self, local: Sequence[DirectoryIdentity]) -> None:
        """Let the next write replace the changed record, if a start would accept it.

        An operator has changed the record, or another process serves with this bookie id. Without
        this method, this process could no longer write the record, and could not store the
        transaction of a later doubt.
        """
        try:
            found = await self._known.read(self._bookie_id)
            known = None if found is None else found.value
            self._refuse_older(self._compared(local, known, may_miss=False), known)
        except DirectoryIdentityError as error:
            self._is_stopped = True
            _logger.error("record_refused", **fields_of(error))  # noqa: TRY400 - no bug
        except LedgerLogError as error:
            _logger.warning("counter_not_written", **fields_of(error))
        else:
            self._version = None if found is None else found.version

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

    def _refuse_older(
        self, compared: Sequence[tuple[str, DirectoryIdentity, bool]], known: KnownBookie | None
    ) -> None:
        """Refuse a record with newer counters, which another process has written."""
        for path, identity, is_older in compared:
            if is_older and known is not None:
                raise refusal(DirectoryFinding.OLDER_COPY, path, self._bookie_id, identity, known)

    def _compared(
        self, local: Sequence[DirectoryIdentity], known: KnownBookie | None, *, may_miss: bool
    ) -> list[tuple[str, DirectoryIdentity, bool]]:
        """Return each directory with its path, and whether it is an older copy."""
        compared = []
        for path, identity, finding in zip(
            self._paths, local, compare_all(local, known), strict=True
        ):
            is_older = finding is DirectoryFinding.OLDER_COPY
            if known is not None and not is_older and finding not in ACCEPTED:
                raise refusal(finding, path, self._bookie_id, identity, known)
            compared.append((path, identity, is_older))
        if known is not None and len(known.directories) > len(local) and not may_miss:
            raise missing_directory(self._bookie_id, local, known)
        return compared
