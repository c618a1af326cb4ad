"""A bookie that an administrator makes read-only."""

from __future__ import annotations

import pytest

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
