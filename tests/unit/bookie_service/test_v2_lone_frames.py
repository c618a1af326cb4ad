"""Frames that come alone are answered in the turn of the loop in which they came."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.config import BookieSettings
from bookie_server.cpus import LoneStay
from bookie_server.service.in_flight import InFlight
from bookie_server.service.metrics import ServiceCounters
from bookie_server.service.v2_operations import V2Operations
from bookie_server.service.v2_shared import V2Shared
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import decode_answer
from tests.contract.transport_bookies import MemoryStorage
from tests.fixtures.bookie_process import add_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class GatheringStorage(MemoryStorage):
    """Carries out what was gathered when it is told to, as a disk does that is fast enough.

    Attributes:
        is_slow: What was gathered is carried out by nobody, until `finish`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.is_gathering = False
        self.gatherings = 0
        self.gathered: list[tuple[Any, Callable[[Code], None]]] = []

    def gather(self) -> None:
        assert not self.is_gathering
        self.is_gathering = True
        self.gatherings += 1

    def write_gathered(self) -> bool:
        assert self.is_gathering
        self.is_gathering = False
        if self.is_slow:
            return False
        self.finish()
        return True

    def add(self, request: Any, on_done: Callable[[Code], None]) -> None:
        self.gathered.append((request, on_done))

    def finish(self) -> None:
        gathered, self.gathered = self.gathered, []
        for request, on_done in gathered:
            super().add(request, on_done)


class Transport:
    """What an event loop's transport does for a connection, over a real socket."""

    def __init__(self, near: socket.socket) -> None:
        self.near = near

    def get_extra_info(self, name: str) -> None:
        assert name == "peername"

    def set_write_buffer_limits(self, high: int) -> None:
        assert high

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

    def received(self) -> bytes:
        try:
            return self.far.recv(1 << 16)
        except BlockingIOError:
            return b""


class World:
    def __init__(self, directory: Path) -> None:
        self.settings = BookieSettings(directories=(directory,), port=0, bookie_id="b")
        self.storage = GatheringStorage()
        self.shared = V2Shared(self.settings, self.storage, InFlight(1 << 26), ServiceCounters())
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


async def test_an_add_of_a_peer_that_is_alone_is_answered_before_the_turn_ends(world) -> None:
    peer = world.peer()
    peer.send(0)  # who came before is not known yet
    peer.send(1)
    assert peer.received() == b""
    world.storage.finish()
    await asyncio.sleep(0)
    assert peer.received() != b""
    peer.send(2)
    assert code_of(peer.received()) is Code.OK
    assert peer.connection.is_idle
    assert world.shared.in_flight.size_bytes == 0


async def test_adds_that_come_together_are_left_to_the_writers(world) -> None:
    peer = world.lone_peer()
    peer.send(2, 3)
    assert world.storage.gatherings == 0


async def test_of_peers_that_are_busy_at_once_none_is_alone(world) -> None:
    peers = [world.peer(), world.peer()]
    for entry_id in range(4):
        # Who is last in one turn of the loop is often the first in the next.
        peers.reverse()
        for peer in peers:
            peer.send(entry_id, ledger_id=1 + world.peers.index(peer))
    assert world.storage.gatherings == 0
    peers[-1].send(4)
    peers[-1].send(5)
    assert world.storage.gatherings == 1


async def test_an_add_that_the_disk_takes_its_time_for_is_answered_later(world) -> None:
    peer = world.lone_peer()
    world.storage.is_slow = True
    peer.send(2)
    assert world.storage.gatherings == 1
    await asyncio.sleep(0)
    assert peer.received() == b""
    world.storage.finish()
    assert peer.received() == b""
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
    peer = world.lone_peer()
    heard.clear()
    peer.send(2)
    peer.send(3, 4)
    peer.send(5)
    world.storage.is_slow = True
    peer.send(6)
    assert heard == ["lone", "busy", "lone", "busy"]
