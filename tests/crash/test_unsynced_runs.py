"""Runs that acknowledge adds before their sync, and the proofs that their entries are not lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import MAGIC
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import DiskFullError, SyncFailedError
from bookie_server.ports import Priority
from bookie_server.storage.journal import GROUP_RECORDS_MAX
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.modes.writers import HAS_FAILED
from ledgerlog_spark.model import Code
from tests.crash.invariants import check_origins
from tests.crash.machine import KEY, SMALL, Machine, add_request, unsynced_bytes
from tests.sim.disk import Faults, SimNumber

RUN = JournalRecordKind.RUN


UNSYNCED = [
    ModeSettings(BookieWriteMode.UNJOURNALED, checkpoint_interval_ms=3_600_000),
    ModeSettings(
        BookieWriteMode.JOURNAL,
        "/journal",
        journal_sync_data=False,
        checkpoint_interval_ms=3_600_000,
    ),
]


def weak_machine(seed: int = 1, mode: ModeSettings = UNSYNCED[0]) -> Machine:
    machine = Machine(seed, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    return machine


def start_in_doubt(machine: Machine, reason: str) -> None:
    """Start, and check that nothing is denied because of this reason."""
    epoch = machine.manifest().doubt.epoch
    machine.start()
    assert machine.serving.doubt.epoch == epoch + 1
    assert any(reason in each for each in machine.serving.found_losses)
    assert machine.manifest().doubt == machine.serving.doubt
    for ledger_id in (1, 99):
        assert machine.read(ledger_id, 50)[0] is Code.IO_ERROR
        assert machine.read(ledger_id, -1)[0] is Code.IO_ERROR


Ask = Callable[[Machine], object]


@pytest.mark.parametrize(
    "ask",
    [
        lambda machine: machine.fence(1),
        lambda machine: machine.drop(1),
        lambda machine: machine.read(1, 0, is_recovery=True),
        lambda machine: machine.ask(lambda done: machine.serving.write_lac(1, 0, KEY, done)),
        lambda machine: machine.add(1, (1,), is_recovery=True),
        lambda machine: machine.add(1, (0,), is_recovery=True),
    ],
    ids=["fence", "drop", "recovery read", "LAC", "recovery add", "repeated recovery add"],
)
def test_without_syncs_of_adds_everything_else_is_answered_after_a_sync(ask: Ask) -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    assert unsynced_bytes(machine)
    began_us = machine.scheduler.now_us
    ask(machine)
    assert unsynced_bytes(machine) == 0
    assert machine.scheduler.now_us - began_us < 1_000_000, "nobody requested the checkpoint"


def test_mutation_control_unsynced_when_weak_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = LedgerStorage._on_stored
    monkeypatch.setattr(
        LedgerStorage, "_on_stored", lambda self, group, _is_synced: stored(self, group, True)
    )
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    assert machine.ask(lambda done: machine.serving.write_lac(1, 0, KEY, done))[0] is Code.OK
    assert unsynced_bytes(machine)


def test_a_file_is_synced_before_the_next_file_gets_a_record() -> None:
    machine = weak_machine()
    first = machine.serving._keeper.active
    for number in range(40):
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
        if machine.serving._keeper.active is not first:
            break
    else:
        raise AssertionError("no roll")
    content = machine.disk.seen_names[first.entry.slot]
    assert [data for _, data in content.unsynced if data[:4] == MAGIC and data[5] == RUN] == []


def test_lost_pages_under_a_valid_proof_are_noticed() -> None:
    """The process was killed. The system continues, but it has dropped pages that it could not
    write.

    The last record is lost. Only the proof shows this.
    """
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    assert machine.add(1, (1,)) is Code.OK
    active = machine.serving._keeper.active
    machine.crash()
    content = machine.disk.seen_names[active.entry.slot]
    offset, data = content.unsynced.pop()
    content.seen[offset : offset + len(data)] = bytes(len(data))
    start_in_doubt(machine, "has lost records")


def test_pages_that_only_the_cache_has_prove_nothing() -> None:
    """A sync failed, and the process was killed before it could record this.

    The system counts the lost pages as written, so the next sync succeeds.
    """
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    active = machine.serving._keeper.active
    machine.crash()
    machine.disk.seen_names[active.entry.slot].unsynced.clear()
    start_in_doubt(machine, "has lost records")


@pytest.mark.parametrize("fault", ["sync_errors", "write_errors"])
def test_a_run_whose_write_or_sync_failed_is_not_trusted(fault: str) -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    setattr(machine.disk.faults, fault, 1)
    machine.add(1, (1,))
    machine.fence(1)
    machine.crash()
    machine.disk.faults = Faults()
    start_in_doubt(machine, "failed")


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_failed_write_costs_nothing_if_all_earlier_records_are_synced(*, is_fenced: bool) -> None:
    """The add is the first one after an idle time. The fence is synced in mode `direct`."""
    interval_ms = 100
    machine = weak_machine(mode=replace(UNSYNCED[0], checkpoint_interval_ms=interval_ms))
    assert machine.add(1, (0,)) is Code.OK
    machine.scheduler.run_for(3 * interval_ms)
    if is_fenced:
        assert machine.fence(2)[0].is_absent
    active = machine.serving._keeper.active.entry.slot

    def fail(_number: int, name: str) -> None:
        machine.disk.error = errno.EIO if name == f"write {active}" else 0

    machine.disk.on_operation = fail
    assert machine.add(1, (1,)) is Code.IO_ERROR
    assert machine.manifest().run == machine.serving._mode.run
    machine.disk.on_operation = None
    machine.crash()
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_failed_checkpoint_is_not_forgotten_when_a_later_write_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failed sync, the next sync succeeds without the pages that were lost.

    The number keeps the failure at each moment, because a SIGKILL may come at any.
    """
    numbers: list[int] = []
    set_number = SimNumber.set

    def noted(self: SimNumber, number: int) -> None:
        numbers.append(number)
        set_number(self, number)

    monkeypatch.setattr(SimNumber, "set", noted)

    def play(seed: int) -> None:
        numbers.clear()
        machine = weak_machine(seed)
        assert machine.add(1, (0,)) is Code.OK
        machine.disk.faults.sync_errors = 1
        machine.serving._mode.checkpoints.request()  # type: ignore[union-attr]
        answers: list[Code] = []
        machine.serving.add(add_request(1, (1,)), answers.append)
        machine.scheduler.run_until(lambda: bool(answers and machine.serving.failure))
        machine.scheduler.run_for(10)  # until the write has ended too
        assert set(numbers[numbers.index(HAS_FAILED) :]) == {HAS_FAILED}
        assert [number.get() for number in machine.disk.numbers.values()] == [HAS_FAILED]
        machine.crash()
        start_in_doubt(machine, "failed")

    for seed in range(20):  # in some of them, the write ends after the sync
        play(seed)


OTHER_OPERATIONS = [
    "write ledgers",
    "sync ledgers",
    "write MANIFEST.new",
    "sync MANIFEST.new",
    "sync_directory",
    "write slot",
    "sync slot",
]


@pytest.mark.parametrize("operation", OTHER_OPERATIONS)
def test_a_failure_of_a_file_without_acknowledged_entries_does_not_cost_the_bookie(
    operation: str,
) -> None:
    """The process is killed after the failure; the slot is that of the next file."""
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK

    def fail(_number: int, name: str) -> None:
        unfinished = {file.entry.slot for file in machine.serving._keeper.opened}
        if name.startswith(operation) and name.partition(" ")[2] not in unfinished:
            machine.disk.error = errno.EIO

    machine.disk.on_operation = fail
    stored = 1
    while machine.add(1, (stored,), bytes(3_000)) is Code.OK:
        stored += 1
        assert stored < 100
    assert isinstance(machine.serving.failure, SyncFailedError)
    machine.disk.on_operation, machine.disk.error = None, 0
    machine.crash()
    machine.start()
    assert [machine.read(1, number)[0] for number in range(stored)] == [Code.OK] * stored


def test_a_full_device_at_a_group_does_not_cost_the_bookie() -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK

    def fill(_number: int, name: str) -> None:
        machine.disk.error = errno.ENOSPC if name.startswith("write slot") else 0

    machine.disk.on_operation = fill
    assert machine.add(1, (1,)) is Code.IO_ERROR
    assert isinstance(machine.serving.failure, DiskFullError)
    machine.disk.on_operation = None
    machine.crash()
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_journal_that_proves_nothing_does_not_cost_the_bookie_when_it_fails() -> None:
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", journal_sync_data=False)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.journal_disk.faults.write_errors = 1
    assert machine.add(1, (1,)) is Code.IO_ERROR
    machine.crash()
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_failed_sync_after_another_failure_is_recorded() -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK

    def fail(_number: int, name: str) -> None:
        if name.startswith("sync slot"):
            machine.serving._fail(SyncFailedError("cannot sync it", path="MANIFEST.new"))
            machine.disk.error = errno.EIO

    machine.disk.on_operation = fail
    assert machine.fence(1)[0] is Code.IO_ERROR
    machine.scheduler.run_for(100)
    machine.disk.on_operation = None
    machine.crash()
    start_in_doubt(machine, "failed")


def test_a_sync_that_fails_at_a_start_is_not_forgotten_at_the_next_start() -> None:
    """The page cache still has the entries, but the next sync writes nothing."""
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()

    def fail(_number: int, name: str) -> None:
        machine.disk.error = errno.EIO if name.startswith("sync slot") else 0

    machine.disk.on_operation = fail
    with pytest.raises(SyncFailedError):
        machine.start()
    machine.disk.on_operation = None
    machine.crash()
    start_in_doubt(machine, "failed")


def test_a_full_device_at_a_clean_stop_does_not_cost_the_bookie() -> None:
    """At this time, all entries are synced, and only the MANIFEST has no room."""
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK

    def fill(_number: int, name: str) -> None:
        machine.disk.error = errno.ENOSPC if name == "write MANIFEST.new" else 0

    machine.disk.on_operation = fill
    storage = machine.serving
    machine.scheduler.run(storage.close(), machine.host)
    assert isinstance(storage.failure, DiskFullError)
    machine.disk.on_operation = None
    machine.crash()
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_the_proof_of_a_run_covers_the_last_record_of_a_group() -> None:
    machine = weak_machine()
    answers: list[Code] = []
    for number in range(5):
        machine.serving.add(add_request(1, (number,)), answers.append)
    machine.scheduler.run_until(lambda: len(answers) == 5)
    (proof,) = machine.disk.numbers.values()
    assert proof.get() == machine.serving._shared.sequences.next_sequence - 1


def test_kills_of_starts_leave_one_number_and_a_clean_stop_leaves_none() -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK

    async def opening() -> None:
        await machine.opening()

    for events in range(1, 600, 2):
        machine.crash()
        machine.host.spawn("start", opening())
        for _ in range(events):
            machine.scheduler.step()
        assert len(machine.disk.numbers) <= 1
    machine.crash()
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK
    machine.stop()
    assert machine.disk.numbers == {}


def test_a_start_in_another_mode_removes_the_number() -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    machine.settings = SMALL
    machine.start()
    assert machine.disk.numbers == {}
    assert machine.read(1, 0)[0] is Code.OK


def test_the_number_of_another_run_proves_nothing() -> None:
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    (number,) = machine.disk.numbers.values()
    number.run_id = "00" * 8
    start_in_doubt(machine, "missing")


@pytest.mark.parametrize("mode", UNSYNCED)
def test_a_power_loss_before_the_first_add_costs_nothing(mode: ModeSettings) -> None:
    machine = weak_machine(mode=mode)
    machine.lose_power()
    machine.start()
    assert machine.add(1, (0,)) is Code.OK


@pytest.mark.parametrize("mode", UNSYNCED)
def test_a_power_loss_costs_an_idle_bookie_nothing_and_a_busy_one_all(mode: ModeSettings) -> None:
    interval_ms = 100
    machine = weak_machine(mode=replace(mode, checkpoint_interval_ms=interval_ms))
    for number in range(3):
        assert machine.add(1, (number,)) is Code.OK
        machine.scheduler.run_for(3 * interval_ms)
        machine.lose_power()
        machine.start()
        assert machine.read(1, number)[0] is Code.OK
    assert machine.add(1, (3,)) is Code.OK
    machine.lose_power()
    start_in_doubt(machine, "missing")


def test_a_control_record_of_an_idle_bookie_is_written_with_its_sync() -> None:
    machine = weak_machine()
    groups: list[bool] = []
    complete = machine.serving._journal._complete

    def note(group: list[JournalRecord], *, is_synced: bool) -> None:
        groups.append(is_synced)
        complete(group, is_synced=is_synced)

    machine.serving._journal._complete = note
    write = partial(machine.serving.write_lac, 1, 0, KEY)
    assert machine.ask(write)[0] is Code.OK
    assert machine.add(1, (0,)) is Code.OK
    assert machine.ask(write)[0] is Code.OK
    assert groups == [True, False, False]


@pytest.mark.parametrize("mode", UNSYNCED)
def test_no_manifest_has_a_deletion_that_a_power_loss_can_take_from_an_idle_bookie(
    mode: ModeSettings,
) -> None:
    """Otherwise a later record would get its sequence, and would count as deleted."""
    machine = weak_machine(mode=replace(mode, checkpoint_interval_ms=100))
    assert machine.add(1, (0,)) is Code.OK
    machine.scheduler.run_for(1_000)
    storage = machine.serving
    assert machine.manifest().run == storage._mode.run.while_synced()
    opened = storage._keeper.active.handle.opened
    assert opened is not None
    sync = opened.datasync

    async def slow_sync(priority: Priority = Priority.FOREGROUND) -> None:
        await machine.host.sleep(100)
        await sync(priority)

    opened.datasync = slow_sync
    storage.drop(1, lambda _code: None)
    machine.scheduler.run_until(lambda: storage._states[1].is_dropped)
    machine.scheduler.run(storage._keeper.commit_soon(), machine.host)
    machine.lose_power()
    machine.start()
    check_origins(machine)
    assert machine.add(1, (0,), is_recovery=True) is Code.OK
    assert machine.read(1, 0)[0] is Code.OK


def test_after_a_lost_tombstone_no_later_record_counts_as_deleted() -> None:
    """The MANIFEST of a busy run has a tombstone whose record is not synced."""
    machine = weak_machine()
    assert machine.add(1, (0,)) is Code.OK
    storage = machine.serving
    opened = storage._keeper.active.handle.opened
    assert opened is not None

    async def no_sync(priority: Priority = Priority.FOREGROUND) -> None:
        await machine.host.future()

    opened.datasync = no_sync
    storage.drop(1, lambda _code: None)
    machine.scheduler.run_until(lambda: storage._states[1].tombstone > 0)
    machine.host.spawn("commit", storage._keeper.commit_soon())
    machine.scheduler.run_for(100)
    assert machine.stored_states()[1].tombstone
    machine.crash()
    for name, content in machine.disk.seen_names.items():
        if name.startswith("slot-"):
            content.unsynced = []
            content.seen = bytearray(content.durable)
    machine.disk.numbers.clear()
    machine.start()
    check_origins(machine)
    assert machine.add(1, (1,), is_recovery=True) is Code.OK
    assert machine.read(1, 1)[0] is Code.OK


def test_the_manifest_is_written_twice_for_each_busy_time() -> None:
    interval_ms = 100
    machine = weak_machine(mode=replace(UNSYNCED[0], checkpoint_interval_ms=interval_ms))
    for entry_id in range(0, 15, 5):
        before = machine.manifest().generation
        for number in range(entry_id, entry_id + 5):
            assert machine.add(1, (number,)) is Code.OK
        machine.fence(2)
        assert machine.manifest().generation == before + 1
        assert machine.manifest().run == machine.serving._mode.run
        machine.scheduler.run_for(100 * interval_ms)
        assert machine.manifest().generation == before + 2
        assert machine.manifest().run == machine.serving._mode.run.while_synced()
        # A control record is answered after its sync.
        assert machine.ask(lambda done: machine.serving.write_lac(1, 0, KEY, done))[0] is Code.OK
        assert machine.manifest().generation == before + 2


def test_without_room_for_a_manifest_adds_are_answered_in_order_after_their_sync() -> None:
    machine = weak_machine()

    def fill(_number: int, name: str) -> None:
        machine.disk.error = errno.ENOSPC if name == "write MANIFEST.new" else 0

    machine.disk.on_operation = fill
    answers: list[tuple[int, Code, int]] = []

    def send(number: int) -> None:
        def done(code: Code) -> None:
            answers.append((number, code, unsynced_bytes(machine)))

        machine.serving.add(add_request(1, (number,), bytes(9_000)), done)

    for number in range(3):  # each is a full group
        send(number)
    machine.scheduler.run_until(lambda: len(answers) == 3)
    assert answers == [(number, Code.OK, 0) for number in range(3)]
    machine.disk.on_operation, machine.disk.error = None, 0
    machine.lose_power()
    machine.start()
    assert [machine.read(1, number)[0] for number in range(3)] == [Code.OK] * 3


def test_a_bookie_with_an_add_in_each_interval_writes_no_manifest() -> None:
    interval_ms = 100
    machine = weak_machine(mode=replace(UNSYNCED[0], checkpoint_interval_ms=interval_ms))
    assert machine.add(1, (0,)) is Code.OK
    before = machine.manifest().generation
    for number in range(1, 12):
        machine.scheduler.run_for(interval_ms // 2)
        assert machine.add(1, (number,)) is Code.OK
        machine.fence(number + 1)  # everything is synced at the end of the interval
        assert unsynced_bytes(machine) == 0
        machine.scheduler.run_for(interval_ms // 2)
    assert machine.manifest().generation == before


def test_control_records_do_not_overtake_adds_that_wait_for_a_manifest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = weak_machine()
    journal = machine.serving._journal
    complete, ended = journal._complete, list[int]()

    def note(group: list[JournalRecord], *, is_synced: bool) -> None:
        ended.append(group[-1].ticket)
        complete(group, is_synced=is_synced)

    monkeypatch.setattr(journal, "_complete", note)
    answers: list[Code] = []
    machine.serving.add(add_request(1, (0,), bytes(9_000)), answers.append)
    for lac in range(GROUP_RECORDS_MAX):  # a full group
        machine.serving.write_lac(2, lac, KEY, answers.append)
    machine.scheduler.run_until(lambda: len(answers) == 1 + GROUP_RECORDS_MAX)
    assert len(ended) > 1
    assert ended == sorted(ended)
