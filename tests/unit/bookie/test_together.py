"""Adds and reads that arrive together, as the storage of a bookie handles them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from bookie_server.core.record_codec import CHUNK_SIZE
from bookie_server.core.requests import StoredReads
from bookie_server.errors import StorageError
from bookie_server.ports import Standing
from bookie_server.storage.reading.answers import STRETCHES_PER_CALL_MAX
from bookie_server.storage.reading.readings import RECORDS_PER_TURN
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.reading.stretches import (
    STRETCH_SIZE_BYTES_MAX,
    Stretch,
    read_stretch,
)
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, add_request, entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OTHER_KEY = bytes(20)
Some = tuple[Code, list[int], list[bytes]]
WITHOUT_RECENT = replace(SMALL, recent_bytes_max=1)
LARGE = replace(
    WITHOUT_RECENT, file_size_bytes=8 << 20, in_flight_bytes_max=8 << 20, group_bytes_max=4 << 20
)


def never(code: Code) -> None:
    raise AssertionError(f"the adds were answered with {code}")


def started(**options: Any) -> Machine:
    machine = Machine(**options)
    machine.start()
    return machine


def read(machine: Machine, ledger_id: int, ids: Sequence[int]) -> list[Some]:
    """Read entries together; return the calls of `on_some` in their order."""
    calls: list[Some] = []
    at = 0
    while at < len(ids):
        at += machine.serving.read_together(
            StoredReads(ledger_id, ids[at:]),
            lambda code, some, entries: calls.append((code, list(some), list(entries))),
        )
    machine.scheduler.run_until(lambda: sum(len(call[1]) for call in calls) >= len(ids))
    assert sorted(one for call in calls for one in call[1]) == sorted(ids)
    return calls


def by_id(calls: list[Some]) -> dict[int, bytes | Code]:
    found: dict[int, bytes | Code] = {}
    for code, ids, entries in calls:
        found.update(
            zip(ids, entries, strict=True) if code is Code.OK else dict.fromkeys(ids, code)
        )
    return found


@pytest.mark.parametrize(
    ("refused", "prepare"),
    [
        pytest.param("fenced", lambda machine: machine.fence(7), id="fenced"),
        pytest.param("repeat", lambda machine: machine.add(7, (1,)), id="repeat"),
        pytest.param("key", lambda machine: machine.add(7, (0,), key=OTHER_KEY), id="key"),
        pytest.param(
            "full", lambda m: setattr(m.serving._health, "in_flight_bytes", 1 << 20), id="full"
        ),
        pytest.param(
            "closing", lambda m: setattr(m.serving._health, "is_closing", True), id="closing"
        ),
        pytest.param(
            "read-only", lambda m: setattr(m.serving._health, "is_writable", False), id="read-only"
        ),
        pytest.param(
            "unverified", lambda m: setattr(m.serving._health, "check_epoch", 1), id="unverified"
        ),
    ],
)
def test_adds_that_may_need_other_answers_are_not_taken_together(
    refused: str, prepare: Callable[[Machine], object]
) -> None:
    machine = started(standing=Standing.OPEN_WITH_ME)
    prepare(machine)
    records = machine.serving._journal.last_ticket
    taken = machine.serving.add_together(add_request(7, range(1, 4)), never)
    assert not taken, refused
    assert machine.serving._journal.last_ticket == records
    assert not machine.metadata.asked


def test_malformed_adds_are_not_taken_together() -> None:
    machine = started()
    request = replace(add_request(7, range(3)), ledger_id=8)
    assert not machine.serving.add_together(request, never)


def test_adds_taken_together_are_one_record() -> None:
    machine = started()
    codes: list[Code] = []
    assert machine.serving.add_together(add_request(7, range(9)), codes.append)
    machine.scheduler.run_until(lambda: codes == [Code.OK])
    assert machine.serving.counters.journal_records == 1
    assert machine.add(7, (8,)) is Code.OK
    assert machine.serving.counters.adds_repeated == 1


def test_entries_of_one_record_are_one_stretch() -> None:
    machine = started(settings=WITHOUT_RECENT)
    machine.disk.cold_part = 0.0
    machine.add(7, range(20), [b"%d" % one for one in range(20)])
    ids = list(range(1, 20, 3))
    assert read(machine, 7, ids) == [(Code.OK, ids, [entry(7, one, b"%d" % one) for one in ids])]


def test_entries_of_different_lengths_in_any_order_are_found() -> None:
    machine = started(settings=WITHOUT_RECENT)
    payloads = [bytes([one]) * (17 * one % 90) for one in range(30)]
    for first in range(0, 30, 10):
        machine.add(7, range(first, first + 10), payloads[first : first + 10])
    ids = [29, 3, 4, 4, 9, 10, 2, 25, 31, 11, 12]
    found = by_id(read(machine, 7, ids))
    assert found.pop(31) is Code.NO_ENTRY
    assert found == {one: entry(7, one, payloads[one]) for one in ids if one != 31}


def test_a_code_for_each_id() -> None:
    machine = started()
    machine.add(7, (1, 2, 5))
    found = by_id(read(machine, 7, range(7)))
    stored = {one: entry(7, one, b"payload") for one in (1, 2, 5)}
    assert found == {**dict.fromkeys(range(7), Code.NO_ENTRY), **stored}
    assert by_id(read(machine, 8, (0, 1))) == {0: Code.NO_LEDGER, 1: Code.NO_LEDGER}
    machine.serving._health.files_in_doubt.add(1)
    found = by_id(read(machine, 7, (1, 3)))
    assert found == {1: stored[1], 3: Code.IO_ERROR}
    assert by_id(read(machine, 8, (0,))) == {0: Code.IO_ERROR}


def test_a_cold_stretch_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = started(settings=WITHOUT_RECENT)
    for first in (0, 10, 20):
        machine.add(7, range(first, first + 10))
    is_cold = iter((1.0, 0.0, 0.0))
    machine.disk.cold_part = 0.0
    calls: list[list[int]] = []
    reading = machine.serving._reader.readings
    run = reading.run

    def one_after_another(*arguments: Any, **options: Any) -> None:
        machine.disk.cold_part = next(is_cold)
        run(*arguments, **options)
        machine.disk.cold_part = 0.0

    monkeypatch.setattr(reading, "run", one_after_another)
    machine.serving.read_together(
        StoredReads(7, range(30)), lambda _code, ids, _entries: calls.append(list(ids))
    )
    assert calls == [list(range(10, 20)), list(range(20, 30))]
    machine.scheduler.run_until(lambda: len(calls) == 3)
    assert calls[2] == list(range(10))


def test_only_so_many_stretches_are_read_in_one_call() -> None:
    machine = started()
    count = STRETCHES_PER_CALL_MAX + 5
    for one in range(count):
        machine.add(7, (2 * one,))
    ids = range(0, 2 * count, 2)
    begun = machine.serving.read_together(StoredReads(7, ids), lambda *_: None)
    assert begun == STRETCHES_PER_CALL_MAX
    assert all(isinstance(one, bytes) for one in by_id(read(machine, 7, ids)).values())


def test_entries_far_apart_are_read_apart() -> None:
    machine = started(settings=LARGE)
    machine.disk.cold_part = 0.0
    size = CHUNK_SIZE // 4
    count = 2 * STRETCH_SIZE_BYTES_MAX // size
    machine.add(7, range(count), bytes(size))
    assert [call[1] for call in read(machine, 7, (0, 1, 20, 21))] == [[0, 1], [20, 21]]
    stretches = [call[1] for call in read(machine, 7, range(count))]
    assert 2 <= len(stretches) <= 4
    assert max(map(len, stretches)) * size <= STRETCH_SIZE_BYTES_MAX


def test_damage_of_one_chunk_denies_only_its_entries() -> None:
    machine = started(settings=LARGE)
    size = CHUNK_SIZE // 4
    machine.add(7, range(12), bytes(size))
    active = machine.serving._keeper.active
    record = active.index.find(7, 0)
    assert record is not None
    target = record.target
    target.body = None
    at = target.offset + target.header_size + CHUNK_SIZE + 100
    machine.disk.flip_bit(active.entry.slot, at, 3)
    found = by_id(read(machine, 7, range(12)))
    damaged = {one for one, entry_or_code in found.items() if entry_or_code is Code.IO_ERROR}
    assert damaged
    assert damaged < set(range(12))
    for one in set(range(12)) - damaged:
        assert found[one] == machine.read(7, one)[1]
    for one in damaged:
        assert machine.read(7, one)[0] is Code.IO_ERROR


def test_dropped_ledger_is_absent_while_it_is_read_together() -> None:
    machine = started()
    machine.add(7, range(3), key=KEY)
    machine.drop(7)
    assert set(by_id(read(machine, 7, range(3))).values()) == {Code.NO_ENTRY}


@pytest.mark.parametrize("seed", range(5))
def test_each_entry_of_cold_files_is_answered_once(seed: int) -> None:
    machine = Machine(seed, settings=WITHOUT_RECENT)
    machine.start()
    for first in range(0, 600, 6):
        machine.add(7, range(first, first + 6), bytes([first % 251]) * 300)
    machine.stop()
    machine.start()
    machine.disk.cold_part = 0.2 * seed
    ids = list(range(0, 600, 3))
    expected = {one: entry(7, one, bytes([one // 6 * 6 % 251]) * 300) for one in ids}
    assert by_id(read(machine, 7, ids)) == expected


@pytest.mark.parametrize("is_finished", [False, True])
def test_newer_copy_of_a_later_entry_is_read(*, is_finished: bool) -> None:
    """A recovery wrote entry 6 again, and the older copy of 6 is in the record of 5."""
    machine = started(settings=WITHOUT_RECENT)
    machine.disk.cold_part = 0.0
    assert machine.add(7, range(4, 10), b"old") is Code.OK
    roll(machine)
    assert machine.add(7, (6, 8), b"newer", is_recovery=True) is Code.OK
    if is_finished:
        roll(machine)
    newest = [entry(7, one, b"newer" if one in (6, 8) else b"old") for one in range(4, 10)]
    assert [machine.read(7, one)[1] for one in range(4, 10)] == newest
    assert by_id(read(machine, 7, range(4, 10))) == dict(zip(range(4, 10), newest, strict=True))
    assert machine.read_batch(7, 4) == (Code.OK, newest)
    assert machine.read_batch(7, 7, count=2) == (Code.OK, newest[3:5])


def roll(machine: Machine) -> None:
    """Fill the active file, so that it is finished."""
    count = machine.serving.files_count
    first = machine.serving._shared.state_of(99).last_accepted_id + 1
    for number in range(first, first + 100):
        assert machine.add(99, (number,), bytes(3_000)) is Code.OK
        if machine.serving.files_count > count:
            break
    machine.scheduler.run_for(500)
    assert machine.serving.files_count > count


@pytest.mark.parametrize(("size_max", "count"), [(0, 1), (1, 1), (200, 1), (201, 2), (10_000, 30)])
def test_reads_end_after_a_number_of_bytes(size_max: int, count: int) -> None:
    machine = started(settings=WITHOUT_RECENT)
    machine.disk.cold_part = 0.0
    assert machine.add(7, range(10), bytes(168)) is Code.OK
    for number in range(10, 30):
        assert machine.add(7, (number,), bytes(168)) is Code.OK
    ids: list[int] = []
    begun = machine.serving.read_together(
        StoredReads(7, range(30), size_max), lambda _code, some, _entries: ids.extend(some)
    )
    assert begun == count
    assert ids == list(range(count))


def test_entries_of_a_damaged_stretch_are_read_in_portions() -> None:
    class Damaged:
        def find(self, *_: int) -> Any:
            yield from ()
            raise StorageError("damaged", path="slot")

        def read_entry(self, _ledger_id: int, entry_id: int) -> Any:
            yield from ()
            return b"%d" % entry_id

    stretch = Stretch(7, range(200), 0)
    stretch.count = 200
    reading: Any = read_stretch(cast("Any", Damaged()), stretch)
    for _ in range(199 // RECORDS_PER_TURN):
        assert next(reading) is None
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert end.value.value == [b"%d" % entry_id for entry_id in range(200)]


def test_entry_is_denied_only_if_no_file_was_in_doubt_when_its_reading_began() -> None:
    machine = started(settings=WITHOUT_RECENT)
    assert machine.add(7, (0, 1, 8, 9)) is Code.OK
    roll(machine)
    machine.disk.cold_part = 1.0
    machine.serving._health.files_in_doubt.add(99)
    calls: list[Some] = []
    machine.serving.read_together(
        StoredReads(7, (4, 5)),
        lambda code, some, entries: calls.append((code, list(some), list(entries))),
    )
    assert not calls, "the index is read from the device"
    machine.serving._health.files_in_doubt.clear()
    machine.scheduler.run_until(lambda: len(calls) == 2)
    assert by_id(calls) == {4: Code.IO_ERROR, 5: Code.IO_ERROR}
    assert by_id(read(machine, 7, (4, 5))) == {4: Code.NO_ENTRY, 5: Code.NO_ENTRY}


def test_entry_to_which_the_index_does_not_point_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started(settings=WITHOUT_RECENT)
    assert machine.add(7, range(4), b"entry") is Code.OK
    find = Reader.find
    monkeypatch.setattr(Reader, "find", lambda self, ledger, *_: find(self, ledger, 0))
    found = by_id(read(machine, 7, (1, 2)))
    assert found == {1: Code.IO_ERROR, 2: Code.IO_ERROR}
