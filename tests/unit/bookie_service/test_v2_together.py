"""Requests that arrive together: the runs and stretches, and the answer to each request."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from bookie_server.core.requests import StoredAdd, StoredReads
from bookie_server.service.limits.lanes import QUANTUM_BYTES
from bookie_server.service.v2.connection import UNSENT_BYTES_MAX
from bookie_server.service.v2.segments import (
    COPIED_ENTRY_BYTES_MAX,
    FRAMES_PER_TURN,
    SEGMENT_BYTES_MAX,
    Segment,
    ids_read,
)
from bookie_server.storage.reading.answers import STRETCHES_PER_CALL_MAX
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import (
    AddAnswer,
    BatchReadAnswer,
    ReadAnswer,
    decode_answer,
    encode_add_answer,
    encode_batch_read_answer,
    encode_read_answer_head,
    encode_read_answers,
)
from ledgerlog_spark.wire.answers import encode_add_answers as encode_together
from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import encode_add_head, encode_read
from tests.crash.machine import KEY, SMALL, Machine, entry
from tests.fixtures.v2_machine import V2Machine

OTHER_KEY = bytes(20)
ROOM = 1 << 24


def add(
    ledger_id: int,
    entry_id: int,
    payload: bytes = b"payload",
    *,
    key: bytes = KEY,
    flags: int = 0,
    lac: int | None = None,
) -> bytes:
    stored = entry(ledger_id, entry_id, payload, lac)
    return encode_add_head(key, len(stored), flags) + stored


def bodies(*frames: bytes) -> list[memoryview]:
    return [memoryview(frame)[4:] for frame in frames]


def runs(*frames: bytes) -> list[list[tuple[int, int]]]:
    """The (ledger id, entry id) pairs of each run of the segment at the beginning of frames."""
    segment = Segment(bodies(*frames), 0, FRAMES_PER_TURN, ROOM)
    return [[(run.ledger_id, one) for one in run.entry_ids] for run in segment.runs]


def records_of(bookie: V2Machine, monkeypatch: pytest.MonkeyPatch) -> list[StoredAdd]:
    """Record the runs that the storage accepts as a whole."""
    taken: list[StoredAdd] = []
    storage = bookie.shared.storage
    add_together = storage.add_together

    def noted(request: StoredAdd, on_done: Any) -> bool:
        is_taken = add_together(request, on_done)
        taken.extend([request] * is_taken)
        return is_taken

    monkeypatch.setattr(storage, "add_together", noted)
    return taken


def codes(answers: list[Any]) -> dict[int, Code]:
    return {answer.entry_id: answer.code for answer in answers if isinstance(answer, AddAnswer)}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("ids", [[0], range(7), [3, 5, 1 << 40, (1 << 63) - 1]])
def test_answers_from_the_template_are_the_answers_one_by_one(ids: list[int], version: int) -> None:
    for code in Code:
        together = encode_together(code, 1 << 33, ids, version=version)
        alone = [encode_add_answer(code, 1 << 33, one, version=version) for one in ids]
        assert together == b"".join(alone)


def test_rising_ids_of_one_ledger_form_a_run() -> None:
    assert runs(add(7, 0), add(7, 1), add(7, 5)) == [[(7, 0), (7, 1), (7, 5)]]


def test_each_ledger_has_a_run_of_its_own() -> None:
    frames = [add(7, 0), add(8, 4), add(7, 1), add(8, 5)]
    assert runs(*frames) == [[(7, 0), (7, 1)], [(8, 4), (8, 5)]]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(add(7, 5), id="repeat"),
        pytest.param(add(7, 4), id="falling id"),
        pytest.param(add(7, 6, key=OTHER_KEY), id="other key"),
        pytest.param(add(7, 6, lac=3), id="falling last add confirmed"),
    ],
)
def test_an_add_that_does_not_continue_the_run_begins_another(second: bytes) -> None:
    last = add(7, 7) if OTHER_KEY not in second else add(7, 7, key=OTHER_KEY)
    first, other = runs(add(7, 5), second, last)
    assert first == [(7, 5)]
    assert other[1:] == [(7, 7)]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(encode_read(7, 5), id="read"),
        pytest.param(encode_read(7, -1, fence_key=KEY), id="fence"),
        pytest.param(add(7, 6, flags=Flag.RECOVERY_ADD), id="recovery add"),
        pytest.param(add(7, 6, flags=Flag.HIGH_PRIORITY), id="other flag"),
        pytest.param(add(7, 6)[: -8 - 7 - 1], id="short"),
        pytest.param(add(7, 6, bytes(COPIED_ENTRY_BYTES_MAX)), id="large"),
        pytest.param(b"\3".join((add(7, 6)[:4], add(7, 6)[5:])), id="version 3"),
        pytest.param(add(7, 6).replace(struct.pack(">q", 6), struct.pack(">q", -6)), id="negative"),
        pytest.param(add(7, 6).replace(struct.pack(">q", 7), struct.pack(">q", -7)), id="ledger"),
    ],
)
def test_any_other_frame_ends_the_segment(frame: bytes) -> None:
    assert runs(add(7, 5), frame, add(7, 8)) == [[(7, 5)]]


def test_a_segment_has_at_most_so_many_frames_and_bytes() -> None:
    small = bodies(*(add(7, one, b"") for one in range(FRAMES_PER_TURN + 1)))
    assert Segment(small, 0, FRAMES_PER_TURN, ROOM).count == FRAMES_PER_TURN
    assert Segment(small, 0, 3, ROOM).count == 3
    large = bodies(*(add(7, one, bytes(10_000)) for one in range(200)))
    segment = Segment(large, 0, FRAMES_PER_TURN, ROOM)
    assert 1 < segment.count < 200
    assert segment.runs[0].cost_bytes <= SEGMENT_BYTES_MAX
    assert Segment(large, 0, FRAMES_PER_TURN, 50_000).runs[0].cost_bytes <= 50_000


def test_burst_is_one_record_and_its_answers_are_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bookie = V2Machine()
    taken = records_of(bookie, monkeypatch)
    bookie.receive(b"".join(add(7, one, b"%d" % one) for one in range(100)))
    answers = bookie.finish()
    assert codes(answers) == dict.fromkeys(range(100), Code.OK)
    assert [request.entry_ids for request in taken] == [range(100)]
    assert len(bookie.wire.writes) == 1
    assert bookie.machine.serving.counters.journal_records == 1
    for one in range(100):
        assert bookie.machine.read(7, one) == (Code.OK, entry(7, one, b"%d" % one))
    assert bookie.counters.add_requests == bookie.counters.add_entries == 100
    assert bookie.counters.answers[Code.OK] == 100
    bookie.check_memory()


def test_burst_passes_no_fence() -> None:
    """ADD 5, FENCE, ADD 6: the fence covers 5, is answered after it, and 6 is refused."""
    bookie = V2Machine()
    fence = encode_read(7, -1, fence_key=KEY)
    bookie.receive(add(7, 4) + add(7, 5) + fence + add(7, 6) + add(7, 7))
    answers = bookie.finish()
    assert codes(answers) == {4: Code.OK, 5: Code.OK, 6: Code.FENCED, 7: Code.FENCED}
    fences = [answer for answer in answers if isinstance(answer, ReadAnswer)]
    assert [(fence.code, fence.entry) for fence in fences] == [(Code.OK, entry(7, 5, b"payload"))]
    order = [answer.entry_id for answer in answers if answer.code is Code.OK]
    assert order == [4, 5, -1], "the fence was answered before the adds that it covers"
    bookie.machine.lose_power()
    bookie.machine.start()
    assert bookie.machine.read(7, 5)[0] is Code.OK
    assert bookie.machine.read(7, 6)[0] is Code.NO_ENTRY


def test_fenced_between_two_receptions_refuses_each_add_of_the_second() -> None:
    bookie = V2Machine()
    bookie.receive(add(7, 0) + add(7, 1))
    bookie.receive(encode_read(7, -1, fence_key=KEY))
    bookie.receive(add(7, 2) + add(7, 3))
    found = codes(bookie.finish())
    assert found == {0: Code.OK, 1: Code.OK, 2: Code.FENCED, 3: Code.FENCED}
    bookie.check_memory()


def test_burst_has_not_one_code() -> None:
    """A bad add gets its own code, and the adds before and after it are stored."""
    bookie = V2Machine()
    frames = [add(7, 0), add(7, 1), add(7, 2, key=OTHER_KEY), add(7, 3), add(7, 4)]
    bookie.receive(b"".join(frames))
    ok = dict.fromkeys((0, 1, 3, 4), Code.OK)
    assert codes(bookie.finish()) == {**ok, 2: Code.UNAUTHORIZED}
    assert bookie.machine.held(7) == [(0, 1), (3, 4)]
    bookie.check_memory()


def test_refused_run_holds_up_only_its_own_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = V2Machine()
    bookie.machine.fence(8)
    taken = records_of(bookie, monkeypatch)
    bookie.receive(b"".join(add(ledger, one) for one in range(3) for ledger in (7, 8, 9)))
    answers = bookie.finish()
    assert [answer.ledger_id for answer in answers if answer.code is Code.FENCED] == [8] * 3
    assert [request.ledger_id for request in taken] == [7, 9]
    assert sum(answer.code is Code.OK for answer in answers) == 6
    bookie.check_memory()


def test_repeats_are_compared_and_what_follows_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = V2Machine()
    bookie.receive(add(7, 0) + add(7, 1))
    bookie.finish()
    taken = records_of(bookie, monkeypatch)
    bookie.receive(add(7, 0) + add(7, 1, b"changed") + add(7, 2))
    bookie.finish()
    assert not taken
    assert bookie.machine.serving.counters.adds_repeated == 1
    assert bookie.machine.read(7, 1)[1] == entry(7, 1, b"changed")
    assert bookie.machine.read(7, 2)[0] is Code.OK
    bookie.check_memory()


def test_last_add_confirmed_is_the_largest_of_all_adds() -> None:
    bookie = V2Machine()
    bookie.receive(add(7, 4, lac=1) + add(7, 5, lac=3) + add(7, 6, lac=2))
    bookie.finish()
    assert bookie.machine.ask(lambda done: bookie.machine.serving.read_lac(7, done)) == (Code.OK, 3)
    bookie.machine.crash()
    bookie.machine.start()
    assert bookie.machine.ask(lambda done: bookie.machine.serving.read_lac(7, done)) == (Code.OK, 3)


def test_after_a_failed_sync_all_adds_of_the_burst_are_unknown() -> None:
    bookie = V2Machine()
    bookie.machine.disk.faults.sync_errors = 1
    bookie.receive(add(7, 0) + add(7, 1))
    assert codes(bookie.finish()) == {0: Code.IO_ERROR, 1: Code.IO_ERROR}
    bookie.check_memory()


def test_turn_ends_after_so_many_frames() -> None:
    bookie = V2Machine()
    warm = 2 * FRAMES_PER_TURN
    bookie.receive(b"".join(add(7, one, b"") for one in range(warm)))
    bookie.finish()  # from now on, one reception has room for more frames than a turn
    count = warm + FRAMES_PER_TURN + 100
    bookie.receive(b"".join(add(7, one, b"") for one in range(warm, count)))
    assert bookie.counters.add_requests - warm == FRAMES_PER_TURN
    assert codes(bookie.finish()) == dict.fromkeys(range(count), Code.OK)
    bookie.check_memory()


def test_lane_of_writes_admits_a_prefix() -> None:
    bookie = V2Machine(shared_bytes=18 << 20)
    lane = bookie.lanes.writes
    lane.share("10.0.0.2").force(lane.size_bytes_max - 60_000)
    bookie.receive(b"".join(add(7, one, bytes(500)) for one in range(200)))
    assert 2 < bookie.counters.add_requests < 200
    assert lane.shared_bytes <= lane.size_bytes_max
    assert codes(bookie.finish()) == dict.fromkeys(range(200), Code.OK)


def test_lost_connection_gives_back_what_a_burst_holds() -> None:
    bookie = V2Machine()
    bookie.receive(add(7, 0) + add(7, 1))
    bookie.connection.connection_lost(None)
    bookie.machine.scheduler.run_until(lambda: not bookie.connection.open_requests)
    assert [lane.held_bytes for lane in bookie.lanes.all] == [0, 0, 0, 0]
    assert bookie.machine.held(7) == [(0, 1)]


def reads(ledger_id: int, ids: Any, flags: int = 0) -> bytes:
    return b"".join(encode_read(ledger_id, one, flags=flags) for one in ids)


def test_reads_of_one_ledger_form_a_group() -> None:
    frames = bodies(*(encode_read(7, one) for one in (3, 1, 1)), encode_read(8, 4))
    assert ids_read(frames, 0, 10) == (2, 7, [3, 1, 1])
    assert ids_read(frames, 1, 10) == (2, 7, [1, 1])
    assert ids_read(frames, 0, 2) == (2, 7, [3, 1])
    assert ids_read(frames, 3, 10) == (2, 8, [4])


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(encode_read(7, -1), id="last entry"),
        pytest.param(encode_read(7, 1, flags=Flag.HIGH_PRIORITY), id="recovery read"),
        pytest.param(encode_read(7, 1, fence_key=KEY), id="fence"),
        pytest.param(encode_read(7, 1)[:3] + b"\x15" + encode_read(7, 1)[4:] + b"x", id="long"),
        pytest.param(add(7, 1), id="add"),
        pytest.param(encode_read(7, 1).replace(b"\2\2", b"\3\2", 1), id="version 3"),
        pytest.param(encode_read(7, 5).replace(struct.pack(">q", 5), bytes([255] * 8)), id="id"),
    ],
)
def test_any_other_frame_ends_the_group(frame: bytes) -> None:
    assert ids_read(bodies(encode_read(7, 0), frame), 0, 10)[2] == [0]
    assert ids_read(bodies(frame, encode_read(7, 0)), 0, 10)[2] == []


@pytest.mark.parametrize("version", [1, 2])
def test_answers_to_reads_are_those_one_by_one(version: int) -> None:
    ids, entries = [4, 1 << 40], [b"abc", b"defgh"]
    one_by_one = b""
    for one, stored in zip(ids, entries, strict=True):
        one_by_one += encode_read_answer_head(Code.OK, 9, one, len(stored), version=version)
        one_by_one += stored
    together = encode_read_answers(Code.OK, 9, ids, entries, version=version)
    assert b"".join(together) == one_by_one
    refused = [encode_read_answer_head(Code.NO_ENTRY, 9, one, 0, version=version) for one in ids]
    assert encode_read_answers(Code.NO_ENTRY, 9, ids, (), version=version) == refused


def test_reads_together_get_their_own_codes_in_one_write() -> None:
    bookie = V2Machine()
    bookie.machine.disk.cold_part = 0.0
    bookie.receive(b"".join(add(7, one, b"%d" % one) for one in range(20)))
    bookie.finish()
    bookie.wire.writes.clear()
    bookie.receive(reads(7, range(0, 30, 3)) + reads(8, range(3)))
    answers = {(one.ledger_id, one.entry_id): (one.code, one.entry) for one in bookie.finish()}
    assert answers == {
        **{(7, one): (Code.OK, entry(7, one, b"%d" % one)) for one in range(0, 20, 3)},
        **{(7, one): (Code.NO_ENTRY, None) for one in (21, 24, 27)},
        **{(8, one): (Code.NO_LEDGER, None) for one in range(3)},
    }
    assert len(bookie.wire.writes) == 1
    assert bookie.counters.read_requests == 13
    assert bookie.counters.read_entries == 7
    assert bookie.counters.answers[Code.NO_ENTRY] == 3
    bookie.check_memory()


def test_scattered_reads_continue_after_the_stretches_of_one_call() -> None:
    bookie = V2Machine()
    count = 2 * STRETCHES_PER_CALL_MAX + 3
    bookie.receive(b"".join(add(7, 2 * one) + add(8, one) for one in range(count)))
    bookie.finish()
    bookie.wire.writes.clear()
    bookie.receive(reads(7, range(0, 2 * count, 2)))
    answers = bookie.finish()
    assert sorted(one.entry_id for one in answers) == list(range(0, 2 * count, 2))
    assert {one.code for one in answers} == {Code.OK}
    bookie.check_memory()


def test_reads_beyond_the_lane_are_busy_one_by_one() -> None:
    """Other peers have taken the lane while the device read the entries."""
    bookie = V2Machine(shared_bytes=18 << 20)
    bookie.machine.disk.cold_part = 1.0  # no read is answered while the next one is decided on
    bookie.receive(b"".join(add(7, one, bytes(8_000)) for one in range(5)))
    bookie.finish()
    bookie.wire.writes.clear()
    bookie.machine.disk.cold_part = 1.0
    bookie.connection._read_reserve.size_bytes = 2_048
    bookie.connection.shares.reads.reserve_bytes = 0
    lane = bookie.lanes.reads
    bookie.receive(reads(7, [*range(5), *[99] * 55]))
    lane.share("10.0.0.2").force(lane.free_bytes - 40_000)
    answered = [one.code for one in bookie.finish() if one.entry_id < 99]
    assert set(answered) == {Code.OK, Code.BUSY}
    assert len(answered) == 5
    assert lane.refusals == bookie.counters.answers[Code.BUSY] + 1


def test_lost_connection_gives_back_what_cold_reads_hold() -> None:
    bookie = V2Machine(Machine(settings=replace(SMALL, recent_bytes_max=1)))
    bookie.receive(add(7, 0) + add(7, 1))
    bookie.finish()
    bookie.machine.disk.cold_part = 1.0
    bookie.receive(reads(7, (0, 1)))
    assert bookie.connection.open_requests == 2
    bookie.connection.connection_lost(None)
    bookie.machine.scheduler.run_until(lambda: not bookie.connection.open_requests)
    assert [lane.held_bytes for lane in bookie.lanes.all] == [0, 0, 0, 0]


def test_batch_of_equal_lengths_is_joined_and_others_are_not_copied() -> None:
    entries = [bytes([one]) * 50 for one in range(4)]
    for some in (entries, [*entries, b"x"], [entries[0]], [bytes(20_000)] * 2):
        buffers = encode_batch_read_answer(Code.OK, 7, 0, 5, some)
        answer = decode_answer(b"".join(buffers)[4:])
        assert isinstance(answer, BatchReadAnswer)
        assert [bytes(one) for one in answer.entries] == some
        is_joined = len({len(one) for one in some}) == 1 and len(some[0]) < 16_384
        assert len(buffers) == (1 if is_joined else 2 * len(some) + 1)


def test_adds_of_a_refused_run_stay_before_later_adds_of_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bookie = V2Machine()
    bookie.receive(add(7, 2) + add(7, 3))
    bookie.finish()
    order: list[int] = []
    storage = bookie.shared.storage
    add_alone, together = storage.add, storage.add_together

    def alone(request: StoredAdd, on_done: Any) -> None:
        order.extend(request.entry_ids)
        add_alone(request, on_done)

    def at_once(request: StoredAdd, on_done: Any) -> bool:
        is_taken = together(request, on_done)
        order.extend(request.entry_ids if is_taken else ())
        return is_taken

    monkeypatch.setattr(storage, "add", alone)
    monkeypatch.setattr(storage, "add_together", at_once)
    ids = [3, 10, 11, 5, 6]
    bookie.receive(b"".join(add(7, one) for one in ids))
    assert codes(bookie.finish()) == {2: Code.OK, **dict.fromkeys(ids, Code.OK)}
    assert order == ids


EVENTS_MAX = 20_000
"""Maximum number of events; the answers of one reception need fewer."""


@pytest.mark.parametrize("count", [64, 200, 600])
def test_burst_of_repeats_is_answered(count: int) -> None:
    """Each repeat is a separate run, and the storage refuses all these runs."""
    bookie = V2Machine()
    assert bookie.machine.add(7, (5,), b"payload") is Code.OK
    bookie.receive(add(7, 5) * count)
    bookie.run_until_idle(EVENTS_MAX)
    answers = bookie.finish()
    assert [(one.code, one.entry_id) for one in answers] == [(Code.OK, 5)] * count
    assert bookie.machine.serving.counters.adds_repeated == count
    bookie.check_memory()


@pytest.mark.parametrize("count", [64, 200])
def test_burst_for_many_ledgers_is_answered_by_a_read_only_bookie(count: int) -> None:
    bookie = V2Machine()
    bookie.machine.serving.set_read_only(is_read_only=True)
    bookie.receive(b"".join(add(ledger_id, 0) for ledger_id in range(count)))
    bookie.run_until_idle(EVENTS_MAX)
    answers = bookie.finish()
    assert [(one.code, one.ledger_id) for one in answers] == [
        (Code.READ_ONLY, ledger_id) for ledger_id in range(count)
    ]
    bookie.check_memory()


def test_refused_adds_before_others_are_handled_once_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn may end between the refusal of runs and the handling of their adds."""
    bookie = V2Machine()
    assert bookie.machine.add(7, (5,), b"payload") is Code.OK
    tried: list[int] = []
    storage = bookie.shared.storage
    add_together = storage.add_together

    def noted(request: StoredAdd, on_done: Any) -> bool:
        tried.append(request.ledger_id)
        return add_together(request, on_done)

    monkeypatch.setattr(storage, "add_together", noted)
    bookie.receive(add(7, 5) * 100 + b"".join(add(8, one) for one in range(50)))
    bookie.run_until_idle(EVENTS_MAX)
    assert len(bookie.finish()) == 150
    assert tried.count(7) <= 1 + 150 // 64
    assert bookie.machine.held(8) == [(0, 49)]


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("is_together", [False, True])
def test_large_entries_are_read_as_alone(*, is_together: bool, is_cold: bool) -> None:
    """The connection has not had large answers yet."""
    machine = Machine(settings=replace(SMALL, file_size_bytes=1 << 25, recent_bytes_max=1))
    machine.disk.cold_part = float(is_cold)
    bookie = V2Machine(machine)
    for one in range(24):
        assert machine.add(7, (one,), bytes([one]) * 900_000) is Code.OK
    frames = [encode_read(7, one) for one in range(24)]
    for reception in [b"".join(frames)] if is_together else frames:
        bookie.receive(reception)
    found = {answer.entry_id: answer.code for answer in bookie.finish()}
    busy = [one for one, code in found.items() if code is Code.BUSY]
    assert found.keys() == set(range(24))
    assert set(found.values()) <= {Code.OK, Code.BUSY}
    assert not busy or is_cold
    bookie.check_memory()


@pytest.mark.parametrize("size", [100, 1_000, 8_000])
@pytest.mark.parametrize("room", [20_000, 60_000, 140_000, 400_000])
def test_reads_together_are_not_busy_where_reads_alone_are_not(size: int, room: int) -> None:
    """Little was reserved for the answers, and the lane has little room."""
    for is_together in (False, True):
        bookie = V2Machine(shared_bytes=18 << 20)
        bookie.machine.disk.cold_part = 0.0
        bookie.receive(b"".join(add(7, one, bytes(size)) for one in range(5)))
        bookie.receive(reads(7, [99] * 60))
        bookie.finish()
        bookie.wire.writes.clear()
        lane = bookie.lanes.reads
        lane.share("10.0.0.2").force(lane.size_bytes_max - room)
        bookie.connection.shares.reads.reserve_bytes = 0
        frames = [encode_read(7, one) for one in [*range(5), *[99] * 60]]
        for reception in [b"".join(frames)] if is_together else frames:
            bookie.receive(reception)
        found = Counter(answer.code for answer in bookie.finish())
        assert found == {Code.NO_ENTRY: 60, Code.OK: 5}, is_together
        assert lane.refusals == 0


def test_falling_last_add_confirmed_after_another_ledger_begins_a_run() -> None:
    frames = [add(7, 4, lac=3), add(8, 0), add(7, 5, lac=2), add(7, 6, lac=2)]
    assert runs(*frames) == [[(7, 4)], [(8, 0)], [(7, 5), (7, 6)]]


def test_adds_after_another_ledger_continue_the_newest_run() -> None:
    frames = [add(7, 5), add(7, 5), add(8, 0), add(7, 6)]
    assert runs(*frames) == [[(7, 5)], [(7, 5), (7, 6)], [(8, 0)]]


def test_run_without_a_place_in_the_lane_of_adds_gives_its_writes_back() -> None:
    bookie = V2Machine()
    bookie.receive(add(7, 0) + add(7, 1))
    bookie.finish()
    lane = bookie.lanes.adds
    filler, other = lane.share("10.0.0.3"), lane.share("10.0.0.2")
    filler.force(lane.free_bytes - 200_000)
    granted: list[bool] = []
    other.wait(120_000, lambda: granted.append(True))
    bookie.connection.shares.adds.place = lane.virtual_time + (1 << 30)  # it has waited before
    bookie.receive(b"".join(add(7, one, bytes(1_500)) for one in range(2, 40)))
    filler.give_back(filler.held_bytes)
    assert codes(bookie.finish()) == dict.fromkeys(range(40), Code.OK)
    assert granted
    other.give_back(other.held_bytes)
    bookie.check_memory()


def test_refused_adds_between_others_keep_their_order_when_the_turn_ends() -> None:
    bookie = V2Machine()
    assert bookie.machine.add(9, (0,), b"payload") is Code.OK
    assert bookie.machine.fence(7)[0].is_absent
    bookie.receive(b"".join(add(6, one, b"") for one in range(1_000)))
    bookie.finish()  # from now on, one reception has room for all frames
    bookie.wire.writes.clear()
    # Several turns, in which these adds are handled alone. The read ends their segment.
    before = add(9, 0) * 130 + encode_read(9, 0)
    between = b"".join(add(7, one) + add(8, one) for one in range(60))
    bookie.receive(before + between)
    bookie.run_until_idle(EVENTS_MAX)
    answers = bookie.finish()
    fenced = [one.entry_id for one in answers if one.ledger_id == 7]
    assert fenced == list(range(60)), "refused adds are answered in their order"
    assert Counter(one.code for one in answers) == {Code.OK: 191, Code.FENCED: 60}
    assert bookie.machine.held(8) == [(0, 59)]
    bookie.check_memory()


def test_reads_together_wait_for_a_peer_that_takes_no_answers() -> None:
    bookie = V2Machine()
    bookie.machine.disk.cold_part = 0.0
    for one in range(5):
        assert bookie.machine.add(7, (one,), bytes(10_000)) is Code.OK
    bookie.connection.pause_writing()
    bookie.receive(reads(7, [one % 5 for one in range(600)]))
    bookie.machine.scheduler.run_for(1_000)
    unsent_bytes = bookie.connection.shares.reads.unsent_bytes
    assert UNSENT_BYTES_MAX < unsent_bytes <= UNSENT_BYTES_MAX + QUANTUM_BYTES
    assert bookie.connection._backlog
    bookie.connection.resume_writing()
    assert len(bookie.finish()) == 600
    bookie.check_memory()


def test_adds_together_wait_for_a_peer_that_takes_no_answers() -> None:
    bookie = V2Machine()
    share = bookie.connection.shares.adds
    share.force(UNSENT_BYTES_MAX + 1)
    share.unsent_bytes = UNSENT_BYTES_MAX + 1
    bookie.connection.pause_writing()
    bookie.receive(add(7, 0) + add(7, 1))
    assert bookie.counters.add_requests == 0
    bookie.connection.resume_writing()
    assert codes(bookie.finish()) == {0: Code.OK, 1: Code.OK}
    bookie.check_memory()


def test_turn_ends_after_so_many_runs() -> None:
    bookie = V2Machine()
    bookie.receive(b"".join(add(6, one, b"") for one in range(1_000)))
    bookie.finish()  # from now on, one reception has room for all frames
    bookie.receive(b"".join(add(ledger_id, 0) for ledger_id in range(1_000, 1_300)))
    assert 100 < bookie.counters.add_requests - 1_000 < 300
    assert len(bookie.finish()) == 1_300
    bookie.check_memory()


def test_one_call_takes_at_most_a_quantum_for_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = V2Machine()
    requests: list[StoredReads] = []
    storage = bookie.shared.storage
    read_together = storage.read_together

    def noted(request: StoredReads, on_some: Any) -> int:
        requests.append(request)
        return read_together(request, on_some)

    monkeypatch.setattr(storage, "read_together", noted)
    of_one = bookie.connection._read_reserve.size_bytes
    bookie.receive(reads(7, range(200)))
    bookie.finish()
    assert len(requests[0].entry_ids) == QUANTUM_BYTES // of_one < 200
    assert requests[0].size_bytes_max <= QUANTUM_BYTES
