"""Implements the ports of the repair with the cluster's metadata stores and a client transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ledgerlog_spark.errors import LedgerNotFoundError, MetadataUnavailableError
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.model import Code, LedgerMetadata, Versioned
from ledgerlog_spark.transport.port import BookieTransport, ReadBatch, ReadEntry

BATCH_SIZE_BYTES_MAX = 1 << 20
IDS_IN_TURN_MAX = 500


class StoreRecords:
    """Implements `LedgerRecords`.

    If the store has no cookie of this bookie, the store has lost its data or is another store. In
    this case, missing metadata does not prove that a ledger was deleted, and a listing may lack
    ledgers.
    """

    def __init__(
        self, ledgers: LedgerStore, registration: Registration, bookie_id: str, timeout_ms: int
    ) -> None:
        self._ledgers = ledgers
        self._registration = registration
        self._bookie_id = bookie_id
        self._timeout_s = timeout_ms / 1_000

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Return the metadata of a ledger, read after a sync."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._ledgers.sync()
                try:
                    return await self._ledgers.load(ledger_id)
                except LedgerNotFoundError:
                    await self._require_cookie()
                    return None
        except TimeoutError:
            raise MetadataUnavailableError(
                f"the metadata of ledger {ledger_id} could not be read within "
                f"{self._timeout_s:g} s: check that ZooKeeper runs and can be reached",
                ledger_id=ledger_id,
            ) from None

    async def ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers that existed at the time of the call."""
        await self._ledgers.sync()
        await self._require_cookie()
        count = 0
        async for ledger_id in self._ledgers.ids():
            yield ledger_id
            count += 1
            if count % IDS_IN_TURN_MAX == 0:
                await asyncio.sleep(0)

    async def _require_cookie(self) -> None:
        if await self._registration.read_cookie(self._bookie_id) is None:
            raise MetadataUnavailableError(
                f"the metadata store has no cookie of bookie {self._bookie_id}, so it may have "
                "lost its data: restore it from a backup, or write the cookie with `ledgerlog "
                "bookie cookie create`",
                bookie_id=self._bookie_id,
            )


class TransportPeers:
    """Implements `Peers` with plain reads. The transport answers each request by its deadline."""

    def __init__(self, transport: BookieTransport, timeout_ms: int) -> None:
        self._transport = transport
        self._timeout_ms = timeout_ms

    async def read(
        self, bookie_id: str, ledger_id: int, entry_id: int
    ) -> tuple[Code, bytes | None]:
        """Read an entry from a bookie."""
        answered: asyncio.Future[tuple[Code, bytes | None]] = _future()

        def on_reply(code: Code, stored: bytes | None) -> None:
            if not answered.done():
                answered.set_result((code, None if stored is None else bytes(stored)))

        request = ReadEntry(ledger_id, entry_id)
        self._transport.read(bookie_id, request, self._timeout_ms, on_reply)
        return await answered

    async def read_batch(
        self, bookie_id: str, ledger_id: int, first_entry_id: int, count: int
    ) -> Sequence[bytes]:
        """Read consecutive entries. If the read fails, return no entries."""
        answered: asyncio.Future[Sequence[bytes]] = _future()

        def on_reply(code: Code, entries: Sequence[bytes]) -> None:
            if not answered.done():
                answered.set_result([bytes(each) for each in entries] if code is Code.OK else ())

        request = ReadBatch(ledger_id, first_entry_id, count, BATCH_SIZE_BYTES_MAX)
        self._transport.read_batch(bookie_id, request, self._timeout_ms, on_reply)
        return await answered

    async def read_lac(self, bookie_id: str, ledger_id: int) -> tuple[Code, int]:
        """Read the LAC of a ledger, with the control service of a bookie."""
        answered: asyncio.Future[tuple[Code, int]] = _future()

        def on_reply(code: Code, last_add_confirmed: int) -> None:
            if not answered.done():
                answered.set_result((code, last_add_confirmed))

        self._transport.read_lac(bookie_id, ledger_id, self._timeout_ms, on_reply)
        return await answered


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
