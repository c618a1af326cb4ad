"""Peers that send too much or read too little: memory is bounded, and other peers are served."""

from __future__ import annotations

import contextlib
import resource
import select
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.requests import encode_batch_read, encode_read
from tests.fixtures.bookie_process import KEY, add_frame
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess, Peer

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
MEBIBYTE = 1 << 20
CONNECTIONS_MAX = 64
IN_FLIGHT_BYTES_MAX = 48 * MEBIBYTE


@pytest.fixture
def small_bookie(make_bookie: MakeBookie) -> BookieProcess:
    return _small_bookie(make_bookie)


def _small_bookie(make_bookie: MakeBookie, stall_timeout_ms: int = 1_000) -> BookieProcess:
    return make_bookie(
        connections_max=CONNECTIONS_MAX,
        frame_size_bytes_max=2 * MEBIBYTE,
        in_flight_bytes_max=IN_FLIGHT_BYTES_MAX,
        metrics_port=free_port(),
        stall_timeout_ms=stall_timeout_ms,
        first_request_timeout_ms=1_000,
    ).start()


def _resident_bytes(bookie: BookieProcess) -> int:
    assert bookie.process is not None
    status = Path(f"/proc/{bookie.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def _send_until_refused(peer: Peer, frame: bytes, size_bytes_max: int) -> int:
    """Send frames without reading answers, and return the number of accepted bytes."""
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
    """Block, without reading, until the bookie resets the connection."""
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


def test_a_newcomer_gets_the_place_of_an_idle_connection(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(connections_max=3).start()
    peers = [bookie.peer() for _ in range(3)]
    try:
        for number, peer in enumerate(peers):
            assert peer.ask(add_frame(1, number, b"x")).code is Code.OK
        with bookie.peer() as newcomer:
            assert newcomer.ask(add_frame(1, 9, b"x")).code is Code.OK
            poll = select.poll()
            for peer in peers:
                poll.register(peer.socket, select.POLLRDHUP)
            assert len(poll.poll(20_000)) == 1
    finally:
        for peer in peers:
            peer.socket.close()


def test_silent_peers_lock_nobody_out_and_are_closed(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(connections_max=16, first_request_timeout_ms=1_000).start()
    silent = [bookie.peer() for _ in range(40)]
    try:
        with bookie.peer() as peer:
            assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK
            for one in silent:
                _wait_until_reset(one)
            assert peer.ask(add_frame(1, 1, b"x")).code is Code.OK
    finally:
        for one in silent:
            one.socket.close()


def test_frames_that_are_never_finished_hold_no_more_than_the_bound(
    make_bookie: MakeBookie,
) -> None:
    # Only the lack of room may close a connection before the metric is read.
    small_bookie = _small_bookie(make_bookie, stall_timeout_ms=8_000)
    head = (2 * MEBIBYTE - 4).to_bytes(4, "big") + bytes([2, 1, 0, 0])
    hogs = [small_bookie.peer() for _ in range(40)]
    try:
        for hog in hogs:
            hog.send(head + bytes(40_000))
        with small_bookie.peer() as peer:
            for entry_id in range(3):
                assert peer.ask(add_frame(2, entry_id, bytes(60_000))).code is Code.OK
                assert small_bookie.metric("in_flight_bytes") <= IN_FLIGHT_BYTES_MAX
            large = add_frame(2, 3, bytes(MEBIBYTE))
            assert peer.ask(large).code is Code.OK, "what does not move made room"
        assert small_bookie.metric("connections_swept_total") >= 1
        for hog in hogs:
            _wait_until_reset(hog)
    finally:
        for hog in hogs:
            hog.socket.close()


def test_answers_that_nobody_takes_hold_no_more_than_the_bound(small_bookie: BookieProcess) -> None:
    with small_bookie.peer() as peer:
        for entry_id in range(8):
            assert peer.ask(add_frame(1, entry_id, bytes(MEBIBYTE))).code is Code.OK
    batch = encode_batch_read(1, 0, request_id=1, count_max=8, size_bytes_max=2 * MEBIBYTE)
    hogs = [small_bookie.peer() for _ in range(18)]
    try:
        for hog in hogs:
            hog.send(batch * 4)
        with small_bookie.peer() as peer:
            for entry_id in range(4):
                assert peer.ask(encode_read(1, -1, fence_key=KEY)).code is Code.OK
                assert peer.ask(add_frame(2, entry_id, bytes(60_000))).code is Code.OK
                assert peer.ask(encode_read(2, entry_id)).code is Code.OK
                assert small_bookie.metric("in_flight_bytes") <= IN_FLIGHT_BYTES_MAX
    finally:
        for hog in hogs:
            hog.socket.close()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="Linux sets another process's limits")
def test_a_bookie_that_has_no_descriptor_for_a_connection_serves_on(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie().start()
    assert bookie.process is not None
    pid = bookie.process.pid
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK
        in_use = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 5, in_use + 5))
        others = [bookie.peer() for _ in range(40)]
        try:
            for entry_id in range(1, 20):
                assert peer.ask(add_frame(1, entry_id, b"x")).code is Code.OK
        finally:
            for other in others:
                other.socket.close()
    until(lambda: _is_served(bookie, add_frame(1, 20, b"x")))
    assert bookie.stop() == 0


def _is_served(bookie: BookieProcess, frame: bytes) -> bool:
    """Whether a new peer is served after the descriptors of the closed connections are free."""
    with bookie.peer() as newcomer, contextlib.suppress(ConnectionError):
        newcomer.send(frame)
        return not newcomer.is_closed()
    return False
