"""The ports of a repair on the metadata stores and on a transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bookie_server.service.repair.adapters import StoreRecords, TransportPeers
from ledgerlog_spark.errors import MetadataFormatError, MetadataUnavailableError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.testing.memory.tree import MemoryTree
from ledgerlog_spark.transport.port import ReadBatch, ReadEntry
from tests.fixtures.repair_world import ME, OPEN

COOKIE = b"5\ncookie"


async def cluster(*, has_cookie: bool = True) -> MetadataStores:
    stores = MetadataStores.on(MemoryTree(), "/ledgers")
    await stores.initialize()
    if has_cookie:
        await stores.registration.write_cookie(ME, COOKIE, None)
    return stores


def records(stores: MetadataStores) -> StoreRecords:
    return StoreRecords(stores.ledgers, stores.registration, ME, 1_000)


async def listed(stores: MetadataStores) -> list[int]:
    return [ledger_id async for ledger_id in records(stores).ids()]


async def test_records_are_loaded_and_listed() -> None:
    stores = await cluster()
    created = await stores.ledgers.create(7, OPEN)
    assert await records(stores).load(7) == created
    assert await records(stores).load(8) is None
    assert await listed(stores) == [7]


async def test_a_store_without_the_cookie_deletes_nothing_and_lists_nothing() -> None:
    stores = await cluster(has_cookie=False)
    with pytest.raises(MetadataUnavailableError, match="no cookie of bookie b0"):
        await records(stores).load(8)
    with pytest.raises(MetadataUnavailableError, match="no cookie of bookie b0"):
        await listed(stores)


async def test_a_record_that_cannot_be_read_is_no_deleted_ledger() -> None:
    stores = await cluster()
    await stores.ledgers.create(7, OPEN)
    await stores.tree.set(stores.ledgers.path(7), b"nothing", None)
    with pytest.raises(MetadataFormatError):
        await records(stores).load(7)


async def test_a_store_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = await cluster()

    async def hang() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(stores.ledgers, "sync", hang)
    late = StoreRecords(stores.ledgers, stores.registration, ME, 1)
    with pytest.raises(MetadataUnavailableError, match=r"within 0\.001 s"):
        await late.load(7)


class Answering:
    """A transport that answers each request at once."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def read(
        self, _bookie: str, request: ReadEntry, _timeout_ms: int, on_reply: Callable[..., None]
    ) -> None:
        assert request.fence_key is None
        on_reply(self.code, memoryview(b"entry") if self.code is Code.OK else None)

    def read_batch(
        self, _bookie: str, request: ReadBatch, _timeout_ms: int, on_reply: Callable[..., None]
    ) -> None:
        entries: Sequence[Any] = [memoryview(b"entry")] * request.count_max
        on_reply(self.code, entries if self.code is Code.OK else ())

    def read_lac(
        self, _bookie: str, _ledger: int, _timeout_ms: int, on_reply: Callable[..., None]
    ) -> None:
        on_reply(self.code, 4 if self.code is Code.OK else NO_ENTRY)


@pytest.mark.parametrize("code", [Code.OK, Code.NO_ENTRY])
async def test_answers_of_bookies_are_handed_over(code: Code) -> None:
    transport: Any = Answering(code)
    peers = TransportPeers(transport, 100)
    is_ok = code is Code.OK
    assert await peers.read("b1", 7, 0) == (code, b"entry" if is_ok else None)
    assert list(await peers.read_batch("b1", 7, 0, 2)) == ([b"entry"] * 2 if is_ok else [])
    assert await peers.read_lac("b1", 7) == (code, 4 if is_ok else NO_ENTRY)
