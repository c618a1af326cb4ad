"""Calls of a transport as coroutines, and their entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ledgerlog_spark.model import Code, DigestType
from ledgerlog_spark.transport.port import (
    AddRun,
    BookieTransport,
    LacRise,
    ReadBatch,
    ReadEntry,
    ReadSlices,
    WatchLac,
    WriteLac,
)
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec
from tests.fixtures.stored_entries import encode_entry

BOOKIE = "bookie-0"
KEY = master_key(b"secret")
CODEC = EntryCodec(DigestType.CRC32C)


def entry(
    ledger_id: int, entry_id: int, payload: bytes = b"payload", last_add_confirmed: int = -1
) -> tuple[Any, ...]:
    return encode_entry(
        CODEC,
        ledger_id=ledger_id,
        entry_id=entry_id,
        last_add_confirmed=last_add_confirmed,
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
    last_add_confirmed: int = -1,
) -> AddRun:
    ids = entry_ids if isinstance(entry_ids, range) else tuple(entry_ids)
    entries = [entry(ledger_id, entry_id, payload, last_add_confirmed) for entry_id in ids]
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

    def start_read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> Call:
        request = ReadBatch(ledger_id, first_entry_id, count_max, size_bytes_max)
        return Call(
            lambda done: self.transport.read_batch(self.bookie_id, request, self.timeout_ms, done)
        )

    async def add(self, request: AddRun) -> Code:
        (code,) = await self.start_add(request).result()
        return code

    async def read(self, ledger_id: int, entry_id: int, **options: Any) -> tuple[Code, Any]:
        code, entry = await self.start_read(ledger_id, entry_id, **options).result()
        return code, entry

    async def read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> tuple[Code, Any]:
        call = self.start_read_batch(ledger_id, first_entry_id, count_max, size_bytes_max)
        code, entries = await call.result()
        return code, entries

    def start_read_slices(self, ledger_id: int, entries: Any, size_bytes_max: int) -> Call:
        request = ReadSlices(ledger_id, entries, size_bytes_max)
        return Call(
            lambda done: self.transport.read_slices(self.bookie_id, request, self.timeout_ms, done)
        )

    async def read_slices(
        self, ledger_id: int, entries: Any, size_bytes_max: int = 1 << 20
    ) -> tuple[Code, Any]:
        code, slices = await self.start_read_slices(ledger_id, entries, size_bytes_max).result()
        return code, tuple(slices)

    def start_write_lac(self, ledger_id: int, lac: int, *, key: bytes = KEY) -> Call:
        request = WriteLac(ledger_id, lac, key)
        return Call(
            lambda done: self.transport.write_lac(self.bookie_id, request, self.timeout_ms, done)
        )

    def announce_lac(self, ledger_id: int, lac: int, *, key: bytes = KEY) -> bool:
        return self.transport.announce_lac(self.bookie_id, WriteLac(ledger_id, lac, key))

    def start_read_lac(self, ledger_id: int) -> Call:
        return Call(
            lambda done: self.transport.read_lac(self.bookie_id, ledger_id, self.timeout_ms, done)
        )

    async def write_lac(self, ledger_id: int, lac: int, *, key: bytes = KEY) -> Code:
        (code,) = await self.start_write_lac(ledger_id, lac, key=key).result()
        return code

    async def read_lac(self, ledger_id: int) -> tuple[Code, int]:
        code, lac = await self.start_read_lac(ledger_id).result()
        return code, lac

    def watch_lac(self, ledger_id: int, previous: int = -1, **options: int) -> Watch:
        return Watch(self, WatchLac(ledger_id, previous, **options))


class Watch:
    """One watch: the reported rises, and the reason of its end."""

    def __init__(self, caller: Caller, request: WatchLac) -> None:
        self.rises: list[int] = []
        self.told: list[tuple[int, list[bytes]]] = []
        self.ends: list[Code] = []
        self._changed = asyncio.Event()
        self.cancel = caller.transport.watch_lac(
            caller.bookie_id, request, self._on_rise, self._on_end
        )
        assert not self.rises
        assert not self.ends

    def _on_rise(self, rise: LacRise) -> None:
        assert not self.ends
        assert not self.rises or rise.last_add_confirmed > self.rises[-1]
        self.rises.append(rise.last_add_confirmed)
        self.told.append((rise.first_entry_id, list(rise.entries)))
        self._changed.set()

    def _on_end(self, code: Code) -> None:
        self.ends.append(code)
        self._changed.set()

    async def rises_to(self, lac: int) -> None:
        async with asyncio.timeout(20):
            while not self.rises or self.rises[-1] < lac:
                self._changed.clear()
                await self._changed.wait()

    async def ended(self) -> Code:
        async with asyncio.timeout(20):
            while not self.ends:
                self._changed.clear()
                await self._changed.wait()
        (code,) = self.ends
        return code
