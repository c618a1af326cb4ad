"""The answers of a bookie's storage on a simulated disk without faults."""

from __future__ import annotations

import contextlib
import gc
import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead
from bookie_server.errors import SyncFailedError
from bookie_server.ports import Standing
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, add_request, entry

OTHER_KEY = bytes(20)


def started(**options: Any) -> Machine:
    machine = Machine(**options)
    machine.start()
    return machine


def test_added_entries_are_read_back_byte_for_byte() -> None:
    machine = started()
    assert machine.add(7, range(3), [b"a", b"bb", b"ccc"]) is Code.OK
    assert machine.read(7, 1) == (Code.OK, entry(7, 1, b"bb"))
    assert machine.read(7, -1) == (Code.OK, entry(7, 2, b"ccc"))
    assert machine.read(7, 3) == (Code.NO_ENTRY, None)
    assert machine.read(8, 0) == (Code.NO_LEDGER, None)


def test_entries_with_gaps_are_found_and_the_gaps_are_absent() -> None:
    machine = started()
    assert machine.add(7, (0, 1, 3, 4, 8), b"x") is Code.OK
    assert machine.add(7, range(10, 30, 5), b"y") is Code.OK
    present = {0, 1, 3, 4, 8, 10, 15, 20, 25}
    for entry_id in range(30):
        code, _ = machine.read(7, entry_id)
        assert code is (Code.OK if entry_id in present else Code.NO_ENTRY), entry_id
    assert machine.held(7) == [(0, 1), (3, 4), (8, 8), (10, 10), (15, 15), (20, 20), (25, 25)]


def test_everything_is_there_after_a_clean_stop_and_after_a_crash() -> None:
    machine = started()
    payloads = {}
    for number in range(200):
        payload = bytes([number % 251]) * (number * 7 % 2000)
        assert machine.add(number % 3, (number,), payload) is Code.OK
        payloads[number] = entry(number % 3, number, payload)
        if number == 60:
            machine.stop()
            machine.start()
            assert not machine.serving.was_unclean
        if number == 120:
            machine.crash()
            machine.start()
            assert machine.serving.was_unclean
        if number == 160:
            machine.lose_power()
            machine.start()
    for number, stored in payloads.items():
        assert machine.read(number % 3, number) == (Code.OK, stored)
    assert len(machine.disk.seen_names) > 4


def test_fenced_ledger_refuses_regular_adds_and_takes_recovery_adds() -> None:
    machine = started()
    machine.add(7, (0,))
    assert machine.fence(7) == (Code.OK, entry(7, 0, b"payload"))
    assert machine.add(7, (1,)) is Code.FENCED
    assert machine.add(7, (0,)) is Code.FENCED
    assert machine.add(7, (1,), is_recovery=True) is Code.OK
    machine.lose_power()
    machine.start()
    assert machine.add(7, (2,)) is Code.FENCED
    assert machine.read(7, 1)[0] is Code.OK


def test_fence_of_a_ledger_never_seen_sticks_with_its_key() -> None:
    machine = started()
    assert machine.fence(9)[0].is_absent
    assert machine.add(9, (0,)) is Code.FENCED
    assert machine.add(9, (0,), key=OTHER_KEY) is Code.UNAUTHORIZED
    machine.lose_power()
    machine.start()
    assert machine.add(9, (0,)) is Code.FENCED
    assert machine.fence(9, OTHER_KEY)[0] is Code.UNAUTHORIZED


def test_wrong_key_is_refused_and_changes_nothing() -> None:
    machine = started()
    machine.add(7, (0,))
    assert machine.add(7, (1,), key=OTHER_KEY) is Code.UNAUTHORIZED
    assert machine.fence(7, OTHER_KEY) == (Code.UNAUTHORIZED, None)
    assert machine.add(7, (1,)) is Code.OK


def test_fence_answers_after_every_add_accepted_before_it_and_shows_them() -> None:
    machine = started()
    order = []
    storage = machine.serving
    for number in range(5):
        storage.add(
            add_request(7, (number,)), partial(lambda n, code: order.append((n, code)), number)
        )
    request = StoredRead(7, -1, fence_key=KEY, is_recovery=True)
    storage.read(request, lambda code, data: order.append((code, data)))
    late: list[Code] = []
    storage.add(add_request(7, (5,)), late.append)
    assert late == [Code.FENCED]
    machine.scheduler.run_until(lambda: len(order) == 6)
    assert order[:5] == [(n, Code.OK) for n in range(5)]
    assert order[5] == (Code.OK, entry(7, 4, b"payload"))


def test_recovery_read_waits_for_adds_accepted_before_it() -> None:
    machine = started()
    storage = machine.serving
    answers: list[Code] = []
    storage.add(add_request(7, (0,)), answers.append)
    storage.read(StoredRead(7, 0, is_recovery=True), lambda code, _: answers.append(code))
    plain = []
    storage.read(StoredRead(7, 0), lambda code, _: plain.append(code))
    assert plain == [Code.NO_ENTRY]
    machine.scheduler.run_until(lambda: len(answers) == 2)
    assert answers == [Code.OK, Code.OK]


def test_repeated_add_writes_nothing_and_is_answered() -> None:
    machine = started()
    machine.add(7, range(4), b"same")
    written = machine.serving.counters.journal_records
    assert machine.add(7, range(4), b"same") is Code.OK
    assert machine.add(7, (2,), b"same") is Code.OK
    assert machine.serving.counters.journal_records == written
    assert machine.serving.counters.adds_repeated == 2
    assert machine.serving.counters.add_overlap == 0


def test_repeated_add_while_the_first_is_queued_waits_for_it() -> None:
    machine = started()
    answers = []
    machine.serving.add(add_request(7, (0,)), lambda code: answers.append(("first", code)))
    machine.serving.add(add_request(7, (0,)), lambda code: answers.append(("again", code)))
    machine.scheduler.run_until(lambda: len(answers) == 2)
    assert answers == [("first", Code.OK), ("again", Code.OK)]
    assert machine.serving.counters.adds == 1


def test_add_with_other_bytes_wins_and_is_counted() -> None:
    machine = started()
    machine.add(7, range(6), b"old")
    assert machine.add(7, (2, 3), b"new") is Code.OK
    assert machine.serving.counters.add_overlap == 1
    for restart in (None, machine.stop, machine.crash, machine.lose_power):
        if restart is not None:
            restart()
            machine.start()
        for entry_id in range(6):
            payload = b"new" if entry_id in (2, 3) else b"old"
            assert machine.read(7, entry_id) == (Code.OK, entry(7, entry_id, payload))


def test_recovery_add_with_other_bytes_wins_and_is_not_counted() -> None:
    machine = started()
    machine.add(7, range(3), b"old")
    machine.fence(7)
    assert machine.add(7, (2,), b"old", lac=0, is_recovery=True) is Code.OK
    assert machine.read(7, 2) == (Code.OK, entry(7, 2, b"old", lac=0))
    assert machine.serving.counters.add_overlap == 0


def test_last_add_confirmed_is_the_largest_ever_seen() -> None:
    machine = started()
    seen: list[int] = []
    cancel = machine.serving.watch_lac(7, seen.append)
    machine.add(7, (0,), lac=-1)
    machine.add(7, (5,), lac=4)
    machine.add(7, (6,), lac=2)
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 4)
    assert machine.ask(lambda done: machine.serving.write_lac(7, 6, KEY, done)) == (Code.OK,)
    assert machine.ask(lambda done: machine.serving.write_lac(7, 3, KEY, done)) == (Code.OK,)
    assert seen == [4, 6]
    cancel()
    for restart in (machine.lose_power, machine.stop):
        restart()
        machine.start()
        assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 6)
    assert machine.ask(lambda done: machine.serving.read_lac(8, done)) == (Code.NO_LEDGER, -1)


def test_an_explicit_lac_outlives_the_file_with_its_record() -> None:
    machine = started()
    keeper, entries = machine.serving._keeper, itertools.count()

    def finish(files: int) -> None:
        files_in_all = len(list(keeper.finished)) + files
        while len(list(keeper.finished)) < files_in_all:
            assert machine.add(8, (next(entries),), bytes(1_000)) is Code.OK
            machine.scheduler.run_for(10)

    machine.add(7, range(7), lac=-1)
    finish(2)
    assert machine.ask(lambda done: machine.serving.write_lac(7, 6, KEY, done)) == (Code.OK,)
    finish(3)
    machine.lose_power()
    machine.start()
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 6)


def test_lac_that_was_told_is_heard_at_once_and_costs_no_record() -> None:
    machine = started()
    seen: list[int] = []
    machine.serving.watch_lac(7, seen.append)
    machine.serving.announce_lac(7, 5, KEY)
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.NO_LEDGER, -1)
    machine.add(7, range(10), lac=-1)
    records = machine.serving.counters.journal_records
    machine.serving.announce_lac(7, 5, b"o" * 20)
    assert seen == []
    machine.serving.announce_lac(7, 5, KEY)
    machine.serving.announce_lac(7, 3, KEY)
    assert seen == [5]
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 5)
    assert machine.serving.counters.journal_records == records


@pytest.mark.parametrize(
    ("ledger_id", "lac", "key"),
    [(7, 1 << 63, KEY), (7, -1, KEY), (1 << 63, 5, KEY), (-1, 5, KEY), (7, 5, KEY[1:])],
)
def test_lac_that_no_record_can_have_is_refused(ledger_id: int, lac: int, key: bytes) -> None:
    machine = started()

    def write(lac: int, ledger_id: int = 7, key: bytes = KEY) -> Any:
        return machine.ask(lambda done: machine.serving.write_lac(ledger_id, lac, key, done))

    assert write(lac, ledger_id, key) == (Code.BAD_REQUEST,)
    assert write((1 << 63) - 1) == (Code.OK,)
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, (1 << 63) - 1)


def test_lac_that_was_told_can_still_be_written_to_last() -> None:
    machine = started()
    machine.add(7, range(10), lac=-1)
    machine.serving.announce_lac(7, 5, KEY)
    assert machine.ask(lambda done: machine.serving.write_lac(7, 5, KEY, done)) == (Code.OK,)
    machine.lose_power()
    machine.start()
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 5)


def test_batch_read_stops_at_budget_count_and_first_gap() -> None:
    machine = started()
    machine.add(7, range(10), b"p" * 68)  # 100 bytes stored each
    machine.add(7, range(11, 14), b"p" * 68)
    stored = [entry(7, n, b"p" * 68) for n in range(14)]
    assert machine.read_batch(7, 0) == (Code.OK, stored[:10])
    assert machine.read_batch(7, 2, count=3) == (Code.OK, stored[2:5])
    assert machine.read_batch(7, 0, size=36 + 3 * 104) == (Code.OK, stored[:3])
    assert machine.read_batch(7, 0, size=36 + 3 * 104 - 1) == (Code.OK, stored[:2])
    assert machine.read_batch(7, 0, size=1) == (Code.OK, stored[:1])
    assert machine.read_batch(7, 10) == (Code.NO_ENTRY, ())
    assert machine.read_batch(9, 0) == (Code.NO_LEDGER, ())


def test_malformed_requests_are_refused_and_change_nothing() -> None:
    machine = started()
    good = add_request(7, (3, 4), b"x")
    body = bytes(good.body)
    bad = [
        StoredAdd(7, (), (), b"", KEY),
        StoredAdd(7, (4, 3), good.lengths, body, KEY),
        StoredAdd(7, (3, 5), good.lengths, body, KEY),
        StoredAdd(8, (3, 4), good.lengths, body, KEY),
        StoredAdd(7, (3, 4), (33, 32), body, KEY),
        StoredAdd(7, (3, 4), (34, 32), body, KEY),
        StoredAdd(7, (3, 4), good.lengths, body, KEY[:19]),
        StoredAdd(-1, (3, 4), good.lengths, body, KEY),
        add_request(7, (-7,), b"x"),
        StoredAdd(7, range(4097), (32,) * 4097, bytes(32 * 4097), KEY),
    ]
    for request in bad:
        answer = machine.ask(partial(machine.serving.add, request))
        assert answer == (Code.BAD_REQUEST,), request.entry_ids
    assert sorted(machine.serving._states) == []
    assert machine.read(7, -2)[0] is Code.BAD_REQUEST
    assert machine.read(7, 0, fence_key=b"short")[0] is Code.BAD_REQUEST


def test_adds_beyond_the_memory_budget_are_refused_busy_and_later_taken() -> None:
    machine = started()
    answers = []
    for number in range(40):
        request = add_request(7, (number,), bytes(60_000))
        machine.serving.add(request, partial(lambda n, code: answers.append((n, code)), number))
    refused = [n for n, code in answers if code is Code.BUSY]
    assert refused == list(range(17, 40))
    machine.scheduler.run_until(lambda: len(answers) == 40)
    assert [n for n, code in answers if code is Code.OK] == list(range(17))
    assert machine.serving._health.in_flight_bytes == 0
    assert machine.add(7, (17,), bytes(60_000)) is Code.OK


def test_storage_with_a_metadata_check_asks_only_after_state_may_have_been_lost() -> None:
    machine = started(standing=Standing.NOT_WRITABLE)
    assert machine.add(7, (0,)) is Code.OK
    assert machine.metadata.asked == []


def failing(*_: object) -> None:
    raise ZeroDivisionError


def reported_by(machine: Machine) -> list[type[Exception]]:
    """The errors raised in separate turns from now on, which asyncio would pass to its handler."""
    reported: list[type[Exception]] = []
    call_soon = machine.host.call_soon

    def called(callback: Callable[[], None]) -> None:
        def watched() -> None:
            try:
                callback()
            except ZeroDivisionError as error:
                reported.append(type(error))

        call_soon(watched)

    machine.host.call_soon = called
    return reported


def test_a_callback_that_raises_is_reported_and_keeps_nobody_else_waiting() -> None:
    machine = started()
    reported = reported_by(machine)
    codes: list[Code] = []
    lacs: list[int] = []
    machine.serving.watch_lac(7, failing)
    machine.serving.watch_lac(7, lacs.append)
    machine.serving.add(add_request(7, range(1)), failing)
    machine.serving.add(add_request(7, range(1, 2)), codes.append)
    machine.serving.write_lac(7, 1, KEY, failing)
    machine.serving.write_lac(7, 2, KEY, codes.append)
    machine.scheduler.run_for(1_000_000)
    assert codes == [Code.OK, Code.OK]
    assert lacs[-1] == 2
    assert len(reported) >= 3
    assert machine.add(7, (2,)) is Code.OK, "the journal goes on"
    machine.stop()


def test_a_callback_that_raises_in_a_task_of_the_storage_does_not_end_the_bookie() -> None:
    """Tasks for reads of files, for the comparison of adds, and for adds that wait for a check."""
    machine = started(settings=replace(SMALL, recent_bytes_max=1))
    for number in range(40):
        assert machine.add(7, (number,), bytes(1_000)) is Code.OK
    machine.stop()
    machine.start()
    machine.serving._health.check_epoch += 1
    reported = reported_by(machine)
    codes: list[Code] = []
    for done in (failing, codes.append):
        machine.serving.add(add_request(8, (0,)), done)  # waits for the metadata check
        machine.serving.add(add_request(7, (3,), bytes(1_000), is_recovery=True), done)
    machine.disk.cold_part = 1.0
    for asked in range(20):
        with contextlib.suppress(ZeroDivisionError):  # answered at once: its caller hears of it
            machine.serving.read(StoredRead(7, asked), failing)
        with contextlib.suppress(ZeroDivisionError):
            machine.serving.read_batch(StoredBatchRead(7, asked, 3, 1 << 20), failing)
    machine.scheduler.run_for(1_000)
    assert machine.host.failure is None, "a task ended"
    assert codes == [Code.OK] * 2
    assert len(reported) > 2
    assert machine.serving._health.in_flight_bytes == 0
    assert machine.add(8, (1,)) is Code.OK
    assert machine.read(7, 5) == (Code.OK, entry(7, 5, bytes(1_000)))
    machine.stop()


def test_a_ledger_is_not_fenced_by_a_storage_that_failed_meanwhile() -> None:
    machine = started(standing=Standing.NOT_WRITABLE)
    assert machine.add(7, (0,)) is Code.OK
    machine.serving._health.check_epoch += 1
    codes: list[Code] = []
    machine.serving.add(add_request(7, (1,)), codes.append)
    machine.serving._journal.fail(SyncFailedError("the device is gone"))
    machine.scheduler.run_for(1_000)
    assert codes == [Code.IO_ERROR]
    assert not machine.serving.is_fenced(7), "it could not be made durable"


def test_a_fence_that_the_metadata_asks_for_is_durable_before_the_add_is_refused() -> None:
    machine = started(standing=Standing.NOT_WRITABLE)
    assert machine.add(7, (0,)) is Code.OK
    machine.serving._health.check_epoch += 1
    assert machine.add(7, (1,)) is Code.FENCED
    machine.lose_power()
    machine.start()
    assert machine.serving.is_fenced(7)
    machine.stop()


def test_a_fence_that_comes_while_the_storage_closes_is_answered_unknown() -> None:
    machine = started()
    assert machine.add(7, (0,)) is Code.OK
    machine.host.spawn("close", machine.serving.close())
    while not machine.serving._health.is_closing:
        assert machine.scheduler.step()
    for ledger_id in (7, 8):
        assert machine.fence(ledger_id) == (Code.IO_ERROR, None)
        assert not machine.serving.is_fenced(ledger_id)
    machine.scheduler.run_for(1_000)


def test_a_callback_that_raises_keeps_nobody_from_hearing_that_the_log_failed() -> None:
    machine = started()
    reported = reported_by(machine)
    codes: list[Code] = []
    machine.serving.add(add_request(7, range(1)), failing)
    machine.serving.add(add_request(7, range(1, 2)), codes.append)
    machine.serving._journal.when_durable(machine.serving._journal.last_ticket, failing)
    machine.serving._journal.when_durable(machine.serving._journal.last_ticket, codes.append)
    machine.serving._journal.fail(SyncFailedError("the device is gone"))
    assert codes == [Code.IO_ERROR, Code.IO_ERROR]
    machine.scheduler.run_for(1_000_000)
    assert len(reported) == 2


def test_the_indexes_of_files_that_are_finished_are_freed_those_of_the_boot_too() -> None:
    machine = started()
    keeper = machine.serving._keeper
    assert keeper.spare is not None
    indexes = [weakref.ref(file.index) for file in (keeper.active, keeper.spare)]
    spare_id, at = keeper.spare.entry.file_id, 0
    while spare_id not in keeper.finished:
        assert machine.add(7, (at,), bytes(1_000)) is Code.OK
        at += 1
        machine.scheduler.run_for(10)
    gc.collect()
    assert [index() for index in indexes] == [None, None]
    assert machine.read(7, 0)[0] is Code.OK


def test_a_damaged_entry_leaves_the_lac_unknown_until_one_behind_it_came() -> None:
    """ADR 17: it may have carried a larger one than all the others."""
    machine = started()
    for number in range(10):
        assert machine.add(7, (number,), b"payload %d" % number) is Code.OK
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 8)
    machine.scheduler.run_for(500)  # a watermark vouches for the last one
    slot = machine.serving._keeper.active.entry.slot
    machine.crash()
    stored = bytes(machine.disk.durable_names[slot].durable).index(b"payload 9")
    machine.disk.flip_bit(slot, stored, 0)
    for _ in range(2):
        machine.start()
        assert machine.read(7, 9) == (Code.IO_ERROR, None)
        code, lac = machine.ask(lambda done: machine.serving.read_lac(7, done))
        assert (code, lac) == (Code.IO_ERROR, -1)
        machine.stop()
    machine.start()
    assert machine.add(7, (10,)) is Code.OK
    assert machine.ask(lambda done: machine.serving.read_lac(7, done)) == (Code.OK, 9)
    machine.stop()
