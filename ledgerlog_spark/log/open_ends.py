"""What the open ledgers of a leader log hold now (DESIGN 6.3; docs/LOGS.md G9).

The head lists them without an end, because nobody but their bookies knows it. Here each is cut at
the last add confirmed as it is now, and becomes an item like any other; a ledger behind one that is
still appended to is not looked at, so that what is seen never has a gap.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import DataLossError, InternalError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader_entry import decode_entry_header
from ledgerlog_spark.protocol.log_records import Item

if TYPE_CHECKING:
    from ledgerlog_spark.log.ports import LedgerReaderHandle, Ledgers
    from ledgerlog_spark.protocol.log_records import LogSnapshot


async def with_open_ends(snapshot: LogSnapshot, ledgers: Ledgers) -> LogSnapshot:
    """The snapshot with an item for each open ledger that has entries, and its end behind them.

    Raises:
        LedgerNotFoundError: A ledger is gone: the head has moved, so read it again.
        EntryUnknownError: Too few bookies answered to know how far a ledger is confirmed.
    """
    items = list(snapshot.items)
    end_offset = snapshot.interval.end_offset
    for ledger in snapshot.open_ledgers:
        handle = await ledgers.open_ledger(ledger.ledger_id)
        try:
            item = await _item_of(handle, snapshot, end_offset)
        finally:
            await handle.aclose()
        if item is not None:
            items.append(item)
            end_offset = item.end_offset
        if not handle.is_closed:
            break
    interval = replace(snapshot.interval, end_offset=end_offset)
    return replace(snapshot, interval=interval, items=tuple(items))


async def _item_of(
    handle: LedgerReaderHandle, snapshot: LogSnapshot, first_offset: int
) -> Item | None:
    """The ledger's readable entries as an item, None when there are none."""
    last_entry_id = handle.last_add_confirmed
    if last_entry_id == NO_ENTRY:
        return None
    entry = await read_one(handle, last_entry_id)
    header = decode_entry_header(entry.payload)
    if header.end_offset <= first_offset:
        raise DataLossError(
            f"ledger {handle.id} of log {snapshot.name!r} ends at offset {header.end_offset}, "
            f"but what is listed before it goes to {first_offset}",
            log=snapshot.name,
            ledger_id=handle.id,
        )
    return Item(
        ledger_id=handle.id,
        first_entry_id=0,
        last_entry_id=last_entry_id,
        index_entry_id=NO_ENTRY,
        rows=header.end_offset - first_offset,
        size_bytes=entry.length,
        first_offset=first_offset,
        schema_id=snapshot.interval.schema_id,
        newest_ms=header.append_time_ms,
    )


async def read_one(handle: LedgerReaderHandle, entry_id: int) -> Any:
    """One entry that is known to be acknowledged; errors as of `read_batches`."""
    batches = handle.read_batches(entry_id, entry_id, is_listed=True)
    async with contextlib.aclosing(batches):
        async for batch in batches:
            return batch[0]
    raise InternalError(f"a read of entry {entry_id} ended without it", ledger_id=handle.id)
