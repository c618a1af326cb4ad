"""Frames that come alone: when they are answered, and where the loop stays meanwhile."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.config import BookieSettings
from bookie_server.cpus import LoneStay
from bookie_server.service.lanes import Lanes
from bookie_server.service.metrics import ServiceCounters
from bookie_server.service.v2_operations import V2Operations
from bookie_server.service.v2_shared import V2Shared
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import decode_answer
from ledgerlog_spark.wire.requests import encode_read
from tests.contract.transport_bookies import MemoryStorage
from tests.fixtures.bookie_process import add_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class HeldStorage(MemoryStorage):
    """Carries adds out when it is told to; reads at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Any, Callable[[Code], None]]] = []

    def add(self, request: Any, on_done: Callable[[Code], None]) -> None:
        self.held.append((request, on_done))

    def finish(self) -> None:
        held, self.held = self.held, []
        for request, on_done in held:
            super().add(request, on_done)


class Transport:
    """What an event loop's transport does for a connection, over a real socket."""

    def __init__(self, near: socket.socket) -> None:
        self.near = near

    def get_extra_info(self, name: str) -> None:
        assert name == "peername"

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.near.sendall(data)


class Peer:
    """One connection, and what its peer has received."""

    def __init__(self, shared: V2Shared) -> None:
        self.near, self.far = socket.socketpair()
        self.far.setblocking(False)
        self.transport = Transport(self.near)
        self.connection = V2Operations(shared, lambda _: True, lambda _: None)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, *entry_ids: int, ledger_id: int = 1) -> None:
        frames = b"".join(add_frame(ledger_id, entry_id, b"x") for entry_id in entry_ids)
        self.connection.get_buffer(0)[: len(frames)] = frames
        self.connection.buffer_updated(len(frames))

    def read(self, entry_id: int, ledger_id: int = 1) -> None:
        frame = encode_read(ledger_id, entry_id)
        self.connection.get_buffer(0)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))

    def received(self) -> bytes:
        try:
            return self.far.recv(1 << 16)
        except BlockingIOError:
            return b""


class World:
    def __init__(self, directory: Path) -> None:
        self.settings = BookieSettings(directories=(directory,), port=0, bookie_id="b")
        self.storage = HeldStorage()
        self.shared = V2Shared(
            self.settings, self.storage, Lanes.of(self.settings), ServiceCounters()
        )
        self.peers: list[Peer] = []

    def peer(self) -> Peer:
        self.peers.append(Peer(self.shared))
        return self.peers[-1]

    def lone_peer(self) -> Peer:
        """Nobody else was heard lately."""
        peer = self.peer()
        for entry_id in range(2):
            peer.send(entry_id)
        self.storage.finish()
        peer.connection._flush()
        assert peer.received() != b""
        return peer


@pytest.fixture
async def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for peer in made.peers:
        peer.near.close()
        peer.far.close()


def code_of(answer: bytes) -> Code:
    size = int.from_bytes(answer[:4], "big")
    assert len(answer) == 4 + size
    return decode_answer(answer[4:]).code  # type: ignore[union-attr]


async def test_an_answer_that_is_ready_goes_out_in_the_turn_of_its_lone_request(world) -> None:
    peer = world.lone_peer()
    peer.read(0)
    assert code_of(peer.received()) is Code.OK
    assert peer.connection.is_idle
    assert world.shared.lanes.reads.held_bytes == 0


async def test_an_add_that_comes_alone_is_answered_when_storage_is_through(world) -> None:
    peer = world.lone_peer()
    peer.send(2)
    await asyncio.sleep(0)
    assert peer.received() == b""
    world.storage.finish()
    await asyncio.sleep(0)
    assert code_of(peer.received()) is Code.OK


async def test_a_connection_that_is_gone_is_not_remembered(world) -> None:
    peer = world.lone_peer()
    assert peer.connection in (world.shared.last, world.shared.last_but_one)
    peer.connection.connection_lost(None)
    assert (world.shared.last, world.shared.last_but_one) == (None, None)


async def test_the_loop_stays_on_its_cpu_while_adds_come_alone_and_no_longer(
    world, monkeypatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(LoneStay, "lone", lambda _self: heard.append("lone"))
    monkeypatch.setattr(LoneStay, "busy", lambda _self: heard.append("busy"))
    peers = [world.lone_peer(), world.peer()]
    heard.clear()
    peers[0].send(2)
    peers[0].send(3, 4)
    peers[0].send(5)
    peers[0].read(0)
    assert heard == ["lone", "busy", "lone", "busy"]
    heard.clear()
    for entry_id in range(6, 10):
        # Who is last in one turn of the loop is often the first in the next.
        peers.reverse()
        for peer in peers:
            peer.send(entry_id, ledger_id=1 + world.peers.index(peer))
    assert heard == ["busy"] * 8
