"""Bookies for the transports' contract: servers in front of a storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bookie_server.core import requests as core
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire import answers
from ledgerlog_spark.wire.frames import FrameSplitter
from ledgerlog_spark.wire.opcodes import Flag, Opcode
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    AuthMessage,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
    Request,
    TellLacRequest,
    decode_request,
)
from ledgerlog_spark.wire.slice_requests import SliceReadRequest


class HeldStorage:
    """A storage that carries out all requests, and answers on command."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.held: list[Callable[[], None]] = []
        self.is_holding = True

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*request: Any) -> None:
            *arguments, on_done = request
            getattr(self.storage, name)(*arguments, lambda *result: self._answer(on_done, result))

        return call

    def add_together(self, request: Any, on_done: Callable[[Code], None]) -> bool:
        return bool(
            self.storage.add_together(request, lambda *result: self._answer(on_done, result))
        )

    def read_together(self, request: Any, on_some: Callable[..., None]) -> int:
        return int(
            self.storage.read_together(request, lambda *result: self._answer(on_some, result))
        )

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        self.storage.announce_lac(ledger_id, lac, master_key)

    def watch_lac(self, ledger_id: int, on_change: Callable[[int], None]) -> Callable[[], None]:
        return self.storage.watch_lac(ledger_id, on_change)

    def _answer(self, on_done: Callable[..., None], result: tuple[Any, ...]) -> None:
        if self.is_holding:
            self.held.append(lambda: on_done(*result))
        else:
            on_done(*result)

    def release(self) -> None:
        self.is_holding = False
        held, self.held = self.held, []
        for answer in held:
            answer()


class SmallServer:
    """Serves v2 for a storage, with or without ADD_RUN. A test can answer requests instead.

    Attributes:
        script: Called with each connection and request; returns True if it handled the request.
        requests: All requests of all connections, in the order of their arrival.
    """

    def __init__(self, storage: Any, *, takes_runs: bool) -> None:
        self.storage = storage
        self.takes_runs = takes_runs
        self.script: Callable[[SmallConnection, Request], bool] | None = None
        self.requests: list[tuple[SmallConnection, Request]] = []
        self.connections: list[SmallConnection] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: SmallConnection(self), "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            connection.abort()
        await self._server.wait_closed()

    def note(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class SmallConnection(asyncio.BufferedProtocol):
    def __init__(self, server: SmallServer) -> None:
        self.server = server
        self.frames = FrameSplitter()
        self.transport: Any = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.connections.append(self)
        self.server.note()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True
        self.server.note()

    def abort(self) -> None:
        self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for body in self.frames.received(nbytes):
            request = decode_request(body)
            self.server.requests.append((self, request))
            self.server.note()
            if self.server.script is None or not self.server.script(self, request):
                self.serve(request)

    def send(self, *buffers: Any) -> None:
        if not self.is_lost:
            self.transport.write(b"".join(buffers))

    def serve(self, request: Request) -> None:
        storage = self.server.storage
        match request:
            case AddRunRequest() if not self.server.takes_runs:
                self.abort()  # as an Apache bookie answers an unknown operation
            case AddRunRequest() | AddRequest():
                storage.add(*self._add(request))
            case ReadRequest():
                storage.read(*self._read(request))
            case BatchReadRequest():
                storage.read_batch(*self._read_batch(request))
            case SliceReadRequest():
                storage.read_slices(*self._read_slices(request))
            case TellLacRequest():
                storage.announce_lac(
                    request.ledger_id, request.last_add_confirmed, request.master_key
                )
            case RefusedRequest():
                self.send(answers.encode_refusal(request))
            case AuthMessage():
                self.abort()

    def _add(self, request: AddRunRequest | AddRequest) -> tuple[Any, Callable[[Code], None]]:
        is_recovery = bool(request.flags & Flag.RECOVERY_ADD)
        ledger_id, key = request.ledger_id, request.master_key
        if isinstance(request, AddRequest):
            entry_id, entry = request.entry_id, request.entry
            return (
                core.StoredAdd(ledger_id, (entry_id,), (len(entry),), entry, key, is_recovery),
                lambda code: self.send(answers.encode_add_answer(code, ledger_id, entry_id)),
            )
        first, request_id = request.entry_ids[0], request.request_id
        return (
            core.StoredAdd(
                ledger_id, request.entry_ids, request.lengths, request.body, key, is_recovery
            ),
            lambda code: self.send(
                answers.encode_add_run_answer(code, ledger_id, first, request_id)
            ),
        )

    def _read(self, request: ReadRequest) -> tuple[Any, Callable[[Code, bytes | None], None]]:
        ids = request.ledger_id, request.entry_id

        def answer(code: Code, entry: bytes | None) -> None:
            data = entry or b""
            self.send(answers.encode_read_answer_head(code, *ids, len(data)), data)

        is_recovery = bool(request.flags & Flag.HIGH_PRIORITY)
        return (
            core.StoredRead(*ids, request.master_key, is_recovery),
            answer,
        )

    def _read_batch(
        self, request: BatchReadRequest
    ) -> tuple[Any, Callable[[Code, Sequence[bytes]], None]]:
        ids = request.ledger_id, request.first_entry_id, request.request_id
        return (
            core.StoredBatchRead(
                *ids[:2], request.count_max, request.size_bytes_max, request.master_key
            ),
            lambda code, found: self.send(*answers.encode_batch_read_answer(code, *ids, found)),
        )

    def _read_slices(
        self, request: SliceReadRequest
    ) -> tuple[Any, Callable[[Code, Sequence[bytes]], None]]:
        ids = request.ledger_id, request.entries[0][0], request.request_id

        def answer(code: Code, found: Sequence[bytes]) -> None:
            opcode = Opcode.READ_SLICES
            self.send(*answers.encode_batch_read_answer(code, *ids, found, opcode=opcode))

        size_bytes_max = request.size_bytes_max
        return core.StoredSliceRead(ids[0], request.entries, size_bytes_max), answer


def refuse_runs(connection: SmallConnection, request: Request) -> bool:
    """A script: one of our bookies before ADD_RUN, which answers unknown operations."""
    if not isinstance(request, AddRunRequest):
        return False
    refused = RefusedRequest(
        request.version, Opcode.ADD_RUN, request.ledger_id, request.entry_ids[0], None,
        Code.BAD_REQUEST,
    )  # fmt: skip
    connection.send(answers.encode_refusal(refused))
    return True


def refuse_lacs(connection: SmallConnection, request: Request) -> bool:
    """A script: one of our bookies before TELL_LAC, which answers unknown operations."""
    if not isinstance(request, TellLacRequest):
        return False
    refused = RefusedRequest(
        request.version, Opcode.TELL_LAC, request.ledger_id, request.last_add_confirmed, None,
        Code.BAD_REQUEST,
    )  # fmt: skip
    connection.send(answers.encode_refusal(refused))
    return True


@asynccontextmanager
async def small_server(storage: Any, *, takes_runs: bool) -> AsyncIterator[SmallServer]:
    server = SmallServer(storage, takes_runs=takes_runs)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
