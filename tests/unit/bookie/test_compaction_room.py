"""The room of a draft on a nearly full device: it comes back, so it is not counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.disk_use import DiskLevel, DiskSettings
from bookie_server.core.settings import StorageSettings
from bookie_server.storage.compaction import draft
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

SIZE = 600
SLOT = SMALL.file_size_bytes
SETTINGS = replace(
    SMALL, pieces_max=1_000, pool_files_max=0, recent_bytes_max=1, compaction_bytes_per_s=1 << 15
)


def filled(settings: StorageSettings = SETTINGS, files: int = 4) -> Machine:
    """A bookie with some files, of which a sixth of the entries is not deleted."""
    machine = Machine(settings=settings)
    machine.start()
    number = 0
    while len(list(machine.serving._keeper.finished)) < files:
        ledger_id = 1 if number % 6 == 0 else 2
        assert machine.add(ledger_id, (number,), bytes(SIZE)) is Code.OK
        machine.scheduler.run_for(5)
        number += 1
    assert machine.drop(2) is Code.OK
    return machine


def leave(machine: Machine, free_bytes: int) -> None:
    """Make the device so small that this number of bytes is free."""
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + free_bytes


def begin(machine: Machine) -> None:
    """Start a compaction, and run until its draft exists."""
    handover = machine.serving._keeper.handover
    machine.serving.compactor.request()
    machine.scheduler.run_until(lambda: handover.draft is not None)


def roll(machine: Machine, first: int) -> int:
    """Add entries until two files are full; return the number of adds."""
    keeper = machine.serving._keeper
    last = keeper.active.entry.file_id
    rolls = count = 0
    while rolls < 2:
        code = machine.add(3, (first + count,), bytes(SIZE))
        assert code is Code.OK, (code, rolls, count)
        machine.scheduler.run_for(5)
        count += 1
        rolls += keeper.active.entry.file_id != last
        last = keeper.active.entry.file_id
    return count


def test_a_bookie_takes_adds_while_a_draft_has_the_room_of_compaction() -> None:
    machine = filled()
    leave(machine, SETTINGS.free_bytes_min + 3 * SLOT)
    begin(machine)
    roll(machine, 0)
    assert machine.serving._keeper.handover.draft is not None, "the draft is written meanwhile"
    assert machine.serving.is_writable
    machine.scheduler.run_until(lambda: not machine.serving.compactor._is_running)
    assert machine.serving.counters.compaction_bytes_freed > 2 * SLOT
    for number in range(0, 60, 6):
        assert machine.read(1, number) == (Code.OK, entry(1, number, bytes(SIZE)))


@pytest.mark.parametrize("slots", [0, 2])
def test_regular_files_leave_the_room_of_compaction_after_a_draft_too(slots: int) -> None:
    """Adds continue until they are refused. Then a further compaction still has its room."""
    machine = filled(replace(SETTINGS, pool_files_max=slots))
    leave(machine, SETTINGS.free_bytes_min + 3 * SLOT)
    begin(machine)
    number = 0
    while machine.add(3, (number,), bytes(SIZE)) is Code.OK:
        number += 1
        machine.scheduler.run_for(5)
        assert number < 1_000
    machine.scheduler.run_until(lambda: not machine.serving.compactor._is_running)
    while machine.add(3, (number,), bytes(SIZE)) is Code.OK:
        number += 1
        machine.scheduler.run_for(5)
        assert number < 1_000
    keeper = machine.serving._keeper
    free = machine.disk.faults.capacity_bytes or 0
    free -= machine.disk.used_bytes()
    kept = max((machine.disk.seen_names[slot].taken_bytes for slot in keeper.free_slots), default=0)
    assert free >= SETTINGS.free_bytes_min
    assert free + kept >= SETTINGS.free_bytes_min + SLOT
    assert machine.drop(3) is Code.OK
    machine.scheduler.run_for(4 * SETTINGS.allocation_retry_ms)
    assert machine.serving.is_writable


def test_the_room_of_a_draft_does_not_fill_the_device_up_to_its_limit() -> None:
    """The limit ends only below the low-water mark, so a draft would end it for a long time."""
    machine = filled()
    used = machine.disk.used_bytes()
    capacity = 4 * used
    thresholds = DiskSettings(
        warn=(used + SLOT // 4) / capacity,
        full=(used + SLOT // 2) / capacity,
        low_water=(used - 2 * SLOT) / capacity,
        check_interval_ms=100,
    )
    machine.settings = replace(SETTINGS, disk=thresholds)
    machine.disk.faults.capacity_bytes = capacity
    machine.stop()
    machine.start()
    machine.scheduler.run_for(1_000)
    spare = machine.disk.used_bytes()
    assert machine.serving.disk.level is not DiskLevel.FULL, (spare, used)
    begin(machine)
    machine.scheduler.run_for(1_000)
    assert machine.serving._keeper.handover.draft is not None
    assert machine.disk.used_bytes() > (used + SLOT // 2), "the draft is above the limit"
    assert machine.serving.is_writable


def test_a_draft_that_cannot_hold_its_source_leaves_the_room_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then no file is freed by the first draft, and the rest needs a second one."""
    monkeypatch.setattr(draft, "PIECES_MAX", 2)
    machine = filled()
    leave(machine, SETTINGS.free_bytes_min + 4 * SLOT)
    begin(machine)
    number = 0
    while machine.add(3, (number,), bytes(SIZE)) is Code.OK:
        number += 1
        machine.scheduler.run_for(5)
        assert number < 1_000
    assert machine.serving._keeper.handover.draft is not None
    capacity = machine.disk.faults.capacity_bytes
    assert capacity is not None
    assert capacity - machine.disk.used_bytes() >= SETTINGS.free_bytes_min + SLOT


@pytest.mark.parametrize("slots", [0, 2])
def test_a_draft_counts_once_as_free_also_in_a_recycled_slot(slots: int) -> None:
    machine = filled(replace(SETTINGS, pool_files_max=slots))
    recycled: list[bool] = []
    for dropped in (10, 11):  # the second draft may take a slot that the first compaction freed
        leave(machine, 10 * SLOT)
        begin(machine)
        storage, disk = machine.serving, machine.disk
        draft_file = storage._keeper.handover.draft
        assert draft_file is not None
        recycled.append(draft_file.is_recycled)
        machine.scheduler.run(storage.disk.measure(), machine.host)
        counted = {*machine.manifest().free_slots, draft_file.entry.slot}
        assert disk.faults.capacity_bytes is not None
        free = disk.faults.capacity_bytes - disk.used_bytes()
        sizes = sum(disk.seen_names[slot].taken_bytes for slot in counted)
        assert storage.disk.space.free == free + sizes
        machine.scheduler.run_until(lambda: not machine.serving.compactor._is_running)
        for number in range(60):
            assert machine.add((3, dropped)[number % 2], (number + 100 * dropped,)) is Code.OK
            machine.scheduler.run_for(5)
        assert machine.drop(dropped) is Code.OK
    assert recycled == [False, slots > 0]
