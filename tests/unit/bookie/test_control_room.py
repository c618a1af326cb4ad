"""A full bookie has room for fences and deletions, so that deletions can give room back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.settings import KIBIBYTE
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.files.room import room_for_drops
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine

FILES = 12
LEDGERS = 200
FILE_SIZES = (64 * KIBIBYTE, 128 * KIBIBYTE, 1_024 * KIBIBYTE)


def full_bookie(file_size: int, ledgers: int = 2) -> tuple[Machine, int]:
    """A bookie whose device is full of entries of the ledgers 1 and above, and the next entry."""
    settings = replace(
        SMALL,
        file_size_bytes=file_size,
        pieces_max=100_000,
        in_flight_bytes_max=1 << 22,
        free_bytes_min=file_size // 8,
        allocation_retry_ms=1_000,
    )
    machine = Machine(settings=settings)
    machine.disk.faults.capacity_bytes = FILES * file_size
    machine.start()
    number = 0
    while True:
        # Some records are larger than the room for them in the file of a start on a full disk.
        size = file_size // (12 if number % 4 else 40)
        code = machine.add(1 + number % ledgers, (number,), bytes(size))
        if code is not Code.OK:
            assert code is Code.READ_ONLY
            return machine, number
        number += 1
        machine.scheduler.run_for(2)


def require_room_after_drops(machine: Machine, ledgers: int = 2) -> None:
    for ledger_id in range(1, 1 + ledgers):
        assert machine.drop(ledger_id) is Code.OK
    machine.reclaim()
    machine.scheduler.run_for(5 * machine.settings.allocation_retry_ms)
    assert machine.serving.is_writable


def require_allocated(machine: Machine) -> None:
    """No open file has records, or room for its index, beyond its allocated size."""
    for file in machine.serving._keeper.opened:
        assert file.end + 2 * (16 * KIBIBYTE) <= file.entry.size_bytes


@pytest.mark.parametrize("file_size", FILE_SIZES)
@pytest.mark.parametrize("way", ["crash", "lose_power", "stop"])
def test_a_full_bookie_accepts_deletions_after_a_start(file_size: int, way: str) -> None:
    """The start copies records that are not proved to be synced to its small file."""
    for wait_ms in (0, 1_000):
        machine, _ = full_bookie(file_size)
        machine.scheduler.run_for(wait_ms)
        getattr(machine, way)()
        machine.start()
        require_allocated(machine)
        assert machine.fence(2)[0] is Code.OK
        require_room_after_drops(machine)


@pytest.mark.parametrize("file_size", FILE_SIZES)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_recovery_adds_leave_room_for_deletions(file_size: int, *, is_restarted: bool) -> None:
    machine, number = full_bookie(file_size)
    if is_restarted:
        machine.stop()
        machine.start()
    code = Code.OK
    first = number
    while code is Code.OK:
        code = machine.add(1, (number,), bytes(100), is_recovery=True)
        number += 1
        machine.scheduler.run_for(2)
    assert code is Code.READ_ONLY
    assert number > first + 1
    require_room_after_drops(machine)


@pytest.mark.parametrize("file_size", FILE_SIZES)
def test_deletions_that_come_together_do_not_exceed_the_file(file_size: int) -> None:
    """None of them is in the file yet when the next one is accepted."""
    machine, _ = full_bookie(file_size, LEDGERS)
    machine.stop()
    machine.start()
    codes: list[Code] = []
    held = machine.droppable()
    for ledger_id in held:
        machine.serving.drop(ledger_id, codes.append)
    machine.scheduler.run_until(lambda: len(codes) == len(held))
    assert set(codes) <= {Code.OK, Code.READ_ONLY}
    assert codes.count(Code.OK) >= 2
    require_allocated(machine)
    assert machine.serving.failure is None


def test_room_of_deletions_by_the_size_of_files() -> None:
    def room(size_bytes: int, file_size_bytes: int) -> int:
        entry = FileEntry(1, "slot-00000001", "00" * 16, FileState.OPEN, size_bytes)
        return room_for_drops(OpenFile(entry, cast("Any", None), entry.identity), file_size_bytes)

    mebibyte = 1 << 20
    assert room(256 * mebibyte, 256 * mebibyte) == 4 * mebibyte
    assert room(16 * mebibyte, 256 * mebibyte) == 2 * mebibyte
    assert room(mebibyte // 2, 8 * mebibyte) == 64 * KIBIBYTE
    assert room(64 * KIBIBYTE, 64 * KIBIBYTE) == KIBIBYTE
