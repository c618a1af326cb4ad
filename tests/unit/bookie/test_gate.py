"""The requests that a bookie accepts, one decision at a time, at the edges of each rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookie_server.core.ledger_gate import (
    Health,
    Wait,
    admit_add,
    admit_fence,
    may_forget,
    needs_check,
)
from bookie_server.core.ledger_state import HeldLedger, decode_states, encode_states
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.replay_decision import (
    FileScan,
    Gap,
    judge,
    largest_sequence,
)
from bookie_server.errors import DamagedDirectoryError
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, add_request

FREE_BYTES = 1 << 20


def held(**fields: object) -> HeldLedger:
    state = HeldLedger(7, master_key=KEY)
    for name, value in fields.items():
        setattr(state, name, value)
    return state


def test_an_add_may_take_the_last_free_byte_and_none_more() -> None:
    request = add_request(7, (0,), b"x" * 100)
    size = len(request.body)
    assert admit_add(request, None, Health(), size) is None
    assert admit_add(request, None, Health(), size - 1) is Code.BUSY


@pytest.mark.parametrize(
    ("state", "health", "is_needed"),
    [
        (None, Health(), False),
        (None, Health(check_epoch=1), True),
        (None, Health(highest_dropped_ledger_id=6), False),
        (None, Health(highest_dropped_ledger_id=7), True),
        (held(), Health(), False),
        (held(is_unverified=True), Health(), True),
        (held(check_epoch=1), Health(check_epoch=2), True),
        (held(check_epoch=2), Health(check_epoch=2), False),
    ],
)
def test_a_fence_that_may_be_lost_is_asked_for(
    state: HeldLedger | None, health: Health, *, is_needed: bool
) -> None:
    assert needs_check(7, state, health) is is_needed
    verdict = admit_add(add_request(7, (0,)), state, health, FREE_BYTES)
    assert verdict is (Wait.METADATA_CHECK if is_needed else None)
    by_recovery = add_request(7, (0,), is_recovery=True)
    assert admit_add(by_recovery, state, health, FREE_BYTES) is None


@pytest.mark.parametrize(
    ("state", "health", "code"),
    [
        (None, Health(), None),
        (None, Health(has_room=False), Code.IO_ERROR),
        (held(), Health(has_room=False), Code.IO_ERROR),
        (held(is_fenced=True), Health(has_room=False), None),
        (held(is_fenced=True), Health(has_failed=True), Code.IO_ERROR),
        (held(), Health(has_failed=True), Code.IO_ERROR),
    ],
)
def test_a_fence_needs_room_unless_it_is_there(
    state: HeldLedger | None, health: Health, code: Code | None
) -> None:
    assert admit_fence(KEY, state, health) is code


@pytest.mark.parametrize(
    ("now_s", "durable_ticket", "is_allowed"),
    [(110, 5, True), (109, 5, False), (110, 4, False)],
)
def test_a_tombstone_is_forgotten_after_its_time_with_nothing_in_flight(
    now_s: int, durable_ticket: int, *, is_allowed: bool
) -> None:
    state = held(tombstone=3, dropped_s=100, last_ticket=5)
    allowed = may_forget(state, now_s=now_s, keep_s=10, durable_ticket=durable_ticket)
    assert allowed is is_allowed


def test_an_older_tombstone_that_is_replayed_later_buries_less() -> None:
    state = held()
    state.bury(9, 200)
    state.bury(4, 100)
    assert (state.tombstone, state.dropped_s) == (9, 200)


def test_a_ledger_is_dropped_from_the_submission_of_its_tombstone_on() -> None:
    assert held(drop_ticket=3).is_dropped
    assert held(tombstone=3).is_dropped
    assert not held().is_dropped
    assert not held(tombstone=3, last_accepted_id=0).is_dropped


@pytest.mark.parametrize(("lac", "is_known"), [(6, True), (5, True), (4, False)])
def test_a_lac_is_known_when_no_damaged_entry_may_have_had_a_larger_one(
    lac: int, *, is_known: bool
) -> None:
    assert held(last_add_confirmed=lac, lac_bound=5).is_lac_known is is_known


def test_states_keep_what_decides_on_later_requests() -> None:
    state = held(is_unverified=True, is_fenced=True, tombstone=3, dropped_s=100, check_epoch=2)
    data = encode_states(1, {7: state}, [7])
    read = decode_states(data, "ledgers")[7]
    fields = ("is_unverified", "is_fenced", "tombstone", "dropped_s", "check_epoch", "master_key")
    assert [getattr(read, name) for name in fields] == [getattr(state, name) for name in fields]


def test_states_end_with_a_whole_block_and_have_zeros_between_blocks() -> None:
    block = encode_states(1, {7: held()}, [7])
    assert len(decode_states(block + block, "ledgers")) == 1
    with pytest.raises(DamagedDirectoryError, match="cut off"):
        decode_states(block + block[:-1], "ledgers")
    with pytest.raises(DamagedDirectoryError, match="zeros"):
        decode_states(block[:-1] + b"x" + block, "ledgers")


# Possibly torn records at a start.


def record(sequence: int, size: int = 512) -> JournalRecord:
    made = JournalRecord(JournalRecordKind.RUN, 1, entry_ids=(sequence,), lengths=(size,))
    made.sequence, made.offset, made.header_size = sequence, 8192 + 1024 * sequence, 104
    made.body_size = size
    return made


def scan(records: Sequence[JournalRecord], *gaps: Gap) -> FileScan:
    following = max([r.sequence for r in records] + [g.sequence for g in gaps]) + 1
    return FileScan(8192, following, list(records), list(gaps))


def gap(sequence: int, *, is_blank: bool = False, of: JournalRecord | None = None) -> Gap:
    return Gap(8192 + 1024 * sequence, sequence, of, is_blank)


def test_everything_behind_the_first_tear_is_cut() -> None:
    found = scan([record(1), record(2), record(4)], gap(3), gap(5))
    verdict = judge(found, 1, previous=None, following=None)
    assert [r.sequence for r in verdict.kept] == [1]
    assert [r.sequence for r in verdict.rewritten] == [2]
    assert verdict.was_cut


def test_a_tear_without_a_record_behind_it_may_have_been_a_fence() -> None:
    torn = judge(scan([record(1)], gap(2)), 1, previous=None, following=None)
    assert torn.was_cut
    blank = judge(scan([record(1)], gap(2, is_blank=True)), 1, previous=None, following=None)
    assert not blank.was_cut


def test_the_index_is_written_behind_records_that_are_copied() -> None:
    """The start after a crash must find them again."""
    found = scan([record(1), record(2), record(3)], gap(4, is_blank=True))
    verdict = judge(found, 1, previous=None, following=None)
    assert verdict.data_end == record(1).offset + record(1).size
    assert verdict.write_from == record(3).offset + record(3).size
    assert verdict.next_sequence == 4


def test_the_finish_record_comes_after_a_damaged_record() -> None:
    damaged = record(2)
    found = scan([record(1)], gap(2, of=damaged), gap(3, is_blank=True))
    verdict = judge(found, 2, previous=None, following=None)
    assert verdict.unreadable == [damaged]
    assert verdict.next_sequence == 3
    assert verdict.last_sequence == 2


def test_a_file_without_records_is_lost_only_if_the_journal_had_reached_it() -> None:
    empty = FileScan(8192, 5, [], [gap(5, is_blank=True)])
    assert judge(empty, 6, previous=None, following=None).has_damage
    unfinished = scan([record(4)], gap(5, is_blank=True))
    assert not judge(empty, 6, previous=unfinished, following=None).has_damage
    finish = JournalRecord(JournalRecordKind.FINISH)
    finish.sequence = 4
    finished = FileScan(8192, 5, [finish], [])
    assert judge(empty, 6, previous=finished, following=None).has_damage


def test_sequences_of_files_without_readable_records_are_not_used_again() -> None:
    lost = FileScan(8192, 9, [], [gap(8)])
    assert largest_sequence([lost], 3) == 8
