"""Crashes and power losses in each write mode, and switches of the mode between two starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from bookie_server.core.bookie_run import BookieRun, BookieWriteMode
from bookie_server.core.group_copy import GroupCopy
from bookie_server.core.record import FileIdentity
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import (
    DamagedDirectoryError,
    StorageError,
    SyncFailedError,
)
from bookie_server.ports import Priority
from bookie_server.storage import boot as boots
from bookie_server.storage.modes import setup
from bookie_server.storage.modes.checkpoints import Checkpoints
from bookie_server.storage.modes.redo import ScannedFile
from bookie_server.storage.modes.ring import JournalRing
from bookie_server.storage.modes.setup import TakenOver
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, add_request, unsynced_bytes
from tests.crash.modes import ALL_MODES, SYNCED, Mode
from tests.crash.points import play_all_points
from tests.crash.run import Run
from tests.crash.seeds import SEEDS, play_all
from tests.sim.caught import seeds
from tests.sim.disk import Faults, SimFile, SimFileSystem


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("modes", [SYNCED[1:], SYNCED, ALL_MODES], ids=["journal", "synced", "all"])
def test_storage_keeps_its_promises_in_all_modes(modes: Sequence[Mode], part: int) -> None:
    def play(seed: int) -> Counter[str]:
        run = Run(seed, modes)
        run.run()
        return run.seen

    marks = ["rolls", "replayed_records", "boots_cut_short", "checkpoints", "redone"]
    if modes is ALL_MODES:
        marks.append("doubts")
    play_all(range(part, SEEDS, 2), play, marks)


@pytest.mark.parametrize("kind", ["direct", "synced", "all"])
def test_a_crash_after_each_operation_of_a_run_loses_nothing(kind: str) -> None:
    seen = play_all_points(1, kind)
    assert seen["states"] > 200
    assert seen["in start"] > 0


def first_violation(mutation: str, modes: Sequence[Mode], seeds_max: int = 400) -> str | None:
    for seed in seeds(f"crash {mutation}", seeds_max):
        try:
            Run(seed, modes).run()
        except AssertionError as error:
            return repr(error)
    return None


def test_mutation_read_before_journal_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    init = JournalRing.__init__

    def unsynced(self: JournalRing, *arguments: Any, is_synced: bool) -> None:
        assert is_synced
        init(self, *arguments, is_synced=False)

    monkeypatch.setattr(JournalRing, "__init__", unsynced)
    assert first_violation("read_before_journal_sync", SYNCED[1:])


def test_mutation_mark_before_flush_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoints._checkpoint

    async def early(self: Checkpoints) -> None:
        self._on_synced(self._written)
        await checkpoint(self)

    monkeypatch.setattr(Checkpoints, "_checkpoint", early)
    assert first_violation("mark_before_flush", SYNCED[1:])


def test_mutation_drain_skipped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> TakenOver:
        return TakenOver()

    monkeypatch.setattr(boots, "take_over", nothing)
    assert first_violation("drain_skipped", SYNCED[1:])


def test_mutation_mode_from_settings_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect: a start in direct mode assumes that the last run had this mode too."""

    async def by_settings(shared: Shared, journals: Any) -> TakenOver:
        if shared.settings.mode_settings.write_mode is BookieWriteMode.DIRECT:
            return TakenOver()
        return await setup.take_over(shared, journals)

    monkeypatch.setattr(boots, "take_over", by_settings)
    assert first_violation("mode_from_settings", SYNCED)


def test_mutation_a_journal_redone_before_its_sync_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasync = SimFile.datasync

    async def only_others(self: SimFile, _priority: Priority = Priority.FOREGROUND) -> None:
        if not self.name.startswith("journal-"):
            await datasync(self)

    monkeypatch.setattr(SimFile, "datasync", only_others)
    assert first_violation("a_journal_redone_before_its_sync", SYNCED, 1_000)


def test_control_records_alone_are_synced_by_a_checkpoint() -> None:
    """Otherwise, a journal with control records only would never have a free file."""
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", journal_files=2)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.scheduler.run_for(2 * mode.checkpoint_interval_ms)
    before = machine.serving.counters.checkpoints
    for lac in range(400):
        write = partial(machine.serving.write_lac, 1, lac, KEY)
        assert machine.ask(write)[0] is Code.OK
    assert machine.serving.counters.checkpoints > before
    machine.scheduler.run_for(2 * mode.checkpoint_interval_ms)
    assert unsynced_bytes(machine) == 0


def test_a_bookie_takes_a_full_device_of_the_journal_for_an_error_of_the_start() -> None:
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal")
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.journal_disk.faults.capacity_bytes = SMALL.file_size_bytes
    with pytest.raises(StartupError, match="the journal needs 196608 bytes in /journal"):
        machine.start()
    journal = machine.journal_disk.seen_names
    assert [name for name in journal if name.startswith("journal-")] == []
    machine.crash()
    machine.journal_disk.faults.capacity_bytes = None
    machine.start()
    assert machine.add(1, (0,)) is Code.OK


@pytest.mark.parametrize("place", ["head", "body"])
def test_damage_of_one_copy_loses_no_other_and_is_never_denied(place: str) -> None:
    """A power loss destroys the whole entry log, and a bit of the third copy has flipped."""
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", checkpoint_interval_ms=3_600_000)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    for number in range(6):
        assert machine.add(1, (number,), bytes(600)) is Code.OK
    machine.crash()
    for name, content in machine.disk.seen_names.items():
        if name.startswith("slot-"):
            content.unsynced = []
            content.seen = bytearray(content.durable)
    (journal, *_) = sorted(n for n in machine.journal_disk.seen_names if n.startswith("journal-"))
    data = bytes(machine.journal_disk.seen_names[journal].seen)
    heads = [at for at in range(0, len(data), 512) if data[at : at + 4] == b"LGRP"]
    offset = heads[2] + (20 if place == "head" else 700)
    machine.journal_disk.flip_bit(journal, offset, 3)
    machine.start()
    answers = [machine.read(1, number)[0] for number in range(6)]
    assert answers == [Code.OK] * 2 + [Code.IO_ERROR] + [Code.OK] * 3
    assert machine.read(2, 0)[0] is Code.IO_ERROR  # it may have been in the lost copy


@pytest.mark.parametrize("place", ["head", "body"])
@pytest.mark.parametrize("number", [2, 5])
def test_the_end_mark_of_a_copy_destroys_no_record_whose_own_copy_is_gone(
    place: str, number: int
) -> None:
    """A torn write into a reused journal file may leave one copy, but lose the copy after it.

    Here, a bit has flipped. The records of both copies are in the entry log, and the process was
    killed.
    """
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", checkpoint_interval_ms=3_600_000)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    for entry_id in range(40):
        assert machine.add(1, (entry_id,), bytes(3_000)) is Code.OK
    machine.drop(1)
    machine.reclaim()
    machine.stop()
    machine.start()
    assert machine.serving._keeper.active.is_recycled
    for entry_id in range(6):
        assert machine.add(2, (entry_id,), bytes(600)) is Code.OK
    machine.crash()
    journal = min(n for n in machine.journal_disk.seen_names if n.startswith("journal-"))
    data = bytes(machine.journal_disk.seen_names[journal].seen)
    heads = [at for at in range(0, len(data), 512) if data[at : at + 4] == b"LGRP"]
    offset = heads[number] + (20 if place == "head" else 700)
    machine.journal_disk.flip_bit(journal, offset, 3)
    machine.start()
    assert [machine.read(2, entry_id)[0] for entry_id in range(6)] == [Code.OK] * 6
    assert not machine.serving._keeper.is_in_doubt


@pytest.mark.parametrize("is_synced", [True, False])
def test_no_copy_is_written_after_a_copy_that_failed_in_the_previous_journal_file(
    is_synced: bool,
) -> None:
    """Such a copy would prove the failed copy, and later starts would miss its records forever."""
    machine = Machine(1)
    host, scheduler = machine.host, machine.scheduler
    run = BookieRun("00" * 8, BookieWriteMode.JOURNAL, is_synced, "/journal", 2, 4_096)
    files = SimFileSystem(machine.journal_disk, host)
    ring = scheduler.run(JournalRing.create(files, ["0", "1"], run, host), host)
    outcomes: dict[int, object] = {}

    async def append(number: int) -> None:
        identity = FileIdentity("slot-1", 1, bytes(16))
        try:
            place = await ring.append(identity, 0, (bytes(3_000),), (number, number))
            outcomes[number] = place.number
        except StorageError as error:
            outcomes[number] = error

    host.spawn("first", append(1))
    scheduler.run_until(lambda: ring._offset > 0)
    machine.journal_disk.faults.write_errors = 1
    host.spawn("second", append(2))
    scheduler.run_until(lambda: len(outcomes) == 2)
    assert isinstance(outcomes[1], SyncFailedError)
    assert isinstance(outcomes[2], SyncFailedError)
    assert not machine.journal_disk.seen_names["1"].seen


def test_no_copy_is_written_after_a_failure_during_the_wait_for_a_free_file() -> None:
    mode = ModeSettings(
        BookieWriteMode.JOURNAL, "/journal", journal_files=2, checkpoint_interval_ms=3_600_000
    )
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    ring = machine.serving._mode.ring
    assert ring is not None
    number = 0
    while ring._current == 0 or (left := SMALL.file_size_bytes - ring._offset) >= 15_000:
        assert machine.add(1, (number,), bytes(1_400)) is Code.OK
        number += 1

    def fail(_number: int, name: str) -> None:
        machine.disk.faults.sync_errors = int(name.startswith("sync slot"))

    copies = ring._number
    machine.disk.on_operation = fail
    answers: list[Code] = []
    # Two full groups: the first needs more room than is left, and the second needs less.
    for size in (7_000, left - 7_400, 4_100, 4_100, 7_000):
        machine.serving.add(add_request(1, (number,), bytes(size)), answers.append)
        number += 1
    machine.scheduler.run_until(lambda: len(answers) == 5)
    assert answers == [Code.IO_ERROR] * 5
    assert ring._number == copies
    machine.disk.on_operation = None
    machine.disk.faults = Faults()
    machine.crash()
    machine.start()
    assert not machine.serving._keeper.is_in_doubt


def test_a_start_needs_no_journal_directory_that_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run acknowledged before the sync of its journal, and the number proves its entries."""
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", journal_sync_data=False)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    lock = SimFileSystem.lock

    async def refuse(self: SimFileSystem, *, create: bool = True) -> None:
        if self.disk is machine.journal_disk:
            raise StorageError("cannot use /journal: Permission denied", path="/journal")
        await lock(self, create=create)

    monkeypatch.setattr(SimFileSystem, "lock", refuse)
    machine.settings = replace(SMALL, mode_settings=ModeSettings())
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_start_closes_journal_files_without_copies() -> None:
    """If they were open, their space would stay in use although they are removed."""
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", journal_files=2)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    machine.crash()
    opened: list[SimFileSystem] = []
    opening = SimFileSystem.__init__

    def note(self: SimFileSystem, *arguments: Any, **options: Any) -> None:
        opening(self, *arguments, **options)
        opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimFileSystem, "__init__", note)
        machine.start()
    (journal,) = [files for files in opened if files.disk is machine.journal_disk]
    assert sorted(file.name for file in journal.opened) == sorted(
        name for name in machine.journal_disk.seen_names if name.startswith("journal-")
    )


def journal_machine() -> Machine:
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", journal_files=2)
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    return machine


def test_a_start_without_a_journal_file_is_refused() -> None:
    machine = journal_machine()
    disk = machine.journal_disk
    name = min(name for name in disk.seen_names if name.startswith("journal-"))
    content = disk.seen_names.pop(name)
    with pytest.raises(DamagedDirectoryError, match=name):
        machine.start()
    machine.crash()
    disk.seen_names[name] = content
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_start_is_refused_when_all_journal_files_were_cut_alike() -> None:
    machine = journal_machine()
    for name, content in machine.journal_disk.seen_names.items():
        if name.startswith("journal-"):
            content.allocated = 512
            del content.seen[512:]
    with pytest.raises(DamagedDirectoryError, match="has 512 of 65536 bytes"):
        machine.start()


def test_heads_of_an_earlier_pass_through_a_file_are_not_kept() -> None:
    """There may be hundreds of thousands of such heads."""

    def head(number: int, needed_from: int) -> GroupCopy:
        return GroupCopy(bytes(8), number, number, number, 1, bytes(16), 0, 0, 0, 0, 0, needed_from,
                         number - 1)  # fmt: skip

    scanned = ScannedFile(Mock(), 0)
    for number in range(1_000, 1_010):
        scanned.take(head(number, needed_from=number - 3))
    for number in range(1, 900):
        scanned.take(head(number, needed_from=1))
    assert [copy.number for copy in scanned.copies] == [1_006, 1_007, 1_008, 1_009]
