"""Reads the records or rows of a leader log, either up to an end or without end (a tail).

A closed ledger is read up to its end in the list. An open ledger is read up to its last add
confirmed, and a tail follows it until it is closed. The next ledger is read only after the end of
the ledger before it, so that the records are in order and without a gap (LOGS.md#J13).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ledgerlog_spark.errors import (
    ConfigurationError,
    DataLossError,
    EntryNotFoundError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    PositionNotAvailableError,
)
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.ports import LedgerReaderHandle, Ledgers
from ledgerlog_spark.log.reading import open_ends
from ledgerlog_spark.log.reading.committed_range import read_range
from ledgerlog_spark.log.reading.ledger_entries import EntryCursor, entry_holding
from ledgerlog_spark.protocol.log.read.view import LogView, ViewMachine
from ledgerlog_spark.protocol.log.state.records import Item
from ledgerlog_spark.retry import ENDLESS
from ledgerlog_spark.waits import forever

T = TypeVar("T")

NOTIFIED_SIZE_BYTES_MAX = 64 << 10
"""Maximum bytes of the new entries in a notification. These entries need no read request."""

ABOVE_ANY_VERSION = 1 << 62
"""A number above all version numbers.

If a reader passes it as its known version, no history is read."""


class _Changes:
    """The changes for which a tail waits.

    `is_list_stale` states whether the list may have changed since it was read. `is_log_doubtful`
    states whether the log may have been deleted since the list was read.
    """

    def __init__(self, ledgers: Ledgers) -> None:
        self.is_list_stale = False
        self.is_log_doubtful = False
        self._ledgers = ledgers
        self._changed = asyncio.Event()

    def on_list(self) -> None:
        """Record that the list may have changed."""
        self.is_list_stale = self.is_log_doubtful = True
        self._changed.set()

    def on_ledger(self) -> None:
        """Record that a followed ledger may have changed, or that the client was closed."""
        self._changed.set()

    async def following(self) -> None:
        """Wait until the list, a followed ledger or the client has changed since the last call."""
        await forever(self._changed.wait(), "a tail waits for the next record")
        self._changed.clear()
        self._ledgers.check_open()


class RecordReader(Generic[T]):
    """Reads one leader log of records or rows.

    In this module, "records" also means batches of rows.

    `cursor_of` creates the cursor that decodes the entries of the log.
    """

    def __init__(self, host: LogHost, cursor_of: Callable[..., EntryCursor[T]]) -> None:
        self._host = host
        self._name = host.name
        self._ledgers = host.ledgers
        self._cursor_of = cursor_of

    async def read(self, start: int | None, end: int | None) -> AsyncGenerator[list[T], None]:
        """Yield the records from `start` (inclusive) to `end` (exclusive), in batches and in order.

        Raises the errors of `RecordLog.read`.
        """
        view = await self._ended(start or 0)
        first = view.start_offset if start is None else start
        end = view.end_offset if end is None else end
        if not view.start_offset <= first <= view.end_offset:
            raise self._not_available(first, view)
        if end < first:
            raise ConfigurationError(
                f"log {self._name!r} cannot be read from {first} to {end}: the end must not be "
                "before the start",
                log=self._name,
            )
        if end > view.end_offset:
            raise self._not_available(end, view)
        cursor = self._cursor(first, end)
        try:
            async with contextlib.aclosing(_chained(self._listed_parts(view, cursor))) as batches:
                async for records in batches:
                    yield records
        except LedgerNotFoundError as error:
            self._check_is_kept(cursor, await self._listed(cursor.next_offset))
            raise self._loss(error, cursor) from error
        except DataLossError:
            self._check_is_kept(cursor, await self._listed(cursor.next_offset))
            raise

    async def tail(self, start: int | None) -> AsyncGenerator[list[T], None]:
        """Yield all records from `start` on, and each new record soon after its acknowledgement.

        A tail waits until a watch notifies it of a change. It ends only with an error, or when the
        caller closes it. While no record is appended, a tail sends no request (LOGS.md#H5). Raises
        the errors of `RecordLog.tail`.
        """
        cursor = self._cursor((await self._ended(0)).end_offset if start is None else start)
        changes = _Changes(self._ledgers)
        cancels = (
            self._ledgers.when_closed(changes.on_ledger),
            self._host.store.watch_head(self._host.log_id, changes.on_list),
        )
        finished: set[int] = set()
        listings = 0
        try:
            view = await self._listed(cursor.next_offset)
            while True:
                self._check_is_kept(cursor, view)
                before = cursor.next_offset
                parts = _chained(self._all_parts(view, cursor, finished, changes))
                try:
                    async with contextlib.aclosing(parts) as batches:
                        async for records in batches:
                            yield records
                    while not changes.is_list_stale:
                        await changes.following()
                except MetadataUnavailableError:
                    pass  # `_relisted` waits until the store answers
                except DataLossError:
                    self._check_is_kept(cursor, await self._relisted(cursor))
                    raise
                except LedgerNotFoundError as error:
                    # The ledger may have been truncated, so the list is read once more.
                    listings = 1 if cursor.next_offset > before else listings + 1
                    if listings > open_ends.LISTINGS_MAX:
                        raise self._loss(error, cursor) from error
                changes.is_list_stale = False
                view = await self._relisted(cursor)
        finally:
            for cancel in cancels:
                cancel()

    async def _listed(self, first_offset: int) -> LogView:
        """Read the list of the log from an offset on, without the ends of open ledgers."""
        return await self._host.run(
            ViewMachine(self._name, first_offset=first_offset, known_version=ABOVE_ANY_VERSION)
        )

    async def _ended(self, first_offset: int) -> LogView:
        """Read the list of the log from an offset on, with an item for each open ledger."""
        return await open_ends.view(self._host, first_offset, known_version=ABOVE_ANY_VERSION)

    async def _relisted(self, cursor: EntryCursor[T]) -> LogView:
        """Read the present list of the log. Retry until the metadata store answers."""
        pauses_ms = ENDLESS.pauses_ms()
        while True:
            self._ledgers.check_open()
            try:
                return await self._listed(cursor.next_offset)
            except MetadataUnavailableError:
                await asyncio.sleep(next(pauses_ms) / 1e3)

    def _listed_parts(
        self, view: LogView, cursor: EntryCursor[T]
    ) -> Iterator[AsyncGenerator[list[T], None]]:
        for item in view.items:
            if item.end_offset > cursor.next_offset and not cursor.is_done:
                yield self._records_of(item, cursor)

    def _all_parts(
        self, view: LogView, cursor: EntryCursor[T], finished: set[int], changes: _Changes
    ) -> Iterator[AsyncGenerator[list[T], None]]:
        """Yield a generator of records for each listed ledger.

        An open ledger is followed until it is closed.
        """
        yield from self._listed_parts(view, cursor)
        for ledger in view.open_ledgers:
            if ledger.ledger_id not in finished:
                yield self._followed(ledger.ledger_id, cursor, changes)
                finished.add(ledger.ledger_id)

    async def _records_of(
        self, item: Item, cursor: EntryCursor[T]
    ) -> AsyncGenerator[list[T], None]:
        """Yield the records of a listed range from the cursor on."""
        first_entry_id = item.first_entry_id
        if cursor.next_offset > item.first_offset:
            handle = await self._ledgers.open_ledger(item.ledger_id, is_listed=True)
            try:
                end_entry_id = item.last_entry_id + 1
                first_entry_id = await entry_holding(handle, cursor.next_offset, end_entry_id)
            finally:
                await handle.aclose()
        entries = read_range(self._host, item.ledger_id, first_entry_id, item.last_entry_id)
        async with contextlib.aclosing(cursor.taken(item.ledger_id, entries)) as batches:
            async for records in batches:
                yield records
        if cursor.next_offset < item.end_offset and not cursor.is_done:
            raise DataLossError(
                f"ledger {item.ledger_id} of log {self._name!r} ends at offset "
                f"{cursor.next_offset}, but the log lists it up to {item.end_offset}",
                log=self._name,
                ledger_id=item.ledger_id,
            )

    async def _followed(
        self, ledger_id: int, cursor: EntryCursor[T], changes: _Changes
    ) -> AsyncGenerator[list[T], None]:
        """Yield the records of an open ledger from the cursor on, until the ledger is closed."""
        handle = await self._ledgers.open_ledger(ledger_id, is_listed=True)
        follower = handle.follow(changes.on_ledger, entries_size_bytes_max=NOTIFIED_SIZE_BYTES_MAX)
        next_entry_id = -1
        try:
            while True:
                last_entry_id, is_closed = handle.last_add_confirmed, handle.is_closed
                if next_entry_id < 0 <= last_entry_id:
                    next_entry_id = await entry_holding(
                        handle, cursor.next_offset, last_entry_id + 1
                    )
                if 0 <= next_entry_id <= last_entry_id:
                    entries = self._acknowledged(handle, next_entry_id, last_entry_id)
                    async with contextlib.aclosing(cursor.taken(ledger_id, entries)) as batches:
                        async for records in batches:
                            yield records
                    next_entry_id = last_entry_id + 1
                elif is_closed:
                    return
                elif follower.error is not None:
                    raise follower.error
                elif changes.is_log_doubtful:
                    # The ledger of a deleted log may stay open forever. Therefore the list is read
                    # here, which raises an error if the log was deleted.
                    changes.is_log_doubtful = False
                    await self._relisted(cursor)
                else:
                    await changes.following()
        finally:
            await handle.aclose()

    async def _acknowledged(
        self, handle: LedgerReaderHandle, first: int, last: int
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield acknowledged entries of a followed ledger.

        Entries of a notification are not read again.
        """
        if watched := handle.watched_entries(first, last):
            first = watched[-1].entry_id + 1
            yield watched
        if first > last:
            return
        try:
            async with contextlib.aclosing(
                handle.read_batches(first, last, is_listed=True)
            ) as batches:
                async for batch in batches:
                    first = batch[-1].entry_id + 1
                    yield batch
        except EntryNotFoundError:
            async with contextlib.aclosing(
                read_range(self._host, handle.id, first, last)
            ) as batches:
                async for batch in batches:
                    yield batch

    def _cursor(self, next_offset: int, end_offset: int | None = None) -> EntryCursor[T]:
        return self._cursor_of(
            self._name, self._host.log_id, next_offset=next_offset, end_offset=end_offset
        )

    def _check_is_kept(self, cursor: EntryCursor[T], view: LogView) -> None:
        """Raise PositionNotAvailableError if `view` shows that the next record was truncated."""
        if cursor.next_offset < view.start_offset:
            raise self._not_available(cursor.next_offset, view)

    def _not_available(self, offset: int, view: LogView) -> PositionNotAvailableError:
        oldest, end = view.start_offset, view.end_offset
        if offset < oldest:
            why = f"was truncated: the oldest position is {oldest}"
        else:
            why = f"is not readable yet: the log now ends at {end}; to wait for it, use a tail"
        return PositionNotAvailableError(
            f"position {offset} of log {self._name!r} {why}",
            log=self._name,
            offset=offset,
            oldest_offset=oldest,
            end_offset=end,
        )

    def _loss(self, error: LedgerNotFoundError, cursor: EntryCursor[T]) -> DataLossError:
        return DataLossError(
            f"ledger {error.ledger_id} does not exist, but log {self._name!r} lists it with the "
            f"records from offset {cursor.next_offset} on",
            log=self._name,
            ledger_id=error.ledger_id,
        )


async def _chained(parts: Iterator[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the batches of all parts, in order.

    A part starts to read when the parts before it have ended.
    """
    for part in parts:
        async with contextlib.aclosing(part):
            async for one in part:
                yield one
