"""Few descriptors: files are opened for each read, and a read waits if no descriptor is left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from bookie_server.config import BookieSettings
from bookie_server.core.requests import StoredRead
from bookie_server.descriptors import (
    CALLERS_MAX,
    FILES_MAX,
    FILES_MIN,
    LIMIT_ADVISED,
    LIMIT_MIN,
    RESERVED,
    divided,
)
from bookie_server.errors import DiskFullError, TooManyFilesError
from bookie_server.storage.files.manifest import ManifestStore
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.fixtures.kinds import now

FEW = replace(SMALL, open_files_max=8, pieces_max=1, recent_bytes_max=1, pool_files_max=1)


def filled(machine: Machine, count: int) -> None:
    for number in range(count):
        assert machine.add(1, (number,), b"%d" % number) is Code.OK


def check_all(machine: Machine, count: int) -> None:
    for number in range(count):
        assert machine.read(1, number) == (Code.OK, entry(1, number, b"%d" % number))
        machine.check_descriptors()
    assert machine.read(1, count) == (Code.NO_ENTRY, None)


def test_many_finished_files_are_served_with_few_descriptors_also_after_a_start() -> None:
    machine = Machine(3, settings=FEW)
    machine.disk.faults.descriptors_max = 9
    machine.start()
    filled(machine, 60)
    assert len(list(machine.serving._keeper.finished)) > 50
    check_all(machine, 60)
    for end in (machine.stop, machine.crash):
        end()
        machine.start()
        check_all(machine, 60)
    assert machine.serving.failure is None


def test_files_used_lately_stay_open() -> None:
    machine = Machine(3, settings=FEW)
    machine.start()
    filled(machine, 30)
    check_all(machine, 30)
    pool = machine.serving._shared.files
    before = pool.opened
    for _ in range(10):
        for number in range(4):
            machine.read(1, number)
    assert pool.opened - before <= 8


def test_no_descriptor_for_a_read_is_busy_and_passes() -> None:
    machine = Machine(3, settings=replace(FEW, open_files_max=64))
    machine.start()
    filled(machine, 20)
    machine.stop()
    machine.start()
    machine.disk.faults.descriptors_max = 0
    # The start left every file open. They are closed one by one, and none can be opened again.
    codes = {machine.read(1, number)[0] for number in range(20)}
    while len(machine.files.opened) > 2:
        victim = machine.serving._shared.files._victim()
        assert victim is not None
        machine.scheduler.run(machine.serving._shared.files.close(victim))
    codes |= {machine.read(1, number)[0] for number in range(20)}
    assert codes == {Code.OK, Code.BUSY}
    assert machine.serving.failure is None
    machine.disk.faults.descriptors_max = None
    check_all(machine, 20)


def test_no_descriptor_for_the_next_file_is_no_dead_disk() -> None:
    machine = Machine(3, settings=replace(SMALL, open_files_max=8))
    machine.start()
    machine.disk.faults.descriptors_max = 2  # of the active file and of the prepared one
    number = 0
    while machine.add(1, (number,), bytes(3_000)) is Code.OK:
        number += 1
        machine.scheduler.run_for(100)
        assert number < 60
    assert machine.serving.failure is None
    assert not now(machine.serving.is_writable)
    assert machine.fence(2)[0].is_absent
    machine.disk.faults.descriptors_max = None
    machine.scheduler.run_for(2 * SMALL.allocation_retry_ms)
    assert machine.serving.is_writable
    assert machine.add(1, (number,), bytes(3_000)) is Code.OK
    machine.stop()
    machine.start()
    for held in range(number + 1):
        assert machine.read(1, held) == (Code.OK, entry(1, held, bytes(3_000)))


def test_no_descriptor_at_a_start_is_said_by_name_and_leaves_none_open() -> None:
    machine = Machine(3, settings=FEW)
    machine.start()
    filled(machine, 5)
    machine.stop()
    for limit in range(5):
        machine.disk.faults.descriptors_max = limit
        try:
            machine.start()
        except TooManyFilesError:
            assert machine.files.opened == []
            machine.crash()
        else:
            break
    else:
        pytest.fail("five descriptors are enough")
    check_all(machine, 5)


@pytest.mark.parametrize("capacity", range(1_000, 60_000, 4_000))
def test_a_full_disk_leaves_no_descriptor_open(capacity: int) -> None:
    """The MANIFEST of the prepared file has no room, so each attempt closes the file again."""
    machine = Machine(3, settings=replace(SMALL, free_bytes_min=0, open_files_max=8))
    machine.start()
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + (1 << 16) + capacity
    number = 0
    while machine.add(1, (number,), bytes(3_000)) is Code.OK:
        number += 1
        machine.scheduler.run_for(20)
    for _ in range(20):
        machine.scheduler.run_for(SMALL.allocation_retry_ms)
        machine.check_descriptors()
    assert len(machine.files.opened) <= 8
    assert machine.serving.failure is None
    machine.stop()


def test_a_prepared_file_whose_commit_finds_no_room_is_closed_and_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(3)
    machine.start()
    refused: list[int] = []

    async def refuse(_self: ManifestStore, _compose: object, _states: object) -> None:
        refused.append(len(machine.files.opened))
        raise DiskFullError("no room for a MANIFEST", path="MANIFEST")

    with monkeypatch.context() as patches:
        patches.setattr(ManifestStore, "commit", refuse)
        for number in range(20):
            assert machine.add(1, (number,), bytes(3_000)) in (Code.OK, Code.READ_ONLY)
        machine.scheduler.run_for(10 * SMALL.allocation_retry_ms)
        assert len(refused) > 10
        assert max(refused[5:]) <= refused[0] + 1
        assert len(machine.slots()) <= 3
    machine.scheduler.run_for(2 * SMALL.allocation_retry_ms)
    assert machine.serving.is_writable
    machine.stop()


@pytest.mark.parametrize("limit", [LIMIT_MIN, 256, 1_024, 4_096, 1 << 20])
@pytest.mark.parametrize("connections_max", [1, 1_024, 100_000])
def test_a_budget_never_exceeds_its_limit(limit: int, connections_max: int) -> None:
    budget = divided(limit, connections_max)
    assert budget.connections + budget.callers + budget.files + RESERVED <= limit
    assert 1 <= budget.callers <= CALLERS_MAX
    assert FILES_MIN <= budget.files <= FILES_MAX
    assert 1 <= budget.connections <= connections_max


def test_the_advised_limit_is_enough_for_all_connections_of_default_settings() -> None:
    connections_max = BookieSettings.model_fields["connections_max"].default
    assert divided(LIMIT_ADVISED, connections_max).connections == connections_max
    assert divided(LIMIT_ADVISED // 2, connections_max).connections < connections_max


def test_a_limit_too_low_for_a_bookie_is_refused_with_what_to_do() -> None:
    with pytest.raises(StartupError, match="ulimit"):
        divided(LIMIT_MIN - 1, 10)


def test_reads_at_the_same_time_take_no_descriptor_from_each_other() -> None:
    machine = Machine(3, settings=FEW)
    machine.start()
    filled(machine, 60)
    machine.stop()
    machine.start()
    machine.disk.faults.descriptors_max = 9
    found: dict[int, tuple[Code, bytes | None]] = {}
    for number in range(60):
        machine.serving.read(
            StoredRead(1, number),
            partial(lambda number, code, data: found.update({number: (code, data)}), number),
        )
    machine.scheduler.run_until(lambda: len(found) == 60)
    assert found == {n: (Code.OK, entry(1, n, b"%d" % n)) for n in range(60)}
    machine.check_descriptors()
