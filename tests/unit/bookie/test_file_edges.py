"""Edges of the owner of files: descriptors, freed files, and slots on a full device."""

from __future__ import annotations

import pytest

from bookie_server.core.settings import FILE_SIZE_BYTES_MIN
from bookie_server.errors import (
    DamagedDirectoryError,
    DiskFullError,
    FreedFileError,
    StorageError,
)
from bookie_server.storage.files.pool import FilePool, PooledFile
from bookie_server.storage.wake_ups import settle
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine
from tests.sim.disk import Content, SimFileSystem
from tests.unit.bookie.test_drops import started


class Pooled:
    """A pool of two open files on a simulated disk."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.host, self.scheduler = self.machine.host, self.machine.scheduler
        self.files = SimFileSystem(self.machine.disk, self.host)
        self.pool = FilePool(self.files, self.host, 2)
        self.opened: list[str] = []
        self.errors: list[StorageError] = []

    def open(self, name: str) -> PooledFile:
        return self.scheduler.run(self.pool.open(name, create=True), self.host)

    async def open_later(self, name: str) -> None:
        try:
            await self.pool.open(name, create=True)
            self.opened.append(name)
        except StorageError as error:
            self.errors.append(error)


def test_a_file_that_may_close_makes_room_for_one_that_waits() -> None:
    pooled = Pooled()
    first = pooled.open("a")
    pooled.open("b")
    pooled.host.spawn("open", pooled.open_later("c"))
    pooled.scheduler.run_for(1_000)
    assert pooled.opened == []
    first.may_close()
    pooled.scheduler.run_for(10)
    assert pooled.opened == ["c"]
    assert sorted(file.name for file in pooled.files.opened) == ["b", "c"]


def test_a_file_is_closed_after_its_running_operations() -> None:
    pooled = Pooled()
    file = pooled.open("a")
    read: list[bytes] = []

    async def reading() -> None:
        read.append(await file.read(0, 4))

    pooled.scheduler.run(file.write(0, (b"data",)), pooled.host)
    pooled.host.spawn("read", reading())
    pooled.scheduler.step()
    assert file.uses == 1
    pooled.scheduler.run(file.close(), pooled.host)
    assert read == [b"data"]
    assert pooled.files.opened == []


def test_a_file_that_is_closed_is_not_opened_again() -> None:
    pooled = Pooled()
    file = pooled.open("a")
    pooled.scheduler.run(file.close(), pooled.host)
    with pytest.raises(FreedFileError):
        pooled.scheduler.run(file.read(0, 4), pooled.host)
    assert pooled.files.opened == []


def test_a_file_that_is_opened_during_a_stop_is_closed() -> None:
    pooled = Pooled()
    pooled.host.spawn("open", pooled.open_later("a"))
    pooled.scheduler.step()
    pooled.scheduler.run(pooled.pool.close_all(), pooled.host)
    pooled.scheduler.run_for(10)
    assert pooled.files.opened == []


def test_a_missing_file_takes_no_descriptor() -> None:
    pooled = Pooled()
    for _ in range(3):
        with pytest.raises(StorageError):
            pooled.scheduler.run(pooled.pool.at("missing").read(0, 4), pooled.host)
    assert pooled.pool.open_count == 0


def with_a_finished_file() -> Machine:
    machine = started()
    for number in range(30):
        assert machine.add(7, (number,), bytes(3_000)) is Code.OK
    machine.scheduler.run_for(200)
    return machine


def test_a_file_that_was_freed_is_held_by_no_ledger() -> None:
    machine = with_a_finished_file()
    finished = machine.serving._keeper.finished
    file = next(iter(finished))
    assert file in finished.holding(7)
    for _ in finished.removing(file):
        pass
    assert file not in finished.holding(7)
    for _ in finished.counting_again(file):
        pass
    assert file not in finished.holding(7), "its index was rebuilt meanwhile"


def test_bytes_of_a_deleted_ledger_are_not_live() -> None:
    machine = with_a_finished_file()
    file = next(iter(machine.serving._keeper.finished))
    assert file.live_bytes > 0
    assert machine.drop(7) is Code.OK
    assert (file.live_bytes, len(file.live)) == (0, 0)


def test_a_slot_is_free_when_the_calls_for_its_former_file_have_ended() -> None:
    machine = with_a_finished_file()
    keeper = machine.serving._keeper
    file = next(iter(keeper.finished))
    file.handle.uses += 1  # a call whose reading was cancelled
    assert machine.drop(7) is Code.OK
    machine.host.spawn("reclaim", machine.serving.reclaim())
    machine.scheduler.run_for(1_000)
    assert file.entry.slot in machine.manifest().free_slots
    assert file.entry.slot in {each.name for each in machine.files.opened}
    assert file.entry.slot not in keeper.free_slots
    file.handle.uses -= 1
    settle(file.handle._idle)
    machine.scheduler.run_for(1_000)
    assert file.entry.slot not in {each.name for each in machine.files.opened}
    assert file.entry.slot in keeper.free_slots


# A full device.


def test_a_file_without_room_leaves_nothing() -> None:
    machine = started()
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes()
    prepare = machine.serving._keeper.slots.prepare(99, None)
    with pytest.raises(DiskFullError):
        machine.scheduler.run(prepare, machine.host)
    assert "slot-00000099" not in machine.disk.seen_names


def test_compaction_takes_the_largest_free_slot_and_half_of_the_reserve() -> None:
    machine = started()
    slots = machine.serving._keeper.slots
    sizes = {"slot-a": 1 << 14, "slot-b": 1 << 15, "slot-c": 1 << 13}
    for name, size in sizes.items():
        content = Content()
        content.allocated = size
        machine.disk.set_name(name, content)
    left_bytes = SMALL.free_bytes_min // 2 + FILE_SIZE_BYTES_MIN - (1 << 15)
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + left_bytes
    draft = machine.scheduler.run(slots.prepare_draft(99, sorted(sizes), 1), machine.host)
    assert draft.entry.slot == "slot-b"
    assert draft.entry.size_bytes == FILE_SIZE_BYTES_MIN


def test_a_directory_with_entries_and_without_a_manifest_is_not_new() -> None:
    machine = Machine()
    machine.disk.set_name("slot-00000001", Content())
    with pytest.raises(DamagedDirectoryError, match="MANIFEST"):
        machine.start()
    assert set(machine.disk.seen_names) == {"slot-00000001"}
