"""The limits at which a bookie warns of a full device, refuses adds, and accepts them again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.disk_use import DiskLevel, DiskSettings, DiskSpace, level_of
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.fixtures.kinds import now

THRESHOLDS = DiskSettings(warn=0.8, full=0.9, low_water=0.7)
NORMAL, HIGH, FULL = DiskLevel
CAPACITY = 1 << 20
FULL_OR_STORED = (Code.OK, Code.READ_ONLY)


def levels(*free: int, total: int = 100) -> list[DiskLevel]:
    """The levels after measurements of these free bytes, one after the other."""
    seen = [NORMAL]
    for each in free:
        seen.append(level_of(DiskSpace(total, each), seen[-1], THRESHOLDS))
    return seen[1:]


def test_a_threshold_is_exceeded_above_its_value() -> None:
    assert levels(21, 20, 19) == [NORMAL, NORMAL, HIGH]
    assert levels(11, 10, 9) == [HIGH, HIGH, FULL]


def test_a_full_device_stays_full_down_to_the_low_water_mark() -> None:
    assert levels(5, 11, 25, 30, 31) == [FULL, FULL, FULL, FULL, NORMAL]


def test_a_warning_ends_below_the_low_water_mark() -> None:
    assert levels(19, 25, 19, 30, 31, 25) == [HIGH, HIGH, HIGH, HIGH, NORMAL, NORMAL]


def test_use_around_the_maximum_does_not_change_the_level_each_time() -> None:
    assert levels(*[9, 11] * 5) == [FULL] * 10


def test_a_low_water_mark_above_the_warning_leads_to_a_warning() -> None:
    thresholds = DiskSettings(warn=0.5, full=0.9, low_water=0.9)
    assert level_of(DiskSpace(100, 9), NORMAL, thresholds) is FULL
    assert level_of(DiskSpace(100, 11), FULL, thresholds) is HIGH


def test_one_is_no_limit_and_an_unknown_size_is_no_use() -> None:
    assert level_of(DiskSpace(100, 0), NORMAL, DiskSettings()) is NORMAL
    assert DiskSpace(0, 0).used_part == 0
    assert DiskSpace(100, 120).used_part == 0, "kept files may be counted twice for a moment"


# The storage.


def machine_of(*, full: float = 0.6, low_water: float = 0.4) -> Machine:
    """A bookie on a device of CAPACITY bytes, of which free_bytes_min is never reached."""
    thresholds = DiskSettings(
        warn=min(0.4, full), full=full, low_water=low_water, check_interval_ms=1_000
    )
    settings = replace(SMALL, disk=thresholds, pool_files_max=0)
    machine = Machine(settings=settings)
    machine.disk.faults.capacity_bytes = CAPACITY
    return machine


def fill(machine: Machine, ledger_id: int = 1) -> int:
    """Add entries until one is refused. Return the id of the first refused entry."""
    for number in range(400):
        code = machine.add(ledger_id, (number,), bytes(3_000))
        if code is not Code.OK:
            assert code is Code.READ_ONLY
            return number
    raise AssertionError("never read-only")


def test_adds_are_refused_above_the_maximum_and_nothing_is_written_for_them() -> None:
    machine = machine_of()
    machine.start()
    changes: list[tuple[DiskLevel, bool]] = []
    machine.serving.on_disk_level = lambda: changes.append(
        (machine.serving.disk.level, machine.serving.is_writable)
    )
    states: list[bool] = []
    machine.serving.on_state_change = lambda: states.append(machine.serving.is_writable)
    count = fill(machine)
    assert changes == [(HIGH, True), (FULL, False)]
    assert states == [True, False]
    assert machine.disk.used_bytes() > 0.6 * CAPACITY
    assert machine.serving._health.is_writable, "free_bytes_min is not reached"
    machine.scheduler.run_for(200)
    writes = machine.disk.counters.writes
    assert machine.add(1, (count,)) is Code.READ_ONLY
    assert machine.add(7, (0,)) is Code.READ_ONLY
    assert machine.disk.counters.writes == writes
    assert machine.read(1, 0) == (Code.OK, entry(1, 0, bytes(3_000)))
    assert machine.read(1, count)[0] is Code.NO_ENTRY


def test_fences_drops_and_recovery_adds_are_accepted_above_the_maximum() -> None:
    machine = machine_of(full=0.4, low_water=0.3)
    machine.start()
    count = fill(machine)
    assert machine.fence(1)[0] is Code.OK
    files = machine.serving._keeper.active.entry.file_id
    for number in range(count, count + 40):
        assert machine.add(1, (number,), bytes(3_000), is_recovery=True) is Code.OK
    assert machine.serving._keeper.active.entry.file_id > files + 1, "beyond the prepared file"
    assert machine.add(2, (0,)) is Code.READ_ONLY
    for end in (machine.stop, machine.lose_power):
        end()
        machine.start()
        assert machine.serving.disk.level is FULL, "measured before the first add"
        assert machine.add(2, (0,)) is Code.READ_ONLY
        assert machine.read(1, count + 39)[0] is Code.OK
    assert machine.drop(1) is Code.OK


def test_a_bookie_accepts_adds_again_only_below_the_low_water_mark() -> None:
    machine = machine_of()
    machine.start()
    fill(machine)
    machine.scheduler.run_for(200)  # the next file is prepared
    used = machine.disk.used_bytes()
    for used_part, is_writable in ((0.59, False), (0.41, False), (0.39, True), (0.59, True)):
        machine.disk.faults.capacity_bytes = int(used / used_part)
        machine.scheduler.run_for(2_000)
        assert machine.serving.is_writable is is_writable, used_part
        assert (machine.add(3, (0,)) is Code.OK) is is_writable


def test_space_comes_back_by_a_deletion_alone() -> None:
    machine = machine_of()
    machine.start()
    fill(machine)
    machine.drop(1)
    machine.reclaim()
    machine.scheduler.run_for(2_000)
    assert machine.serving.is_writable
    assert machine.serving.disk.level is not FULL


@pytest.mark.parametrize("kept", [0, 4])
def test_freed_files_that_are_kept_for_reuse_count_as_free(kept: int) -> None:
    machine = machine_of()
    machine.settings = replace(machine.settings, pool_files_max=kept)
    machine.start()
    fill(machine)
    machine.drop(1)
    machine.reclaim()
    machine.scheduler.run_for(2_000)
    pool = machine.manifest().free_slots
    assert len(pool) == kept
    disk = machine.serving.disk
    free = CAPACITY - machine.disk.used_bytes()
    sizes = sum(machine.disk.seen_names[slot].taken_bytes for slot in pool)
    assert disk.space == DiskSpace(CAPACITY, free + sizes)


def test_the_device_is_measured_after_each_file_and_at_the_interval() -> None:
    machine = machine_of()
    machine.settings = replace(
        machine.settings, disk=replace(machine.settings.disk, check_interval_ms=3_600_000)
    )
    machine.start()
    before = machine.serving.disk.space
    number = 0
    while machine.serving._keeper.full is None:
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
        number += 1
    machine.scheduler.run_for(200)
    assert machine.serving.disk.space.free < before.free - SMALL.file_size_bytes // 2
    machine.disk.faults.capacity_bytes = CAPACITY // 2
    machine.scheduler.run_for(3_600_000)
    assert machine.serving.disk.space.total == CAPACITY // 2


def test_a_full_device_starts_a_compaction_at_each_measurement() -> None:
    machine = machine_of()
    machine.start()
    started: list[int] = []
    machine.serving.disk.on_full = lambda: started.append(machine.scheduler.now_us)
    fill(machine)
    assert started
    count = len(started)
    machine.scheduler.run_for(3_500)
    assert len(started) >= count + 3


def test_space_comes_back_by_a_compaction() -> None:
    machine = machine_of()
    machine.start()
    number = 0
    while now(machine.serving.is_writable):
        # One entry of each file is kept.
        assert machine.add(1 if number % 10 else 2, (number,), bytes(3_000)) in FULL_OR_STORED
        number += 1
    machine.drop(1)
    machine.reclaim()
    machine.scheduler.run_for(60_000)
    assert machine.serving.is_writable
    assert machine.read(2, 0) == (Code.OK, entry(2, 0, bytes(3_000)))


def test_a_stop_waits_for_a_running_measurement_and_ends_the_watch() -> None:
    machine = machine_of()
    machine.start()
    storage = machine.serving
    storage.disk.measure_soon()
    machine.stop()
    assert storage.disk._is_closing
    space = storage.disk.space
    storage.disk.measure_soon()
    machine.scheduler.run_for(10_000)
    assert storage.disk.space is space


def test_a_close_waits_for_the_measurement_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards, the directory may belong to another process."""
    machine = machine_of()
    machine.start()
    disk, host = machine.serving.disk, machine.host
    total_space = machine.files.total_space
    ended: list[str] = []

    async def slow_space() -> int:
        await host.sleep(5_000)
        ended.append("measurement")
        return await total_space()

    monkeypatch.setattr(machine.serving._shared.files, "total_space", slow_space)

    async def close() -> None:
        await disk.close()
        ended.append("close")

    disk.measure_soon()
    machine.scheduler.run_for(1)
    host.spawn("close", close())
    machine.scheduler.run_for(10_000)
    assert ended == ["measurement", "close"]
    disk.measure_soon()
    machine.scheduler.run_for(10_000)
    assert ended == ["measurement", "close"], "none begins after the close"
