"""A journal device that fails: the bookie stops, and the next start does not need the journal."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import (
    DamagedDirectoryError,
    JournalFailedError,
    StorageError,
    SyncFailedError,
)
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request, unsynced_bytes
from tests.fixtures.kinds import now
from tests.sim.disk import SimFile

MODES = [
    ModeSettings(
        BookieWriteMode.JOURNAL,
        "/journal",
        journal_files=2,
        journal_sync_data=sync_data,
        checkpoint_interval_ms=3_600_000,
    )
    for sync_data in (True, False)
]


def failed_machine(seed: int = 1, mode: ModeSettings = MODES[0]) -> tuple[Machine, set[int]]:
    """A bookie whose journal failed while adds were pending, and the acknowledged entries."""
    machine = Machine(seed, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    answers: dict[int, Code] = {}

    def send(number: int) -> None:
        def done(code: Code) -> None:
            answers[number] = code

        request = add_request(1, (number,), bytes(700 if number < 3 else 9_000))
        machine.serving.add(request, done)

    for number in range(3):
        send(number)
        machine.scheduler.run_until(lambda: len(answers) == number + 1)  # noqa: B023 - called now
    for number in range(3, 6):  # full groups, of which two are written at a time
        send(number)

    def fail(_number: int, name: str) -> None:
        if name.startswith("write journal-") and machine.disk.random.random() < 0.5:
            machine.journal_disk.error = errno.EIO

    machine.journal_disk.on_operation = fail
    machine.scheduler.run_until(lambda: len(answers) == 6)
    if machine.serving.failure is None:
        machine.journal_disk.error = errno.EIO
        assert machine.add(1, (6,)) is Code.IO_ERROR
    machine.journal_disk.on_operation, machine.journal_disk.error = None, 0
    assert set(answers.values()) <= {Code.OK, Code.IO_ERROR}
    return machine, {number for number, code in answers.items() if code is Code.OK}


def lose_the_journal(machine: Machine) -> None:
    machine.lose_power()
    machine.journal_disk.wipe()
    machine.journal_disk.is_there = False
    machine.settings = SMALL


@pytest.mark.parametrize("mode", MODES)
def test_after_a_stop_the_next_start_needs_no_journal_that_failed(mode: ModeSettings) -> None:
    partly = 0
    for seed in range(12):
        machine, acknowledged = failed_machine(seed, mode)
        partly += 3 < len(acknowledged) < 6
        assert not machine.serving.is_writable
        assert machine.add(2, (0,)) is Code.IO_ERROR
        assert machine.read(1, 0)[0] is Code.OK
        storage = machine.serving
        failure = storage.failure
        assert isinstance(failure, JournalFailedError)
        assert now(failure.is_needed)
        machine.stop()
        assert isinstance(storage.failure, JournalFailedError)
        assert not storage.failure.is_needed
        assert "--write-mode direct" in storage.failure.message
        assert machine.manifest().run is None
        lose_the_journal(machine)
        machine.start()
        for number in acknowledged:
            assert machine.read(1, number)[0] is Code.OK
        assert not machine.serving._keeper.is_in_doubt
        assert machine.add(2, (0,)) is Code.OK
    assert partly


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_after_a_failure_of_the_journal_may_be_cut_at_each_event(mode: ModeSettings) -> None:
    events = retired = 0
    while not retired:
        machine, acknowledged = failed_machine(2, mode)
        machine.host.spawn("close", machine.serving.close())
        events += 1
        for _ in range(events):
            machine.scheduler.step()
        is_needed = machine.serving.failure.is_needed  # type: ignore[union-attr]
        if mode.journal_sync_data and events % 2:
            machine.lose_power()
        else:
            machine.crash()
        if machine.manifest().run is None and events % 2:
            lose_the_journal(machine)
            retired += not is_needed
        machine.start()
        for number in acknowledged:
            assert machine.read(1, number)[0] is Code.OK, events
    assert events > 20


def test_a_journal_that_failed_is_needed_if_the_entry_log_cannot_be_synced() -> None:
    machine, acknowledged = failed_machine()
    storage = machine.serving
    assert unsynced_bytes(machine)

    def fail(_number: int, name: str) -> None:
        machine.disk.error = errno.EIO if name.startswith("sync slot") else 0

    machine.disk.on_operation = fail
    machine.stop()
    machine.disk.on_operation = None
    assert isinstance(storage.failure, JournalFailedError)
    assert storage.failure.is_needed
    assert "repair its device" in storage.failure.message
    run = machine.manifest().run
    assert run is not None
    assert run.journal == "/journal"
    machine.lose_power()
    machine.settings = SMALL
    (name, *_) = sorted(machine.journal_disk.seen_names)
    content = machine.journal_disk.seen_names.pop(name)
    with pytest.raises(DamagedDirectoryError, match=name):
        machine.start()
    machine.crash()
    machine.journal_disk.seen_names[name] = content
    machine.start()
    for number in acknowledged:
        assert machine.read(1, number)[0] is Code.OK


def test_a_journal_that_failed_is_needed_if_something_else_has_failed_too() -> None:
    machine, _ = failed_machine()
    machine.serving._fail(SyncFailedError("cannot sync it", path="slot-00000001"))
    machine.stop()
    assert machine.manifest().run is not None


def test_a_failed_close_of_a_journal_file_ends_a_stop_cleanly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(1, settings=replace(SMALL, mode_settings=MODES[0]))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    close = SimFile.close

    async def fail(self: SimFile) -> None:
        await close(self)
        if self.name.startswith("journal-"):
            raise StorageError(f"cannot close {self.name}: Input/output error", path=self.name)

    monkeypatch.setattr(SimFile, "close", fail)
    storage = machine.serving
    machine.stop()
    assert storage.failure is None
    assert machine.manifest().run is None
    assert machine.disk.holder is machine.journal_disk.holder is None


def test_a_stop_that_fails_unlocks_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, settings=replace(SMALL, mode_settings=MODES[0]))
    machine.start()
    storage = machine.serving

    async def fail() -> None:
        raise StorageError("cannot stop", path="x")

    monkeypatch.setattr(storage.disk, "close", fail)
    machine.scheduler.run(storage.close(), machine.host)
    assert isinstance(storage.failure, StorageError)
    assert machine.disk.holder is machine.journal_disk.holder is None
