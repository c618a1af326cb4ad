"""A bookie that an administrator makes read-only, and reports of failed reads."""

from __future__ import annotations

import pytest

from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import CorruptRecordError, StorageError
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, entry


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.start()
    return machine


def set_read_only(machine: Machine, value: bool) -> None:
    machine.serving.set_read_only(is_read_only=value)


def test_a_bookie_that_is_read_only_by_hand_refuses_regular_adds_alone(machine: Machine) -> None:
    assert machine.add(1, (0,)) is Code.OK
    set_read_only(machine, True)
    assert not machine.serving.is_writable
    assert machine.serving.has_room
    assert machine.add(1, (1,)) is Code.READ_ONLY
    assert machine.add(2, (0,)) is Code.READ_ONLY
    assert machine.read(1, 0) == (Code.OK, entry(1, 0, b"payload"))
    assert machine.add(1, (1,), is_recovery=True) is Code.OK
    assert machine.fence(1)[0] is Code.OK
    assert machine.drop(1) is Code.OK
    set_read_only(machine, False)
    assert machine.add(2, (0,)) is Code.OK


def test_each_reason_alone_keeps_a_bookie_read_only(machine: Machine) -> None:
    health = machine.serving._health
    set_read_only(machine, True)
    health.is_writable = False
    set_read_only(machine, False)
    assert not machine.serving.is_writable, "the disk is still full"
    set_read_only(machine, True)
    health.is_writable = True
    assert not machine.serving.is_writable, "room does not undo a request"
    assert machine.add(1, (0,)) is Code.READ_ONLY


def test_changes_are_reported_once_and_forgotten_by_the_next_start(machine: Machine) -> None:
    changes: list[bool] = []
    storage = machine.serving
    storage.on_state_change = lambda: changes.append(storage.is_writable)
    for value in (False, True, True, False, False, True):
        set_read_only(machine, value)
    assert changes == [False, True, False]
    machine.stop()
    assert machine.start().is_writable


def test_files_are_counted(machine: Machine) -> None:
    assert machine.serving.files_count == 1
    number = 0
    while machine.serving.files_count < 3:
        assert machine.add(1, (number,), bytes(100_000)) is Code.OK
        number += 1
    assert len(machine.slots()) >= 3


def test_a_failed_read_is_reported_with_its_ledger_and_entry(machine: Machine) -> None:
    assert machine.add(7, (3,), bytes(3_000)) is Code.OK
    machine.stop()
    machine.disk.flip_bit("slot-00000001", RECORDS_START + 1_500, 2)
    machine.start()
    reports: list[tuple[int, int, StorageError]] = []
    machine.serving._shared.on_failed_read = lambda *report: reports.append(report)
    assert machine.read(7, 9) == (Code.NO_ENTRY, None)
    assert machine.read(8, 0) == (Code.NO_LEDGER, None)
    assert reports == [], "an entry that does not exist is no failure"
    assert machine.read(7, 3) == (Code.IO_ERROR, None)
    assert machine.read_batch(7, 3)[0] is Code.IO_ERROR
    assert machine.read_slices(7, ((3, ((0, 2_000),)),))[0] is Code.IO_ERROR
    assert [report[:2] for report in reports] == [(7, 3)] * 3
    assert all(isinstance(error, CorruptRecordError) for *_, error in reports)
