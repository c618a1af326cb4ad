"""Dropped ledgers: the deleted and the kept entries, and the files with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bookie_server.core.requests import StoredRead
from bookie_server.ports import Priority, Standing
from bookie_server.storage.files.pool import Pins, PooledFile
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, add_request, entry
from tests.sim.disk import SimFile
from tests.sim.runtime import SimFuture

COLD = replace(SMALL, recent_bytes_max=1, pool_files_max=2)
DAY_S = 24 * 3_600


def started(**options: Any) -> Machine:
    machine = Machine(**options)
    machine.start()
    return machine


def filled(machine: Machine, ledger_id: int, entries: int, first: int = 0) -> None:
    for entry_id in range(first, first + entries):
        assert machine.add(ledger_id, (entry_id,), b"%d" % entry_id * 1_000) is Code.OK


def pass_days(machine: Machine, days: int) -> None:
    machine.host.wall_offset_ms += days * DAY_S * 1_000


RESTARTS = (None, "stop", "crash", "lose_power")


def restarted(machine: Machine, way: str | None) -> None:
    if way is not None:
        getattr(machine, way)()
        machine.start()


# The ledger after a drop.


@pytest.mark.parametrize("way", RESTARTS)
def test_dropped_ledger_is_empty_and_stays_fenced_with_its_key(way: str) -> None:
    machine = started()
    filled(machine, 7, 5)
    filled(machine, 8, 1)
    assert machine.drop(7) is Code.OK
    restarted(machine, way)
    assert machine.read(7, 2) == (Code.NO_ENTRY, None)
    assert machine.read(7, -1) == (Code.NO_ENTRY, None)
    assert machine.read_batch(7, 0) == (Code.NO_ENTRY, ())
    assert machine.held(7) == []
    assert machine.add(7, (5,)) is Code.FENCED
    assert machine.add(7, (5,), key=bytes(20)) is Code.UNAUTHORIZED
    assert machine.read(8, 0)[0] is Code.OK
    assert machine.droppable() == [8]


@pytest.mark.parametrize("way", RESTARTS)
def test_only_recovery_adds_bring_entries_back_after_a_drop(way: str) -> None:
    machine = started()
    filled(machine, 7, 5)
    assert machine.drop(7) is Code.OK
    assert machine.add(7, (1,), b"recovered", is_recovery=True) is Code.OK
    restarted(machine, way)
    assert machine.read(7, 1) == (Code.OK, entry(7, 1, b"recovered"))
    assert machine.read(7, -1) == (Code.OK, entry(7, 1, b"recovered"))
    assert machine.read(7, 0) == (Code.NO_ENTRY, None)
    assert machine.held(7) == [(1, 1)]
    assert machine.droppable() == [7]
    assert machine.drop(7) is Code.OK
    restarted(machine, way)
    assert machine.held(7) == []


def test_recovery_add_of_dropped_bytes_is_stored_again_and_not_taken_for_a_repeat() -> None:
    machine = started()
    assert machine.add(7, range(4), b"same") is Code.OK
    answers: list[Code] = []
    storage = machine.serving
    storage.add(add_request(7, range(4), b"same", is_recovery=True), answers.append)
    storage.drop(7, answers.append)
    storage.add(add_request(7, range(4), b"same", is_recovery=True), answers.append)
    machine.scheduler.run_until(lambda: len(answers) == 3)
    assert answers == [Code.OK] * 3
    assert machine.held(7) == [(0, 3)]
    machine.lose_power()
    machine.start()
    assert machine.held(7) == [(0, 3)]


def test_adds_accepted_before_a_drop_are_gone_and_later_regular_ones_are_refused() -> None:
    machine = started()
    storage, answers = machine.serving, []
    storage.add(add_request(7, (0,)), lambda code: answers.append(("add", code)))
    storage.drop(7, lambda code: answers.append(("drop", code)))
    storage.add(add_request(7, (1,)), lambda code: answers.append(("late", code)))
    assert answers == [("late", Code.FENCED)]
    machine.scheduler.run_until(lambda: len(answers) == 3)
    assert answers[1:] == [("add", Code.OK), ("drop", Code.OK)]
    assert machine.held(7) == []


def test_dropping_what_is_unknown_or_dropped_writes_nothing() -> None:
    machine = started()
    assert machine.drop(9) is Code.NO_LEDGER
    assert machine.drop(-1) is Code.NO_LEDGER
    filled(machine, 7, 1)
    assert machine.drop(7) is Code.OK
    records = machine.serving.counters.journal_records
    assert machine.drop(7) is Code.OK
    assert machine.serving.counters.journal_records == records
    assert sorted(machine.serving._states) == [7]


def test_ledger_spread_over_its_tombstone_within_one_file_keeps_only_what_came_after() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 3)
    assert machine.drop(7) is Code.OK
    assert machine.add(7, (0, 1), b"back", is_recovery=True) is Code.OK
    filled(machine, 8, 30)
    machine.crash()
    machine.start()
    assert machine.held(7) == [(0, 1)]
    assert machine.read(7, -1) == (Code.OK, entry(7, 1, b"back"))
    assert machine.read(7, 2) == (Code.NO_ENTRY, None)


def test_rebuilt_index_names_no_dropped_entry_as_the_last_one() -> None:
    """The records of a file show which entries were dropped from its own index."""
    machine = started(settings=COLD)
    filled(machine, 7, 3)
    filled(machine, 8, 1)
    assert machine.drop(7) is Code.OK
    assert machine.add(7, (0, 1), b"back", is_recovery=True) is Code.OK
    filled(machine, 9, 60)
    slot = "slot-00000001"
    machine.stop()
    machine.disk.flip_bit(slot, len(machine.disk.seen_names[slot].seen) - 16_000, 3)
    machine.start()
    assert machine.serving.counters.boot_rebuilt_indexes == 1
    assert machine.read(7, -1) == (Code.OK, entry(7, 1, b"back"))
    assert machine.read(7, 2) == (Code.NO_ENTRY, None)
    assert machine.held(7) == [(0, 1)]


# The files after a drop.


def test_files_without_live_entries_are_freed_and_their_slots_recycled() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 120)
    filled(machine, 8, 3)
    finished = {file.slot for file in machine.manifest().files}
    before = machine.slots()
    assert len(before) > 8
    assert machine.drop(7) is Code.OK
    assert machine.slots() == before
    machine.reclaim()
    after = machine.slots()
    assert after < before
    assert len(after) <= 2 + COLD.pool_files_max + 1
    manifest = machine.manifest()
    assert len(manifest.free_slots) == COLD.pool_files_max
    assert set(manifest.free_slots) < finished
    assert machine.read(8, 1)[0] is Code.OK
    filled(machine, 9, 60)
    assert machine.serving.counters.files_recycled >= 2
    assert not set(machine.manifest().free_slots) & set(manifest.free_slots)
    for way in RESTARTS:
        restarted(machine, way)
        assert [machine.read(9, n)[0] for n in range(60)] == [Code.OK] * 60
        assert machine.read(9, 59) == (Code.OK, entry(9, 59, b"59" * 1_000))
        assert machine.held(7) == []
        assert machine.serving.counters.boot_damaged_records == 0


def test_crash_in_a_recycled_file_does_not_take_the_file_before_for_a_torn_record() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    assert machine.drop(7) is Code.OK
    machine.reclaim()
    for number in range(80):
        assert machine.add(9, (number,), bytes(100 + 37 * number % 3_000)) is Code.OK
        if machine.serving.counters.files_recycled:
            machine.crash()
            machine.start()
            assert machine.serving.counters.boot_torn_tails == 0
            assert machine.manifest().check_epoch == 0
    assert machine.held(9) == [(0, 79)]


def test_live_bytes_of_files_fall_and_a_file_with_another_live_ledger_stays() -> None:
    machine = started(settings=COLD)
    for number in range(40):
        filled(machine, 7 + number % 2, 1, first=number)
    machine.stop()
    machine.start()
    before = machine.manifest()
    assert machine.drop(7) is Code.OK
    machine.stop()
    machine.start()
    after = machine.manifest()
    old = {file.file_id: file.live_bytes for file in before.files}
    new = {file.file_id: file.live_bytes for file in after.files if file.live_bytes}
    assert all(size <= old[file_id] for file_id, size in new.items())
    assert 2 * sum(new.values()) <= sum(old.values())
    assert [machine.read(8, n)[0] for n in range(1, 40, 2)] == [Code.OK] * 20
    assert machine.drop(8) is Code.OK
    machine.reclaim()
    assert not [file for file in machine.manifest().files if file.live_bytes]


@pytest.mark.parametrize("way", ["crash", "lose_power"])
def test_drop_is_redone_after_a_crash_before_its_files_were_freed(way: str) -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    slots = machine.slots()
    assert machine.drop(7) is Code.OK
    restarted(machine, way)
    assert machine.held(7) == []
    assert len(machine.slots()) < len(slots)


def test_file_in_doubt_is_never_freed() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    machine.stop()
    machine.disk.seen_names.pop("slot-00000001")
    machine.disk.durable_names.pop("slot-00000001")
    machine.disk.flip_bit("slot-00000002", 8_200, 1)
    index_at = len(machine.disk.seen_names["slot-00000002"].seen) - 16_000
    machine.disk.flip_bit("slot-00000002", index_at, 1)
    machine.start()
    machine.read(7, 14)
    machine.scheduler.run_for(500)
    assert machine.drop(7) is Code.OK
    machine.reclaim()
    slots = {file.slot for file in machine.manifest().files}
    assert {"slot-00000001", "slot-00000002"} & slots == {"slot-00000001", "slot-00000002"}
    assert machine.read(8, 1) == (Code.IO_ERROR, None)
    assert machine.read(7, 1) == (Code.NO_ENTRY, None), "its metadata is deleted"
    machine.scheduler.run(machine.serving.end_doubt(machine.serving.doubt.epoch), machine.host)
    machine.reclaim()
    slots = {file.slot for file in machine.manifest().files}
    assert not {"slot-00000001", "slot-00000002"} & slots
    assert machine.read(8, 1) == (Code.NO_LEDGER, None)


def test_full_disk_gets_its_room_back_from_dropped_ledgers() -> None:
    machine = started(settings=replace(SMALL, free_bytes_min=1 << 18))
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + (1 << 18) + (5 << 16)
    number = 0
    while (code := machine.add(1, (number,), bytes(3_000))) is Code.OK:
        number += 1
        assert number < 400
        machine.scheduler.run_for(20)
    assert code is Code.READ_ONLY
    assert machine.drop(1) is Code.OK
    machine.reclaim()
    machine.scheduler.run_for(50)
    assert machine.serving.is_writable
    filled(machine, 2, 10)


# Reads in progress.


def begun_read(machine: Machine) -> tuple[list[tuple[Code, bytes | None]], Callable[[], None]]:
    """Begin a read of entry 1 of ledger 7 that waits for its body.

    Return its replies and a release.
    """
    machine.scheduler.run_for(500)
    machine.disk.random.random = lambda: 0.0  # nothing is in the page cache
    waits: list[SimFuture[None]] = []
    reads = 0

    def held_back(handle: SimFile) -> None:
        read = handle.read

        async def wait_and_read(
            offset: int, size: int, priority: Priority = Priority.FOREGROUND
        ) -> bytes:
            nonlocal reads
            reads += 1
            if reads == 3:  # index block and header are read, the entry is found
                waits.append(handle.files.host.future())
                await waits[-1]
            return await read(offset, size, priority)

        handle.read = wait_and_read

    for file in machine.serving._keeper.finished:
        assert isinstance(file.handle.opened, SimFile)
        held_back(file.handle.opened)
    answers: list[tuple[Code, bytes | None]] = []
    machine.serving.read(StoredRead(7, 1), lambda *answer: answers.append(answer))
    machine.scheduler.run_until(lambda: bool(waits))

    def let_go() -> None:
        waits[0].set_result(None)
        machine.scheduler.run_until(lambda: bool(answers))

    return answers, let_go


def found_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[Code, bytes | None]], Callable[[], None]]:
    """A read that has found the place of its entry. Its file may still be freed."""
    machine.scheduler.run_for(500)
    machine.disk.random.random = lambda: 0.0
    waits: list[SimFuture[None]] = []
    reads, read = 0, PooledFile.read

    async def wait_and_read(
        file: PooledFile, offset: int, size: int, priority: Priority = Priority.FOREGROUND
    ) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 3:  # index block and header are read
            waits.append(machine.host.future())
            await waits[-1]
        return await read(file, offset, size, priority)

    monkeypatch.setattr(Pins, "add", lambda _self, _file: None)
    monkeypatch.setattr(PooledFile, "read", wait_and_read)
    answers: list[tuple[Code, bytes | None]] = []
    machine.serving.read(StoredRead(7, 1), lambda *answer: answers.append(answer))
    machine.scheduler.run_until(lambda: bool(waits))

    def let_go() -> None:
        waits[0].set_result(None)
        machine.scheduler.run_until(lambda: bool(answers))

    return answers, let_go


def use_all_slots_again(machine: Machine) -> None:
    assert machine.drop(7) is Code.OK
    machine.reclaim()
    filled(machine, 9, 60)


def test_reading_under_way_keeps_its_slot_from_being_used_again() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    answers, let_go = begun_read(machine)
    (pinned,) = (file for file in machine.serving._keeper.finished if file.handle.pins)
    use_all_slots_again(machine)
    assert machine.serving.counters.files_recycled > 0
    assert pinned.entry.slot not in {file.slot for file in machine.manifest().files}
    let_go()
    assert answers == [(Code.OK, entry(7, 1, b"1" * 1_000))]
    assert machine.serving.counters.damage == 0


def test_reading_keeps_only_the_files_from_which_it_reads() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    filled(machine, 8, 60)
    answers, let_go = begun_read(machine)
    pinned = [file for file in machine.serving._keeper.finished if file.handle.pins]
    assert len(pinned) == 1
    assert machine.drop(8) is Code.OK
    machine.reclaim()
    filled(machine, 9, 60)
    assert machine.serving.counters.files_recycled > 0, "the files of ledger 8 are used again"
    let_go()
    assert answers == [(Code.OK, entry(7, 1, b"1" * 1_000))]
    assert not pinned[0].handle.pins


def test_reading_that_meets_a_recycled_slot_looks_again_and_finds_no_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    answers, let_go = found_read(machine, monkeypatch)
    use_all_slots_again(machine)
    assert machine.serving.counters.files_recycled > 0
    let_go()
    assert answers == [(Code.NO_ENTRY, None)]
    assert machine.serving.counters.damage == 0


# Tombstones are forgotten.


def test_tombstone_is_forgotten_after_a_week_when_no_file_has_records_of_the_ledger() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    assert machine.drop(7) is Code.OK
    pass_days(machine, 6)
    machine.reclaim()
    assert sorted(machine.serving._states) == [7]
    pass_days(machine, 2)
    machine.reclaim()
    assert sorted(machine.serving._states) == [7], "the active file has records of it"
    filled(machine, 8, 60)
    machine.reclaim()
    assert sorted(machine.serving._states) == [7, 8], "a file with live entries has records of it"
    assert machine.drop(8) is Code.OK
    machine.reclaim()
    machine.reclaim()
    assert sorted(machine.serving._states) == [8]
    assert machine.manifest().highest_dropped_ledger_id == 7
    assert machine.serving.counters.tombstones_forgotten == 1


def test_tombstone_stays_while_a_live_ledger_keeps_a_file_with_dropped_records() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 1)
    filled(machine, 8, 1)
    assert machine.drop(7) is Code.OK
    filled(machine, 9, 60)
    pass_days(machine, 30)
    machine.reclaim()
    assert 7 in sorted(machine.serving._states)
    # The dropped entry is in no index, but in a record that a rebuilt index would find.
    slot = "slot-00000001"
    machine.stop()
    machine.disk.flip_bit(slot, len(machine.disk.seen_names[slot].seen) - 16_000, 3)
    machine.start()
    machine.read(8, 0)
    machine.scheduler.run_for(500)
    assert machine.serving.counters.boot_rebuilt_indexes == 1
    assert machine.read(8, 0)[0] is Code.OK
    assert machine.held(7) == []
    assert machine.read(7, 0) == (Code.NO_ENTRY, None)


@pytest.mark.parametrize("way", RESTARTS)
@pytest.mark.parametrize(
    ("standing", "answer"),
    [
        (Standing.OPEN_WITH_ME, Code.OK),
        (Standing.OPEN_WITHOUT_ME, Code.IO_ERROR),
        (Standing.NOT_WRITABLE, Code.FENCED),
        (Standing.UNKNOWN, Code.IO_ERROR),
    ],
)
def test_first_regular_add_of_a_forgotten_ledger_goes_through_the_metadata_check(
    way: str, standing: Standing, answer: Code
) -> None:
    machine = started(settings=COLD, standing=standing)
    filled(machine, 7, 1)
    filled(machine, 9, 60)
    assert machine.drop(7) is Code.OK
    assert machine.drop(9) is Code.OK
    filled(machine, 12, 40)
    pass_days(machine, 8)
    machine.reclaim()
    machine.reclaim()
    assert sorted(machine.serving._states) == [12]
    restarted(machine, way)
    # The metadata check is needed even if something else makes the ledger known again.
    assert machine.add(7, (0,), is_recovery=True) is Code.OK
    for ledger_id in (3, 9, 10):
        write_lac = partial(machine.serving.write_lac, ledger_id, 0, KEY)
        assert machine.ask(write_lac) == (Code.OK,)
    restarted(machine, way)
    machine.metadata.asked.clear()
    assert machine.add(7, (1,)) is answer
    assert machine.add(3, (1,)) is answer
    assert machine.add(9, (1,)) is answer, "the highest ledger that was forgotten"
    assert machine.add(10, (1,)) is Code.OK
    assert machine.add(13, (0,)) is Code.OK
    assert machine.add(12, (40,)) is Code.OK
    assert set(machine.metadata.asked) == {3, 7, 9}


def test_commit_that_fails_on_a_full_disk_frees_later_and_forgets_no_slot() -> None:
    machine = started(settings=COLD)
    filled(machine, 7, 60)
    machine.scheduler.run_for(500)
    slots = machine.slots()
    assert machine.drop(7) is Code.OK
    machine.disk.faults.capacity_bytes = 10_000
    machine.reclaim()
    assert machine.slots() == slots
    machine.disk.faults.capacity_bytes = None
    machine.scheduler.run_for(2 * COLD.allocation_retry_ms)
    machine.reclaim()
    manifest = machine.manifest()
    named = {file.slot for file in manifest.files} | set(manifest.free_slots)
    assert machine.slots() == named
    assert len(named) < len(slots)


def test_recycled_slot_that_was_cut_short_leaves_the_reserve_of_the_disk_alone() -> None:
    machine = started(settings=replace(COLD, free_bytes_min=1 << 18))
    for number in range(4):
        filled(machine, 7, 1, first=number)
        machine.crash()  # the file is finished behind one entry, and cut there
        machine.start()
    assert machine.drop(7) is Code.OK
    machine.reclaim()
    contents = machine.disk.seen_names
    cut = [
        s for s in machine.manifest().free_slots if contents[s].allocated < SMALL.file_size_bytes
    ]
    assert cut
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + (1 << 18) - 30_000
    number = 0
    while (code := machine.add(9, (number,), bytes(3_000))) is Code.OK:
        number += 1
        assert number < 400
        machine.scheduler.run_for(20)
    assert code is Code.READ_ONLY
    assert set(cut) <= set(machine.manifest().free_slots)
    assert machine.fence(9) == (Code.OK, entry(9, number - 1, bytes(3_000)))


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_clean_stop_leaves_no_file_that_the_manifest_does_not_list(kept: int) -> None:
    machine = started(settings=replace(SMALL, pool_files_max=kept))
    filled(machine, 7, 120)
    assert machine.drop(7) is Code.OK
    machine.reclaim()
    machine.scheduler.run_for(500)
    machine.stop()
    manifest = machine.manifest()
    assert machine.slots() == {file.slot for file in manifest.files} | set(manifest.free_slots)
    assert len(manifest.free_slots) == kept
    machine.start()
    assert machine.read(7, 0)[0] is Code.NO_ENTRY
