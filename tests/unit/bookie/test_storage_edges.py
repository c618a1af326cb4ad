"""Edges of the storage that random runs seldom reach: last bytes, second calls, cut steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from bookie_server.core.disk_use import DiskSettings
from bookie_server.core.manifest_codec import FileState
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.settings import ModeSettings
from bookie_server.core.slot_header import HEADER_AREA_SIZE, RECORDS_START, decode_slot_header
from bookie_server.errors import DamagedDirectoryError, StorageError
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.room import CONTROL_RECORD_SIZE, room_for_drops, room_left
from bookie_server.storage.journal import append_end_mark
from bookie_server.storage.reading.recent import RecentBodies
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request, entry
from tests.unit.bookie.test_drops import pass_days, started

SECTORS = (0, 4_096)


class PowerCutError(Exception):
    """Raised at the moment of a crash."""


def keeper_of(machine: Machine) -> FileKeeper:
    return machine.serving._keeper


# Room.


def test_room_for_control_records_is_that_of_both_files_less_what_is_in_flight() -> None:
    machine = started()
    keeper, health = keeper_of(machine), machine.serving._health
    assert keeper.has_room_for(1 << 40), "a writable bookie has a next file"
    health.is_writable = False
    assert keeper.spare is not None
    drops = room_for_drops(keeper.active, SMALL.file_size_bytes)
    assert drops == 1_024
    room = room_left(keeper.active) + room_left(keeper.spare) - drops
    assert keeper.has_room_for(room)
    assert not keeper.has_room_for(room + 1)
    assert keeper.has_room_for(room + drops, is_drop=True)
    assert not keeper.has_room_for(room + drops + 1, is_drop=True)
    health.in_flight_bytes = 100
    assert keeper.has_room_for(room - 200)
    assert not keeper.has_room_for(room - 199)
    keeper.spare, health.in_flight_bytes = None, 0
    room = room_left(keeper.active) - drops
    assert keeper.has_room_for(room)
    assert not keeper.has_room_for(room + 1)
    keeper.records_queued = lambda: 3
    assert keeper.has_room_for(room - 3 * CONTROL_RECORD_SIZE)
    assert not keeper.has_room_for(room - 3 * CONTROL_RECORD_SIZE + 1)


def test_a_roll_leaves_the_reserve_of_a_file() -> None:
    machine = started()
    keeper = keeper_of(machine)
    assert machine.add(1, (0,)) is Code.OK
    left = room_left(keeper.active) - SMALL.file_size_bytes // 16
    pieces = 2 * 48  # one stretch of ids may add two pieces
    assert not keeper.must_roll(left - pieces, 1)
    assert keeper.must_roll(left - pieces + 1, 1)


@pytest.mark.parametrize("many", [(100, 99_000), (100, 1_000, 1_000, 99_000), (100,) * 20])
@pytest.mark.parametrize("entries", range(1, 9))
def test_records_that_are_written_together_have_room_in_one_file(
    entries: int, many: tuple[int, ...]
) -> None:
    """The disk refuses writes beyond the blocks of a file (`disk_rules`)."""
    machine = started(settings=replace(SMALL, file_size_bytes=1 << 18))
    for number in range(entries):
        assert machine.add(1, (number,), bytes(25_000)) is Code.OK
    answers: list[Code] = []
    for number, size in enumerate(many, entries):
        machine.serving.add(add_request(1, (number,), bytes(size)), answers.append)
    machine.scheduler.run_until(lambda: len(answers) == len(many))
    assert set(answers) == {Code.OK}
    assert room_left(keeper_of(machine).active) >= 0
    machine.stop()
    machine.start()
    sizes = [25_000] * entries + list(many)
    for number, size in enumerate(sizes):
        assert machine.read(1, number) == (Code.OK, entry(1, number, bytes(size)))


def test_an_index_has_room_for_the_pieces_of_the_next_record() -> None:
    machine = started(settings=replace(SMALL, pieces_max=10))
    keeper = keeper_of(machine)
    for number in range(5):
        assert machine.add(1, (2 * number,)) is Code.OK
    assert keeper.active.index.pieces == 5
    assert not keeper.must_roll(512, 2)
    assert keeper.must_roll(512, 3)


def test_no_more_freed_files_are_kept_than_the_setting_allows() -> None:
    machine = started(settings=replace(SMALL, pool_files_max=1))
    for number in range(60):
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
    assert machine.drop(1) is Code.OK
    machine.reclaim()
    machine.scheduler.run_for(200)
    assert machine.serving.counters.files_freed > 2
    assert len(machine.manifest().free_slots) == 1


# Files.


def add_for_ever(machine: Machine) -> None:
    for number in count():
        machine.add(1, (number,), bytes(3_000))


def test_a_start_cuts_a_finished_file_whose_cut_was_interrupted() -> None:
    machine = started()

    def cut(_number: int, name: str) -> None:
        if name.startswith("truncate slot"):
            raise PowerCutError

    machine.disk.on_operation = cut
    with pytest.raises(PowerCutError):
        add_for_ever(machine)
    machine.disk.on_operation = None
    machine.crash()
    (file,) = [file for file in machine.manifest().files if file.state is FileState.FINISHED]
    content = machine.disk.seen_names[file.slot]
    assert content.taken_bytes == SMALL.file_size_bytes
    machine.start()
    assert content.taken_bytes < SMALL.file_size_bytes
    assert machine.read(1, 0)[0] is Code.OK


def test_headers_of_a_slot_are_synced_and_never_overwrite_the_newest_one() -> None:
    machine = started()
    active = keeper_of(machine).active
    content = machine.disk.seen_names[active.entry.slot]
    assert [at for at, _ in content.unsynced if at < RECORDS_START] == []
    number = 0
    while active.entry.file_id not in keeper_of(machine).finished:
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
        number += 1
    machine.scheduler.run_for(200)
    found = []
    for sector in SECTORS:
        alone = bytearray(HEADER_AREA_SIZE)
        alone[sector : sector + 512] = content.durable[sector : sector + 512]
        header = decode_slot_header(bytes(alone))
        assert header is not None
        found.append((header.generation, header.state.name))
    assert sorted(found) == [(1, "OPEN"), (2, "FINISHED")]


def test_ledger_states_that_were_cut_between_two_blocks_are_refused() -> None:
    machine = started()
    before = machine.manifest()
    assert machine.fence(1)[0].is_absent
    machine.scheduler.run(keeper_of(machine).commit_soon(), machine.host)
    after = machine.manifest()
    assert after.state_file == before.state_file
    assert after.state_bytes > before.state_bytes
    machine.crash()
    content = machine.disk.seen_names[after.state_file]
    for data in (content.seen, content.durable):
        del data[before.state_bytes :]
    with pytest.raises(DamagedDirectoryError, match="bytes; it holds keys and fences"):
        machine.start()


def test_the_mark_of_an_unclean_end_is_durable_while_the_bookie_serves() -> None:
    machine = started()
    assert "UNCLEAN" in machine.disk.durable_names
    machine.stop()
    assert "UNCLEAN" not in machine.disk.durable_names


# Deletions.


def test_a_second_deletion_is_answered_after_the_first_one_and_writes_nothing() -> None:
    machine = started()
    assert machine.add(1, (0,)) is Code.OK
    records = machine.serving.counters.journal_records
    answers: list[tuple[str, Code]] = []
    storage = machine.serving
    for name in ("first", "second"):
        storage.drop(1, lambda code, name=name: answers.append((name, code)))  # type: ignore[misc]
    assert answers == []
    machine.scheduler.run_until(lambda: len(answers) == 2)
    assert answers == [("first", Code.OK), ("second", Code.OK)]
    assert storage.counters.journal_records == records + 1


def test_the_line_of_forgotten_ledgers_never_falls() -> None:
    machine = started()
    for ledger_id in (3, 9):
        assert machine.add(ledger_id, (0,)) is Code.OK
    assert machine.drop(9) is Code.OK
    pass_days(machine, 8)
    assert machine.drop(3) is Code.OK
    machine.stop()
    machine.start()
    for days, known in ((8, {3}), (8, set())):
        pass_days(machine, days)
        machine.reclaim()
        assert set(machine.serving._states) == known
        assert machine.serving._health.highest_dropped_ledger_id == 9
    machine.crash()
    machine.start()
    assert machine.serving._health.highest_dropped_ledger_id == 9


# The disk watch.


def test_a_file_that_is_allocated_during_a_measurement_is_measured_too() -> None:
    machine = started()
    watch = machine.serving.disk
    measured: list[int] = []
    total = machine.files.total_space

    async def counted() -> int:
        measured.append(machine.scheduler.now_us)
        if len(measured) == 1:
            watch.measure_soon()
        return await total()

    machine.serving._shared.files.total_space = counted
    watch.measure_soon()
    machine.scheduler.run_for(10)
    assert len(measured) == 2


def test_a_device_that_cannot_be_measured_ends_the_storage() -> None:
    settings = replace(SMALL, disk=DiskSettings(0.9, 0.95, 0.9, 1_000))
    machine = started(settings=settings)
    error = StorageError("the device is gone", path=".")

    async def gone() -> int:
        raise error

    machine.serving._shared.files.free_space = gone
    machine.scheduler.run_for(3_000)
    assert machine.serving.failure is error


# Adds.


def test_bytes_of_an_add_that_waited_for_the_metadata_check_are_not_in_flight() -> None:
    machine = started()
    machine.serving._health.check_epoch = 1
    assert machine.add(1, (0,), bytes(1_000)) is Code.OK
    assert machine.metadata.asked == [1]
    assert machine.serving._health.in_flight_bytes == 0


def test_adds_of_one_ledger_share_a_metadata_check() -> None:
    machine = started()
    machine.serving._health.check_epoch = 1
    answers: list[Code] = []
    for number in range(3):
        machine.serving.add(add_request(1, (number,)), answers.append)
    machine.scheduler.run_until(lambda: len(answers) == 3)
    assert answers == [Code.OK] * 3
    assert machine.metadata.asked == [1]


def test_a_run_that_ends_before_an_earlier_one_does_not_hide_a_repeat() -> None:
    machine = started()
    assert machine.add(1, (0, 5)) is Code.OK
    assert machine.add(1, (1, 2)) is Code.OK
    records = machine.serving.counters.journal_records
    assert machine.add(1, (5,)) is Code.OK
    assert machine.serving.counters.adds_repeated == 1
    assert machine.serving.counters.journal_records == records


def test_recovery_stores_what_is_missing_before_the_last_entry() -> None:
    machine = started()
    assert machine.add(1, (5,)) is Code.OK
    assert machine.add(1, (3,), is_recovery=True) is Code.OK
    assert machine.read(1, 3) == (Code.OK, entry(1, 3, b"payload"))


def test_an_add_asks_for_twice_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next group may be in the next file, and each file needs room for a control record."""
    machine = started()
    asked: list[int] = []

    def has_room_for(size: int) -> bool:
        asked.append(size)
        return False

    monkeypatch.setattr(keeper_of(machine), "has_room_for", has_room_for)
    request = add_request(1, (0,), bytes(1_000), is_recovery=True)
    answers: list[Code] = []
    machine.serving.add(request, answers.append)
    assert answers == [Code.READ_ONLY]
    assert asked == [2 * (len(request.body) + CONTROL_RECORD_SIZE) + 12]


def test_the_lac_of_a_ledger_is_the_largest_one_after_a_start() -> None:
    machine = started()
    assert machine.add(1, (0,), lac=5) is Code.OK
    assert machine.add(1, (1,), lac=2) is Code.OK
    machine.crash()
    machine.start()
    assert machine.ask(partial(machine.serving.read_lac, 1)) == (Code.OK, 5)


def test_a_group_waits_for_its_own_time() -> None:
    """The wait of a group that became full does not end the wait of the next group."""
    mode = ModeSettings(group_wait_ms=100)
    machine = started(settings=replace(SMALL, mode_settings=mode, group_bytes_max=1 << 12))
    answered: list[int] = []
    now_ms = machine.host.monotonic_ms

    def add(number: int, size: int) -> None:
        request = add_request(1, (number,), bytes(size))
        machine.serving.add(request, lambda _code: answered.append(now_ms()))

    began_ms = now_ms()
    add(0, 10)
    machine.scheduler.run_for(50)
    add(1, 5_000)
    machine.scheduler.run_until(lambda: len(answered) == 2)
    assert answered[1] < began_ms + 60
    machine.scheduler.run_for(30)
    third_ms = now_ms()
    add(2, 10)
    machine.scheduler.run_until(lambda: len(answered) == 3)
    assert answered[2] >= third_ms + 100


@pytest.mark.parametrize(("left", "size"), [(0, 0), (511, 0), (512, 512), (4_096, 512)])
def test_an_end_mark_is_within_its_file(left: int, size: int) -> None:
    active = keeper_of(started()).active
    active.is_recycled = True
    active.end = active.entry.size_bytes - left
    buffers: list[Any] = []
    assert append_end_mark(active, buffers) == size
    assert sum(map(len, buffers)) == size


# Forgetting.


def forgettable() -> Machine:
    """A ledger that was dropped long ago, and that no file names."""
    machine = started()
    assert machine.add(1, (0,)) is Code.OK
    assert machine.drop(1) is Code.OK
    machine.stop()
    machine.start()
    machine.reclaim()
    pass_days(machine, 8)
    return machine


def test_no_ledger_is_forgotten_while_a_file_is_in_doubt() -> None:
    machine = forgettable()
    machine.serving._health.files_in_doubt.add(99)
    machine.reclaim()
    assert 1 in machine.serving._states
    machine.serving._health.files_in_doubt.clear()
    machine.reclaim()
    assert 1 not in machine.serving._states


def test_no_ledger_is_forgotten_that_a_file_names_which_was_finished_meanwhile() -> None:
    machine = forgettable()
    drops, keeper = machine.serving._drops, keeper_of(machine)
    assert machine.add(1, (1,), is_recovery=True) is Code.OK
    assert machine.add(2, (0,)) is Code.OK
    assert machine.drop(1) is Code.OK
    machine.scheduler.run(keeper.finish_all(), machine.host)
    keeper.active.index = ActiveIndex()
    pass_days(machine, 8)
    (file,) = keeper.finished
    assert drops._forget_now([1], set()) == 0
    assert drops._forget_now([1], {file.entry.file_id}) == 1


# Reads.


def test_bodies_that_are_not_recent_any_more_take_no_memory() -> None:
    recent = RecentBodies(2_000)
    records = [JournalRecord(JournalRecordKind.RUN, 1, body=bytes(600)) for _ in range(4)]
    for record in records:
        recent.keep(record)
    assert [record.body is None for record in records] == [True, True, True, False]


def test_a_bookie_in_doubt_lists_no_entries() -> None:
    machine = started()
    assert machine.add(1, (0,)) is Code.OK
    assert machine.held(1) == [(0, 0)]
    machine.serving._health.files_in_doubt.add(99)
    assert isinstance(machine.held(1), StorageError)


def test_a_lac_with_another_key_is_refused() -> None:
    machine = started()
    assert machine.add(1, (0,)) is Code.OK
    storage = machine.serving
    write = partial(storage.write_lac, 1, 5, bytes(range(1, 21)))
    assert machine.ask(write)[0] is Code.UNAUTHORIZED
    storage.announce_lac(1, 5, bytes(range(1, 21)))
    assert machine.ask(partial(storage.read_lac, 1)) == (Code.OK, -1)
