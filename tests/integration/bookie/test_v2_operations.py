"""The answers of a bookie process to well-formed v2 requests on a raw socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import AddAnswer, AddRunAnswer, BatchReadAnswer, ReadAnswer
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import AuthMessage, encode_auth, encode_batch_read, encode_read
from tests.fixtures.bookie_process import KEY, add_frame, add_run_frame, stored_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess, Peer

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
RECOVERY = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY
OTHER_KEY = master_key(b"other")


def test_entry_that_was_added_is_read_back_byte_for_byte(peer: Peer, ledger_id: int) -> None:
    assert peer.ask(add_frame(ledger_id, 0, b"payload")) == AddAnswer(Code.OK, ledger_id, 0)
    answer = peer.ask(encode_read(ledger_id, 0))
    assert answer == ReadAnswer(Code.OK, ledger_id, 0, stored_entry(ledger_id, 0, b"payload"))


def test_entry_without_payload_is_stored(peer: Peer, ledger_id: int) -> None:
    assert peer.ask(add_frame(ledger_id, 0, b"")).code is Code.OK
    assert peer.read(encode_read(ledger_id, 0)) == stored_entry(ledger_id, 0, b"")


def test_entry_that_just_fits_a_frame_is_stored(peer: Peer, ledger_id: int) -> None:
    payload = bytes(5_253_120 - 28 - 36)
    assert peer.ask(add_frame(ledger_id, 0, payload)).code is Code.OK
    assert peer.read(encode_read(ledger_id, 0)) == stored_entry(ledger_id, 0, payload)


def test_missing_entry_and_missing_ledger_are_told_apart(peer: Peer, ledger_id: int) -> None:
    assert peer.ask(encode_read(ledger_id, 0)).code is Code.NO_LEDGER
    peer.ask(add_frame(ledger_id, 0, b"x"))
    assert peer.ask(encode_read(ledger_id, 1)).code is Code.NO_ENTRY


def test_last_entry_is_read_with_minus_one_echoed(peer: Peer, ledger_id: int) -> None:
    for entry_id in (3, 9, 5):
        peer.ask(add_frame(ledger_id, entry_id, b"%d" % entry_id))
    answer = peer.ask(encode_read(ledger_id, -1))
    assert answer == ReadAnswer(Code.OK, ledger_id, -1, stored_entry(ledger_id, 9, b"9"))


def test_run_is_answered_once_with_its_request_id(peer: Peer, ledger_id: int) -> None:
    frame = add_run_frame(ledger_id, range(0, 300, 3), b"r" * 100, request_id=77)
    assert peer.ask(frame) == AddRunAnswer(Code.OK, ledger_id, 0, 77)
    assert peer.read(encode_read(ledger_id, 297)) == stored_entry(ledger_id, 297, b"r" * 100)
    assert peer.ask(encode_read(ledger_id, 298)).code is Code.NO_ENTRY


def test_run_with_listed_ids_is_stored(peer: Peer, ledger_id: int) -> None:
    frame = add_run_frame(ledger_id, (1, 2, 7, 8), b"listed", request_id=1)
    assert peer.ask(frame).code is Code.OK
    assert peer.read(encode_read(ledger_id, 7)) == stored_entry(ledger_id, 7, b"listed")


def test_batch_ends_at_the_first_missing_entry(peer: Peer, ledger_id: int) -> None:
    peer.ask(add_run_frame(ledger_id, range(5), b"b" * 50, request_id=1))
    peer.ask(add_frame(ledger_id, 6, b"after the gap"))
    answer = peer.ask(
        encode_batch_read(ledger_id, 1, request_id=5, count_max=100, size_bytes_max=1 << 20)
    )
    entries = tuple(stored_entry(ledger_id, entry_id, b"b" * 50) for entry_id in range(1, 5))
    assert answer == BatchReadAnswer(Code.OK, ledger_id, 1, 5, entries)


@pytest.mark.parametrize(("count_max", "size_bytes_max", "found"), [(2, 1 << 20, 2), (9, 1, 1)])
def test_batch_keeps_to_its_bounds_but_returns_one_entry(
    peer: Peer, ledger_id: int, count_max: int, size_bytes_max: int, found: int
) -> None:
    peer.ask(add_run_frame(ledger_id, range(5), b"b" * 50, request_id=1))
    answer = peer.ask(
        encode_batch_read(
            ledger_id, 0, request_id=5, count_max=count_max, size_bytes_max=size_bytes_max
        )
    )
    assert isinstance(answer, BatchReadAnswer)
    assert len(answer.entries) == found


def test_batch_with_unlimited_count_is_bounded_by_the_frame(peer: Peer, ledger_id: int) -> None:
    for first in range(0, 80, 8):
        frame = add_run_frame(ledger_id, range(first, first + 8), bytes(100_000), request_id=first)
        assert peer.ask(frame).code is Code.OK
    answer = peer.ask(
        encode_batch_read(ledger_id, 0, request_id=5, count_max=0, size_bytes_max=1 << 40)
    )
    assert isinstance(answer, BatchReadAnswer)
    assert 50 <= len(answer.entries) <= 52


def test_batch_of_a_missing_entry_answers_its_code_and_request_id(
    peer: Peer, ledger_id: int
) -> None:
    peer.ask(add_frame(ledger_id, 0, b"x"))
    frame = encode_batch_read(ledger_id, 5, request_id=8, count_max=3, size_bytes_max=1 << 20)
    assert peer.ask(frame) == BatchReadAnswer(Code.NO_ENTRY, ledger_id, 5, 8, ())


def test_fenced_ledger_takes_recovery_adds_only(peer: Peer, ledger_id: int) -> None:
    peer.ask(add_frame(ledger_id, 0, b"zero"))
    fencing = encode_read(ledger_id, -1, fence_key=KEY)
    assert peer.read(fencing) == stored_entry(ledger_id, 0, b"zero")
    assert peer.ask(add_frame(ledger_id, 1, b"one")).code is Code.FENCED
    run = add_run_frame(ledger_id, range(1, 3), b"run", request_id=3)
    assert peer.ask(run) == AddRunAnswer(Code.FENCED, ledger_id, 1, 3)
    assert peer.ask(add_frame(ledger_id, 1, b"one", flags=RECOVERY)).code is Code.OK
    recovery_run = add_run_frame(ledger_id, range(2, 4), b"run", request_id=4, flags=RECOVERY)
    assert peer.ask(recovery_run).code is Code.OK
    assert peer.read(encode_read(ledger_id, 3)) == stored_entry(ledger_id, 3, b"run")


def test_fence_of_a_ledger_never_seen_sticks(peer: Peer, ledger_id: int) -> None:
    assert peer.ask(encode_read(ledger_id, -1, fence_key=KEY)).code.is_absent
    assert peer.ask(add_frame(ledger_id, 0, b"late")).code is Code.FENCED


def test_wrong_key_is_refused_for_adds_and_fencing_but_not_for_reads(
    peer: Peer, ledger_id: int
) -> None:
    peer.ask(add_frame(ledger_id, 0, b"x"))
    assert peer.ask(add_frame(ledger_id, 1, b"y", key=OTHER_KEY)).code is Code.UNAUTHORIZED
    fencing = encode_read(ledger_id, -1, fence_key=OTHER_KEY)
    assert peer.ask(fencing).code is Code.UNAUTHORIZED
    assert peer.ask(encode_read(ledger_id, 0)).code is Code.OK
    assert peer.ask(add_frame(ledger_id, 1, b"y")).code is Code.OK


def test_keys_are_in_no_log_line(make_bookie: Callable[..., BookieProcess]) -> None:
    bookie = make_bookie(log_level="debug").start()
    with bookie.peer() as peer:
        peer.ask(add_frame(1, 0, b"canary-payload"))
        peer.ask(add_frame(1, 1, b"y", key=OTHER_KEY))
    bookie.stop()  # no answer waits for its log line
    log = bookie.log()
    assert '"stopping"' in log
    for secret in (KEY, OTHER_KEY):
        assert secret.hex() not in log
        assert repr(secret)[2:-1] not in log
    assert "canary-payload" not in log


def test_same_entry_added_twice_is_answered_twice(peer: Peer, ledger_id: int) -> None:
    frame = add_frame(ledger_id, 0, b"same")
    peer.send(frame, frame)
    assert peer.answer().code is Code.OK
    assert peer.answer().code is Code.OK


def test_later_bytes_of_an_entry_win(peer: Peer, ledger_id: int) -> None:
    peer.ask(add_frame(ledger_id, 0, b"first"))
    peer.ask(add_frame(ledger_id, 0, b"later"))
    assert peer.read(encode_read(ledger_id, 0)) == stored_entry(ledger_id, 0, b"later")


def test_pipelined_requests_in_one_write_are_all_answered(peer: Peer, ledger_id: int) -> None:
    frames = [add_frame(ledger_id, entry_id, b"p" * 1_000) for entry_id in range(500)]
    frames += [encode_read(ledger_id, entry_id) for entry_id in range(500)]
    peer.send(*frames)
    answers = [peer.answer() for _ in frames]
    assert {a.entry_id for a in answers if isinstance(a, AddAnswer)} == set(range(500))
    assert {a.entry_id for a in answers if isinstance(a, ReadAnswer)} == set(range(500))


def test_request_that_arrives_byte_by_byte_is_answered(peer: Peer, ledger_id: int) -> None:
    for byte in add_frame(ledger_id, 0, b"slow"):
        peer.send(bytes([byte]))
    assert peer.answer() == AddAnswer(Code.OK, ledger_id, 0)


def test_auth_is_answered_in_its_own_layout(peer: Peer, ledger_id: int) -> None:
    peer.send(encode_auth(b"\x0a\x04name\x12\x02hi"))
    answer = peer.any_answer()
    assert isinstance(answer, AuthMessage)
    assert b"AuthDisabledPlugin" in answer.message
    assert peer.ask(add_frame(ledger_id, 0, b"x")).code is Code.OK


def test_version_one_is_answered_with_version_one(peer: Peer, ledger_id: int) -> None:
    frame = bytearray(add_frame(ledger_id, 0, b"old"))
    frame[4] = 1
    peer.send(bytes(frame))
    body = peer.body()
    assert body is not None
    assert body[0] == 1
    assert int.from_bytes(body[4:8], "big") == 0
