"""Peers that send more than they should or take less: bounded memory, and others are served."""

from __future__ import annotations

import select
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.requests import encode_batch_read, encode_read
from tests.fixtures.bookie_process import KEY, add_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess, Peer

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
MEBIBYTE = 1 << 20
IN_FLIGHT_BYTES_MAX = 12 * MEBIBYTE


@pytest.fixture
def small_bookie(make_bookie: MakeBookie) -> BookieProcess:
    return make_bookie(
        in_flight_bytes_max=IN_FLIGHT_BYTES_MAX,
        in_flight_bytes_per_connection_max=6 * MEBIBYTE,
        stall_timeout_ms=1_000,
    ).start()


def _resident_bytes(bookie: BookieProcess) -> int:
    assert bookie.process is not None
    status = Path(f"/proc/{bookie.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def _send_until_refused(peer: Peer, frame: bytes, size_bytes_max: int) -> int:
    """Push frames without reading answers; how many bytes the bookie took."""
    peer.socket.settimeout(1)
    sent = 0
    while sent < size_bytes_max:
        try:
            sent += peer.socket.send(frame)
        except TimeoutError:
            break
        except (BrokenPipeError, ConnectionResetError):
            break
    return sent


def test_reader_that_takes_no_answers_is_not_read_from_for_ever(
    small_bookie: BookieProcess,
) -> None:
    with small_bookie.peer() as peer:
        for entry_id in range(8):
            assert peer.ask(add_frame(1, entry_id, bytes(MEBIBYTE))).code is Code.OK
    before = _resident_bytes(small_bookie)
    batch = encode_batch_read(1, 0, request_id=1, count_max=8, size_bytes_max=8 * MEBIBYTE)
    greedy = [small_bookie.peer() for _ in range(6)]
    try:
        for peer in greedy:
            taken = _send_until_refused(peer, batch * 500, 20 * MEBIBYTE)
            assert taken < 20 * MEBIBYTE
        assert _resident_bytes(small_bookie) - before < 120 * MEBIBYTE
        with small_bookie.peer() as other:
            assert other.ask(encode_read(1, 0)).code is Code.OK
            assert other.ask(add_frame(2, 0, b"served")).code is Code.OK
            assert other.ask(encode_read(1, -1, fence_key=KEY)).code is Code.OK
    finally:
        for peer in greedy:
            peer.socket.close()


def test_reader_that_never_takes_its_answers_loses_the_connection(
    small_bookie: BookieProcess,
) -> None:
    with small_bookie.peer() as peer:
        for entry_id in range(4):
            assert peer.ask(add_frame(1, entry_id, bytes(MEBIBYTE))).code is Code.OK
        _send_until_refused(peer, encode_read(1, 0) * 200, MEBIBYTE)
        _wait_until_reset(peer)


def _wait_until_reset(peer: Peer) -> None:
    """Blocks, without reading, until the bookie reset the connection."""
    poll = select.poll()
    poll.register(peer.socket, select.POLLERR | select.POLLHUP | select.POLLRDHUP)
    assert poll.poll(20_000), "the bookie keeps a peer that takes nothing"


def test_flood_of_adds_that_wait_for_the_disk_stays_within_bounds(
    small_bookie: BookieProcess,
) -> None:
    frames = [add_frame(1, entry_id, bytes(256 * 1024)) for entry_id in range(400)]
    with small_bookie.peer() as peer:
        peer.socket.settimeout(30)
        answered = 0
        for frame in frames:
            peer.send(frame)
        peak = _resident_bytes(small_bookie)
        while answered < len(frames):
            assert peer.answer().code is Code.OK
            answered += 1
    assert peak < 300 * MEBIBYTE


def test_connections_beyond_the_limit_are_closed_and_the_others_served(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie(connections_max=3).start()
    peers = [bookie.peer() for _ in range(3)]
    try:
        for number, peer in enumerate(peers):
            assert peer.ask(add_frame(1, number, b"x")).code is Code.OK
        with bookie.peer() as one_too_many:
            assert one_too_many.is_closed()
        peers.pop().socket.close()
        assert peers[0].ask(add_frame(1, 9, b"x")).code is Code.OK
        with bookie.peer() as next_one:
            next_one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert next_one.ask(add_frame(1, 10, b"x")).code is Code.OK
    finally:
        for peer in peers:
            peer.socket.close()
