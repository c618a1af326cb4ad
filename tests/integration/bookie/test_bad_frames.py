"""Wrong bytes of one client get a code or a closed connection, and all other clients are served."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.opcodes import Opcode, number_of, packet_header
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import KEY, add_frame, add_run_frame, stored_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.bookie_process import BookieProcess, Peer

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.fixture(autouse=True)
def others_are_served(bookie: BookieProcess, ledger_id: int) -> Iterator[None]:
    """Check before and after every test of this module that another connection works."""
    with bookie.peer() as other:
        assert other.ask(add_frame(ledger_id + 1_000_000, 0, b"before")).code is Code.OK
        yield
        assert other.ask(encode_read(ledger_id + 1_000_000, 0)).code is Code.OK
        assert other.ask(add_frame(ledger_id + 1_000_000, 1, b"after")).code is Code.OK


def _frame(opcode: int, fields: bytes, *, version: int = 2, flags: int = 0) -> bytes:
    body = struct.pack(">I", packet_header(opcode, flags, version)) + fields
    return struct.pack(">i", len(body)) + body


IDS = struct.pack(">qq", 5, 6)
NUMBERS = {number_of(code) for code in Code}


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", -1),
        struct.pack(">i", 5_253_120),
        struct.pack(">i", 0x7FFFFFFF),
        b"GET / HTTP/1.1\r\nHost: bookie\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        _frame(Opcode.READ, IDS, version=0),
        _frame(Opcode.READ, IDS[:10]),
        _frame(Opcode.READ, IDS + b"x"),
        _frame(Opcode.READ, IDS, flags=1),
        _frame(Opcode.ADD, KEY + IDS),
        _frame(Opcode.BATCH_READ, IDS),
        _frame(Opcode.ADD_RUN, IDS),
        _frame(Opcode.TELL_LAC, IDS),
        _frame(Opcode.TELL_LAC, IDS + KEY + b"x"),
        _frame(Opcode.AUTH, b""),
        _frame(99, b"short"),
    ],
)
def test_bytes_that_cannot_be_answered_close_the_connection(peer: Peer, frame: bytes) -> None:
    peer.send(frame)
    assert peer.is_closed()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (_frame(99, IDS), 100),
        (_frame(4, IDS), 100),
        (_frame(Opcode.READ, IDS, version=3), 103),
        (_frame(Opcode.ADD, KEY + IDS + bytes(16), version=9), 103),
        (_frame(Opcode.READ, struct.pack(">qq", -1, 0)), 100),
        (_frame(Opcode.READ, struct.pack(">qq", 1, -2)), 100),
        (_frame(Opcode.ADD, KEY + struct.pack(">qqqq", 1, -7, -1, 0)), 100),
        (_frame(Opcode.ADD, KEY + struct.pack(">qqqq", -1, 7, -1, 0)), 100),
        (_frame(Opcode.BATCH_READ, struct.pack(">qqqiq", 1, -1, 5, 10, 100)), 100),
        (_frame(Opcode.TELL_LAC, struct.pack(">qq", 1, -1) + KEY), 100),
        (_frame(Opcode.TELL_LAC, struct.pack(">qq", -1, 1) + KEY, version=3), 103),
    ],
)
def test_request_with_readable_fields_gets_a_code_and_the_connection_lives(
    peer: Peer, ledger_id: int, frame: bytes, code: int
) -> None:
    peer.send(frame)
    body = peer.body()
    assert body is not None
    assert struct.unpack_from(">i", body, 4)[0] == code
    assert peer.ask(add_frame(ledger_id, 0, b"still here")).code is Code.OK


def _run(ledger_id: int, *, count: int, stride: int, tail: bytes, first: int = 0) -> bytes:
    fields = struct.pack(">qqq20sii", ledger_id, first, 9, KEY, count, stride)
    return _frame(Opcode.ADD_RUN, fields + tail)


def test_runs_that_do_not_add_up_are_refused_whole(peer: Peer, ledger_id: int) -> None:
    one, two = stored_entry(ledger_id, 0, b"a"), stored_entry(ledger_id, 1, b"b")
    lengths = struct.pack(">ii", len(one), len(two))
    wrong = struct.pack(">ii", len(one), len(two) + 1)
    for frame in (
        _run(ledger_id, count=0, stride=1, tail=b""),
        _run(ledger_id, count=-1, stride=1, tail=lengths + one + two),
        _run(ledger_id, count=1 << 30, stride=1, tail=lengths + one + two),
        _run(ledger_id, count=2, stride=1, tail=wrong + one + two),
        _run(ledger_id, count=2, stride=-1, tail=lengths + one + two),
        _run(ledger_id, count=2, stride=2, tail=lengths + one + two),
        _run(ledger_id, count=2, stride=1, first=1, tail=lengths + one + two),
        _run(ledger_id + 1, count=2, stride=1, tail=lengths + one + two),
        _run(ledger_id, count=2, stride=0, tail=struct.pack(">qq", 1, 0) + lengths + one + two),
    ):
        peer.send(frame)
        body = peer.body()
        assert body is not None
        assert struct.unpack_from(">i", body, 4)[0] == 100
        assert struct.unpack_from(">q", body, 24)[0] == 9
    assert peer.ask(encode_read(ledger_id, 0)).code is Code.NO_LEDGER


def test_what_was_answered_before_a_bad_frame_stays(
    bookie: BookieProcess, peer: Peer, ledger_id: int
) -> None:
    assert peer.ask(add_frame(ledger_id, 0, b"good")).code is Code.OK
    peer.send(struct.pack(">i", 0))
    assert peer.is_closed()
    with bookie.peer() as other:
        assert other.read(encode_read(ledger_id, 0)) == stored_entry(ledger_id, 0, b"good")


def test_peer_that_leaves_in_the_middle_of_a_frame_harms_nobody(
    bookie: BookieProcess, ledger_id: int
) -> None:
    frame = add_frame(ledger_id, 0, bytes(100_000))
    for cut in (1, 4, 8, 27, 28, 60, 99_999):
        with bookie.peer() as leaving:
            leaving.send(frame[:cut])
    with bookie.peer() as other:
        assert other.ask(encode_read(ledger_id, 0)).code is Code.NO_LEDGER


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_answered_in_whole_frames_and_stop_neither_bookie_nor_newcomer(
    bookie: BookieProcess, ledger_id: int, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        with bookie.peer() as peer:
            peer.send(_random_frames(chance, ledger_id))
            for body in _answers_until_closed(peer):
                # A refusal repeats the version and the operation of its request.
                assert body[1] == Opcode.AUTH or struct.unpack_from(">i", body, 4)[0] in NUMBERS
            # Hundreds of entries were damaged during the transfer, but not this one.
            with bookie.peer() as newcomer:
                assert newcomer.ask(encode_read(ledger_id + 1_000_000, 0)).code is Code.OK
    assert bookie.process is not None
    assert bookie.process.poll() is None


def _answers_until_closed(peer: Peer) -> list[bytes]:
    """The answers of the bookie to a peer that sends no more, up to the end of the connection. A
    truncated last answer is an error.
    """
    with contextlib.suppress(OSError):  # the bookie may have closed it already
        peer.socket.shutdown(socket.SHUT_WR)
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := peer.socket.recv(1 << 16):
            received += piece
    answers = []
    while received:
        size = int.from_bytes(received[:4], "big")
        assert len(received) >= 4 + size, "the bookie sent part of an answer"
        answers.append(bytes(received[4 : 4 + size]))
        del received[: 4 + size]
    return answers


def _random_frames(chance: random.Random, ledger_id: int) -> bytes:
    frames = b""
    for _ in range(chance.randrange(1, 6)):
        kind = chance.randrange(4)
        if kind == 0:
            frames += chance.randbytes(chance.randrange(200))
        elif kind == 1:
            body = chance.randbytes(chance.randrange(300))
            frames += struct.pack(">i", len(body)) + body
        else:
            frame = bytearray(
                add_run_frame(ledger_id, range(3), b"fuzz", request_id=1)
                if kind == 2
                else add_frame(ledger_id, 0, b"fuzz")
            )
            for _ in range(chance.randrange(1, 4)):
                frame[chance.randrange(4, len(frame))] = chance.randrange(256)
            frames += bytes(frame)
    return frames
