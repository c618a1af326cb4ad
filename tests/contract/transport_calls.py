"""Calls of a transport as coroutines, and the entries they carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ledgerlog_spark.model import Code, DigestType
from ledgerlog_spark.transport.port import AddRun, BookieTransport, ReadBatch, ReadEntry
from ledgerlog_spark.wire.entry_codec import EntryCodec
from ledgerlog_spark.wire.master_key import master_key

BOOKIE = "bookie-0"
KEY = master_key(b"secret")
CODEC = EntryCodec(DigestType.CRC32C)


def entry(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> tuple[Any, ...]:
    return CODEC.encode(
        ledger_id=ledger_id,
        entry_id=entry_id,
        last_add_confirmed=-1,
        length=len(payload),
        payload=payload,
    )


def run_of(
    ledger_id: int,
    entry_ids: Iterable[int],
    payload: bytes = b"payload",
    *,
    key: bytes = KEY,
    is_recovery: bool = False,
) -> AddRun:
    ids = entry_ids if isinstance(entry_ids, range) else tuple(entry_ids)
    entries = [entry(ledger_id, entry_id, payload) for entry_id in ids]
    return AddRun(ledger_id, ids, entries, key, is_recovery)


def stored(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> bytes:
    return b"".join(entry(ledger_id, entry_id, payload))


class Call:
    """One request; `result()` is its reply. A second reply fails the test that made it."""

    def __init__(self, send: Callable[[Callable[..., None]], None]) -> None:
        self.replies: list[tuple[Any, ...]] = []
        self._done = asyncio.get_running_loop().create_future()
        send(self._on_reply)
        assert not self.replies, "the reply came before the method returned"

    def _on_reply(self, *reply: Any) -> None:
        self.replies.append(reply)
        assert len(self.replies) == 1, "a second reply"
        self._done.set_result(reply)

    async def result(self) -> tuple[Any, ...]:
        async with asyncio.timeout(20):
            return await self._done


class Caller:
    def __init__(self, transport: BookieTransport, bookie_id: str = BOOKIE) -> None:
        self.transport = transport
        self.bookie_id = bookie_id
        self.timeout_ms = 20_000

    def start_add(self, request: AddRun) -> Call:
        return Call(lambda done: self.transport.add(self.bookie_id, request, self.timeout_ms, done))

    def start_read(self, ledger_id: int, entry_id: int, **options: Any) -> Call:
        request = ReadEntry(ledger_id, entry_id, **options)
        return Call(
            lambda done: self.transport.read(self.bookie_id, request, self.timeout_ms, done)
        )

    def start_read_batch(self, *numbers: int) -> Call:
        request = ReadBatch(*numbers)
        return Call(
            lambda done: self.transport.read_batch(self.bookie_id, request, self.timeout_ms, done)
        )

    async def add(self, request: AddRun) -> Code:
        (code,) = await self.start_add(request).result()
        return code

    async def read(self, ledger_id: int, entry_id: int, **options: Any) -> tuple[Code, Any]:
        return await self.start_read(ledger_id, entry_id, **options).result()  # type: ignore[return-value]

    async def read_batch(self, *numbers: int) -> tuple[Code, Sequence[bytes]]:
        return await self.start_read_batch(*numbers).result()  # type: ignore[return-value]
