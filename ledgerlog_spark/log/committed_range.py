"""Reads what a log lists (DESIGN 6.5; docs/LOGS.md R1-R3).

A committed range is its own proof: its entries are on their ack quorum, whatever the ledger's state
and its last add confirmed say. So nothing waits for either, and an absent entry is looked for again
under fresh metadata before it is called lost.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import DataLossError, EntryNotFoundError, LedgerNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledgerlog_spark.log.ports import Ledgers


async def read_range(
    ledgers: Ledgers,
    ledger_id: int,
    first_entry_id: int,
    last_entry_id: int,
    *,
    log: str = "",
    password: bytes = b"",
) -> AsyncIterator[tuple[Any, ...]]:
    """The entries from first to last, both inclusive, in batches and in order.

    Args:
        ledgers: The client.
        ledger_id: The ledger.
        first_entry_id: At least the listed range's first.
        last_entry_id: At most the listed range's last.
        log: For messages.
        password: Of the ledger.

    Raises:
        DataLossError: Every replica said twice that it does not have an entry, the second time
            under metadata read after a sync that had not changed since; or the ledger was closed
            below the range's end; or it is gone.
        EntryUnknownError: Some replica could not answer, and none had the entry.
        DigestMismatchError: No replica had a good copy.
    """
    next_entry_id, seen = first_entry_id, None
    while next_entry_id <= last_entry_id:
        try:
            reader = await ledgers.open_ledger(ledger_id, password=password)
            async with contextlib.aclosing(
                reader.read_batches(next_entry_id, last_entry_id, is_listed=True)
            ) as batches:
                async for batch in batches:
                    next_entry_id = batch[-1].entry_id + 1
                    yield batch
        except LedgerNotFoundError:
            raise _loss(
                log, ledger_id, next_entry_id, last_entry_id, "the ledger is gone"
            ) from None
        except EntryNotFoundError as error:
            try:
                metadata = await ledgers.ledger_metadata(ledger_id)
            except LedgerNotFoundError:
                metadata = None
            if metadata is not None and metadata.is_closed:
                if metadata.last_entry_id < last_entry_id:
                    why = f"the ledger was closed at entry {metadata.last_entry_id}"
                    raise _loss(log, ledger_id, next_entry_id, last_entry_id, why) from error
            if metadata is None or metadata == seen:
                why = "no bookie has them"
                raise _loss(log, ledger_id, next_entry_id, last_entry_id, why) from error
            seen = metadata


def _loss(log: str, ledger_id: int, first: int, last: int, why: str) -> DataLossError:
    return DataLossError(
        f"entries {first} to {last} of ledger {ledger_id}, listed by log {log!r}, cannot be read: "
        f"{why}",
        log=log,
        ledger_id=ledger_id,
        first_entry_id=first,
        last_entry_id=last,
    )
