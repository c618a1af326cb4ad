"""Reads listed ranges (LOGS.md#R1, LOGS.md#R2, LOGS.md#R3).

All entries of a committed range are acknowledged. Therefore a read needs neither the state of the
ledger nor its last add confirmed. If no bookie has an entry, the entry is read again with fresh
metadata. If the metadata is the same and again no bookie has the entry, the entry is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ledgerlog_spark.client.arguments import check_optional, check_type
from ledgerlog_spark.errors import DataLossError, EntryNotFoundError, LedgerNotFoundError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.ports import LedgerReaderHandle
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.ledger.read_room import ReadPlace
from ledgerlog_spark.protocol.ledger.slices import SliceSource
from ledgerlog_spark.waits import forever


async def read_range(
    host: LogHost,
    /,
    ledger_id: int,
    first_entry_id: int,
    last_entry_id: int,
    *,
    password: bytes = b"",
    place: ReadPlace | None = None,
    slices: SliceSource | None = None,
) -> AsyncGenerator[Sequence[Any], None]:
    """Read entries of a listed range, including the last entry, in batches and in order.

    Args:
        ledger_id: Id of the ledger.
        first_entry_id: The first entry to read, not below the first entry of the range.
        last_entry_id: The last entry to read, not above the last entry of the range.
        password: The ledger's password.
        place: The place of this read among reads that share a limit of memory. If it is None, this
            read has its own limit of 64 MiB.
        slices: The parts of the entries to read. The reader may return some entries completely.
            If it is None, complete entries are read.

    Raises:
        DataLossError: In two reads with the same metadata, every replica reported that it does not
            have an entry. The error is also raised if the ledger was closed before the end of the
            range, or does not exist.
        EntryUnknownError: At least one replica could not answer, and no other replica had the
            entry; retriable.
        DigestMismatchError: No replica had a copy of an entry with a correct digest.
    """
    check_type("first_entry_id", first_entry_id, int)
    check_type("last_entry_id", last_entry_id, int)
    check_optional("slices", slices, SliceSource)
    log = host.name
    next_entry_id = first_entry_id
    seen: LedgerMetadata | None = None
    may_be_outdated = True
    while next_entry_id <= last_entry_id:
        reader: LedgerReaderHandle | None = None
        try:
            reader = await host.ledgers.open_ledger(
                ledger_id, password=password, is_listed=True, may_be_outdated=may_be_outdated
            )
            async with contextlib.aclosing(
                reader.read_batches(
                    next_entry_id, last_entry_id, is_listed=True, place=place, slices=slices
                )
            ) as batches:
                async for batch in batches:
                    next_entry_id = batch[-1].entry_id + 1
                    yield batch
        except LedgerNotFoundError:
            why = "the ledger does not exist"
            raise _loss(log, ledger_id, next_entry_id, last_entry_id, why) from None
        except EntryNotFoundError as error:
            may_be_outdated = False
            metadata = await _metadata(host, ledger_id)
            why = _loss_shown(metadata, seen, last_entry_id)
            if why:
                raise _loss(log, ledger_id, next_entry_id, last_entry_id, why) from error
            seen = metadata
        finally:
            if reader is not None:
                await reader.aclose()


class BegunRange:
    """The batches of a range, whose read has begun.

    The first batch is read in the background, before the caller requests it.

    All methods must run on the event loop on which the object was created.
    """

    def __init__(
        self, batches: AsyncGenerator[Sequence[Any], None], place: ReadPlace | None = None
    ) -> None:
        """Begin to read. The caller must take all batches, or call `aclose`.

        `place` is the place of this read among reads that share a limit of memory. It is given back
        at the end of the range.
        """
        self._batches = batches
        self._place = place
        self._first: asyncio.Task[Sequence[Any] | None] | None = asyncio.ensure_future(self._next())

    async def following(self) -> Sequence[Any] | None:
        """Return the next batch; None at the end of the range. Raises the errors of the read."""
        if self._place is not None:
            self._place.take_turn()
        first, self._first = self._first, None
        batch = await self._next() if first is None else await forever(first, "its reader ends")
        if batch is None:
            self._leave()
        return batch

    async def aclose(self) -> None:
        """End the read, and ignore its errors. A second call does nothing."""
        first, self._first = self._first, None
        if first is not None:
            first.cancel()
            await forever(asyncio.wait([first]), "a task that is cancelled ends")
            if not first.cancelled():
                first.exception()
        await self._batches.aclose()
        self._leave()

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()

    async def _next(self) -> Sequence[Any] | None:
        return await anext(self._batches, None)


async def _metadata(host: LogHost, ledger_id: int) -> LedgerMetadata | None:
    await host.store.sync()
    try:
        return await host.ledgers.ledger_metadata(ledger_id)
    except LedgerNotFoundError:
        return None


def _loss_shown(
    metadata: LedgerMetadata | None, seen: LedgerMetadata | None, last_entry_id: int
) -> str:
    """Return the reason why missing entries are lost; empty if they must be read again."""
    if metadata is None:
        return "the ledger does not exist"
    if metadata.is_closed and metadata.last_entry_id < last_entry_id:
        return f"the ledger was closed at entry {metadata.last_entry_id}"
    return "no bookie has them" if metadata == seen else ""


def _loss(log: str, ledger_id: int, first: int, last: int, why: str) -> DataLossError:
    return DataLossError(
        f"entries {first} to {last} of ledger {ledger_id}, listed by log {log!r}, cannot be read: "
        f"{why}",
        log=log,
        ledger_id=ledger_id,
        first_entry_id=first,
        last_entry_id=last,
    )
