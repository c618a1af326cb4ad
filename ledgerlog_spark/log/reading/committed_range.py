"""Reads listed ranges (LOGS.md#R1, LOGS.md#R2, LOGS.md#R3).

A committed range is its own proof: its entries are on their ack quorum, whatever the ledger's state
and its last add confirmed are. So nothing waits for either. An absent entry is read again with
fresh metadata before it counts as lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import DataLossError, EntryNotFoundError, LedgerNotFoundError
from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ledgerlog_spark.log.host import LogHost
    from ledgerlog_spark.log.ports import LedgerReaderHandle
    from ledgerlog_spark.model import LedgerMetadata
    from ledgerlog_spark.protocol.ledger.read_room import ReadPlace


async def read_range(
    host: LogHost,
    ledger_id: int,
    first_entry_id: int,
    last_entry_id: int,
    *,
    password: bytes = b"",
    place: ReadPlace | None = None,
) -> AsyncGenerator[Sequence[Any], None]:
    """Entries of a listed range from first to last, both inclusive, in batches and in order.

    Args:
        ledger_id: The ledger.
        first_entry_id: At least the listed range's first.
        last_entry_id: At most the listed range's last.
        password: The ledger's password.
        place: Limits the memory of this and other reads together; None for 64 MiB of its own.

    Raises:
        DataLossError: Every replica reported twice that it does not have an entry, the second time
            with metadata that was read after a sync and had not changed since; or the ledger was
            closed below the range's end; or it does not exist.
        EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
        DigestMismatchError: No replica had a good copy.
    """
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
                reader.read_batches(next_entry_id, last_entry_id, is_listed=True, place=place)
            ) as batches:
                async for batch in batches:
                    next_entry_id = batch[-1].entry_id + 1
                    yield batch
        except LedgerNotFoundError:
            why = "the ledger is gone"
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
    """Batches of a range; the first is read from the start.

    Call all methods on the event loop that it was made on.
    """

    def __init__(
        self, batches: AsyncGenerator[Sequence[Any], None], place: ReadPlace | None = None
    ) -> None:
        """Begins to read; call `aclose` or read all batches in any case.

        `place` bounds the bytes of this and other ranges; the range leaves it at its end.
        """
        self._batches = batches
        self._place = place
        self._first: asyncio.Task[Sequence[Any] | None] | None = asyncio.ensure_future(self._next())

    async def following(self) -> Sequence[Any] | None:
        """The next batch, None at the end; raises the errors of the read."""
        if self._place is not None:
            self._place.take_turn()
        first, self._first = self._first, None
        batch = await self._next() if first is None else await forever(first, "its reader ends")
        if batch is None:
            self._leave()
        return batch

    async def aclose(self) -> None:
        """Drop entries that are being read, and their errors; closing twice does nothing."""
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
    """The reason why entries that no bookie has are lost; empty when they need a second look."""
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
