"""Determines the present rows of a log, and the readable entries of open ledgers (LOGS.md#G9).

The head lists open ledgers without an end, because only bookies can report the end of an open
ledger. For each open ledger, this module creates an item that ends at the ledger's present last add
confirmed. If a ledger is not closed, the ledgers after it are not read, so the result never has a
gap.

If a reader once found that the log ended at an offset, all records before this offset were
acknowledged. But the bookies that answer now may have an older LAC. In this case, the entries after
this LAC are also read, up to the offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from ledgerlog_spark.client.arguments import check_iterable, check_optional, check_type
from ledgerlog_spark.errors import (
    DataLossError,
    EntryNotFoundError,
    InternalError,
    LedgerNotFoundError,
)
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.ports import LedgerReaderHandle, Ledgers
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader.entry import decode_entry_header
from ledgerlog_spark.protocol.leader.messages import LedgerEnd
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from ledgerlog_spark.protocol.log.read.view import LogView, ViewMachine
from ledgerlog_spark.protocol.log.state.records import Item, LogKind, LogSnapshot, OpenLedger

LISTINGS_MAX = 5
"""Maximum number of reads of the list. The list is read again if a listed ledger was deleted."""

ENTRIES_FIRST = 64
ENTRIES_MAX = 4_096
"""Maximum number of entries after the last add confirmed that are read in one step."""

T = TypeVar("T")


async def view(
    host: LogHost,
    /,
    first_offset: int = 0,
    *,
    seen_offset: int = 0,
    known_version: int | None = None,
    known_schemas: Collection[int] = (),
    is_fresh: bool = True,
) -> LogView:
    """Return all retained rows from an offset on, for a reader that follows the log.

    Raises the errors of `Log.state`.

    Args:
        first_offset: The offset of the first row that may be read.
        seen_offset: An end offset of the log that any process found earlier. If `is_fresh` is true,
            the view reaches this offset even if the bookies that answer do not have the newest LAC
            yet. The view ends before this offset only if records are lost.
        known_version: The newest version that the caller has read. Only later versions are read. If
            it is None, only the versions with the commit times of the rows are read.
        known_schemas: Ids of the schemas that the caller has read.
        is_fresh: Whether the view must be current. If false, the call sends one request fewer, but
            the view may lack existing rows.
    """
    check_type("first_offset", first_offset, int)
    check_type("seen_offset", seen_offset, int)
    check_optional("known_version", known_version, int)
    check_iterable("known_schemas", known_schemas)

    async def viewed() -> LogView:
        machine = ViewMachine(
            host.name,
            first_offset=first_offset,
            known_version=known_version,
            known_schemas=known_schemas,
            is_fresh=is_fresh,
        )
        found = await host.run(machine)
        if found.kind is not LogKind.LEADER:
            return found
        # If the view need not be fresh, the list may be old, and the ledgers that it lists as open
        # may now be closed. Therefore such a view does not use `seen_offset`.
        end_offset, items = await open_items(
            host.ledgers,
            found.open_ledgers,
            end_offset=found.end_offset,
            schema_id=found.schema_id,
            log=host.name,
            seen_offset=seen_offset if is_fresh else 0,
        )
        first = max(first_offset, found.start_offset)
        return replace(
            found,
            oldest_offset=found.start_offset,
            end_offset=end_offset,
            first_offset=first,
            items=tuple(item for item in (*found.items, *items) if item.end_offset > first),
        )

    return await while_ledgers_go(viewed)


async def snapshot(host: LogHost, /, version: int | None = None) -> LogSnapshot:
    """Return one complete version of the log, by default the newest. Raises the errors of `state`.

    A leader log has no versions. The snapshot of a leader log ends with the records that are
    readable now. It contains each open ledger as an item that ends at the last add confirmed of the
    ledger.

    Raises:
        VersionNotAvailableError: The version never existed, was truncated, or expired. The field
            `oldest` of the error contains the oldest version.
        EntryUnknownError: Too few bookies of an open ledger answered; retriable.
    """
    check_optional("version", version, int)

    async def taken() -> LogSnapshot:
        found = await host.run(SnapshotMachine(host.name, version=version))
        end_offset, items = await open_items(
            host.ledgers,
            found.open_ledgers,
            end_offset=found.interval.end_offset,
            schema_id=found.interval.schema_id,
            log=host.name,
        )
        newest_ms = max((found.interval.commit_time_ms, *(item.newest_ms for item in items)))
        interval = replace(found.interval, end_offset=end_offset, commit_time_ms=newest_ms)
        return replace(found, interval=interval, items=(*found.items, *items))

    return await while_ledgers_go(taken)


async def open_items(
    ledgers: Ledgers,
    open_ledgers: Iterable[OpenLedger],
    *,
    end_offset: int,
    schema_id: int,
    log: str,
    seen_offset: int = 0,
) -> tuple[int, list[Item]]:
    """Return the end of the readable records, and the items of open ledgers up to this end.

    `open_ledgers` begins with the oldest open ledger, which begins at `end_offset`. `seen_offset`
    is an end of the log that a reader found, so the log does not end before this offset. The list
    and the ledger metadata must have been read after the reader found this end. Otherwise a ledger
    may have been closed meanwhile, and its last entries may not belong to the log.

    Raises:
        LedgerNotFoundError: A ledger was deleted, so the head has changed and must be read again.
        EntryUnknownError: Too few bookies answered, so the last add confirmed of a ledger is
            unknown; or an entry before `seen_offset` could not be read. Retriable.
        DataLossError: A ledger ends at an offset before its first offset in the list.
    """
    items: list[Item] = []
    for ledger in open_ledgers:
        handle = await ledgers.open_ledger(ledger.ledger_id)
        try:
            last = await _last_entry(handle, end_offset, seen_offset)
        finally:
            await handle.aclose()
        if last is not None:
            header = decode_entry_header(last.payload)
            if header.end_offset <= end_offset:
                raise DataLossError(
                    f"ledger {handle.id} of log {log!r} ends at offset {header.end_offset}, but "
                    f"the range listed before it ends at {end_offset}",
                    log=log,
                    ledger_id=handle.id,
                )
            end = LedgerEnd(
                last.entry_id, last.length, end_offset, header.end_offset, header.append_time_ms
            )
            items.append(end.item(handle.id, schema_id))
            end_offset = header.end_offset
        if not handle.is_closed:
            break
    return end_offset, items


async def while_ledgers_go(read: Callable[[], Awaitable[T]]) -> T:
    """Call `read`, and return its result. Retry if a listed ledger was deleted during the call."""
    for _ in range(LISTINGS_MAX - 1):
        with contextlib.suppress(LedgerNotFoundError):
            return await read()
    return await read()


async def _last_entry(handle: LedgerReaderHandle, end_offset: int, seen_offset: int) -> Any:
    """Return the last entry that is certainly acknowledged; None if there is no such entry."""
    last, last_entry_id = None, handle.last_add_confirmed
    if last_entry_id != NO_ENTRY:
        last = await read_one(handle, last_entry_id)
        end_offset = decode_entry_header(last.payload).end_offset
    count = ENTRIES_FIRST
    while end_offset < seen_offset and not handle.is_closed:
        # Each entry has at least one record. Therefore the number of entries with the missing
        # records is at most the number of these records.
        first = last_entry_id + 1
        last_entry_id += min(count, seen_offset - end_offset)
        batches = handle.read_batches(first, last_entry_id, is_listed=True)
        try:
            async with contextlib.aclosing(batches):
                async for batch in batches:
                    for entry in batch:
                        last, end_offset = entry, decode_entry_header(entry.payload).end_offset
                        if end_offset >= seen_offset:
                            return last
        except EntryNotFoundError:
            break  # the seen entries are lost, so the log ends before `seen_offset`
        count = min(2 * count, ENTRIES_MAX)
    return last


async def read_one(handle: LedgerReaderHandle, entry_id: int) -> Any:
    """Read one acknowledged entry. Raises the errors of `read_batches`."""
    batches = handle.read_batches(entry_id, entry_id, is_listed=True)
    async with contextlib.aclosing(batches):
        async for batch in batches:
            return batch[0]
    raise InternalError(f"the read of entry {entry_id} returned no entry", ledger_id=handle.id)
