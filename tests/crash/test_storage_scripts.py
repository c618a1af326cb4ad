"""One script for each danger of the storage that only a certain order of events shows.

`tests/mutation/design.py` names the mistake with which each script fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.group_copy import MAGIC as COPY_MAGIC
from bookie_server.core.requests import StoredRead
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import ForeignJournalError
from bookie_server.ports import Standing
from ledgerlog_spark.model import Code
from tests.crash.invariants import check_origins
from tests.crash.machine import SMALL, Machine, add_request, entry
from tests.sim.disk import SECTOR, Content

JOURNAL = ModeSettings(BookieWriteMode.JOURNAL, "/journal", checkpoint_interval_ms=3_600_000)
UNJOURNALED = ModeSettings(BookieWriteMode.UNJOURNALED, checkpoint_interval_ms=3_600_000)


class PowerCutError(Exception):
    """The moment of a power loss."""


def started(mode: ModeSettings | None = None, **options: Any) -> Machine:
    settings = replace(SMALL, mode_settings=mode or ModeSettings(), **options)
    machine = Machine(1, settings=settings)
    machine.start()
    return machine


def lose_entry_log(machine: Machine) -> None:
    """Lose power, and all unsynced data of the entry-log files."""
    machine.crash()
    for name, content in machine.disk.seen_names.items():
        if name.startswith("slot-"):
            content.unsynced = []
            content.seen = bytearray(content.durable)
    machine.disk.numbers.clear()


def test_no_origin_is_used_twice_when_a_start_copies_records() -> None:
    """The start copies the last group without its dropped entries, so it needs fewer sequences."""
    machine = started()
    answers: list[Code] = []
    storage = machine.serving
    storage.add(add_request(1, (0,)), answers.append)
    storage.add(add_request(1, (1,)), answers.append)
    storage.add(add_request(1, (2,)), answers.append)
    storage.drop(1, answers.append)
    storage.add(add_request(2, (0,), b"older"), answers.append)
    machine.scheduler.run_until(lambda: len(answers) == 5)
    assert set(answers) == {Code.OK}
    machine.crash()
    machine.start()
    assert machine.serving.counters.boot_rewritten_records == 2
    check_origins(machine)
    assert machine.add(2, (0,), b"newer", is_recovery=True) is Code.OK
    assert machine.read(2, 0) == (Code.OK, entry(2, 0, b"newer"))


def test_a_fence_in_an_appended_part_of_the_states_outlives_its_record() -> None:
    """A clean stop frees the file with the record of the fence."""
    machine = started()
    assert machine.fence(1)[0].is_absent
    machine.scheduler.run(machine.serving._keeper.commit_soon(), machine.host)
    machine.stop()
    machine.start()
    assert machine.serving.is_fenced(1)


def test_a_ledger_that_is_forgotten_during_a_commit_stays_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The removal of its state, and the largest id of forgotten ledgers, are in one MANIFEST."""
    machine = started(tombstone_keep_s=1)
    assert machine.add(1, (0,)) is Code.OK
    machine.metadata.standings[1] = Standing.NOT_WRITABLE
    assert machine.drop(1) is Code.OK
    machine.stop()
    machine.start()
    machine.reclaim()
    machine.host.wall_offset_ms += 2_000
    keeper = machine.serving._keeper
    composed: list[object] = []
    compose = keeper._compose

    def note(*arguments: Any, **options: Any) -> Any:
        composed.append(arguments)
        return compose(*arguments, **options)

    monkeypatch.setattr(keeper, "_compose", note)
    machine.host.spawn("commit", keeper.commit_soon())
    machine.scheduler.run_until(lambda: bool(composed))
    assert machine.scheduler.run(machine.serving._drops.forget(), machine.host) == 1
    machine.scheduler.run_for(50)
    machine.lose_power()
    machine.start()
    assert machine.add(1, (9,)) is Code.FENCED


@pytest.mark.parametrize("mode", [ModeSettings(), JOURNAL], ids=["direct", "journal"])
def test_an_entry_is_read_only_after_its_sync(mode: ModeSettings) -> None:
    machine = started(mode)
    answers: list[Code] = []
    early: list[Code] = []

    def shown(code: Code, _data: bytes | None) -> None:
        if not answers:
            early.append(code)

    machine.serving.add(add_request(1, (0,)), answers.append)
    while not answers:
        machine.serving.read(StoredRead(1, 0), shown)
        assert machine.scheduler.step()
    assert set(early) == {Code.NO_ENTRY}
    assert machine.read(1, 0)[0] is Code.OK


def test_a_journal_file_is_released_only_after_the_sync_of_its_records() -> None:
    machine = started(JOURNAL)
    for number in range(3):
        assert machine.add(1, (number,)) is Code.OK
    mode = machine.serving._mode
    assert mode.ring is not None
    assert mode.checkpoints is not None
    ring = mode.ring
    released: list[int] = []

    def note(_number: int, name: str) -> None:
        if name.startswith("sync slot"):
            released.append(ring._released)

    machine.disk.on_operation = note
    mode.checkpoints.request()
    machine.scheduler.run_for(100)
    assert released
    assert set(released) == {0}, "not before the sync"
    assert ring._released > 0


def test_a_start_in_another_mode_finds_what_is_only_in_the_journal() -> None:
    machine = started(JOURNAL)
    for number in range(4):
        assert machine.add(1, (number,)) is Code.OK
    lose_entry_log(machine)
    machine.settings = SMALL
    machine.start()
    assert [machine.read(1, number)[0] for number in range(4)] == [Code.OK] * 4


def test_a_start_in_direct_mode_does_not_trust_a_run_without_syncs() -> None:
    machine = started(UNJOURNALED)
    assert machine.add(1, (0,)) is Code.OK
    lose_entry_log(machine)
    machine.settings = SMALL
    machine.start()
    assert machine.serving.doubt.epoch == 1
    assert machine.read(1, 0)[0] is Code.IO_ERROR, "it was acknowledged"


def test_a_bookie_lists_only_what_is_durable() -> None:
    """A worker deletes a mark after it has read the lists."""
    machine = started(UNJOURNALED)
    assert machine.add(1, (0,)) is Code.OK
    assert machine.held(1) == [(0, 0)]
    lose_entry_log(machine)
    machine.settings = SMALL
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def begun_again() -> tuple[Machine, int]:
    """A bookie whose first journal file has newer copies than its second one; its next entry."""
    machine = started(replace(JOURNAL, journal_files=2))
    ring = machine.serving._mode.ring
    assert ring is not None
    number = 0
    seen: list[int] = []
    while seen[-10:] != [0] * 10 or 1 not in seen:
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
        seen.append(ring._current)
        number += 1
    return machine, number


def newest_copies(machine: Machine) -> list[tuple[str, int]]:
    """The copies in journal files in ascending order of their numbers: file and offset."""
    copies: dict[int, tuple[str, int]] = {}
    for name, content in machine.journal_disk.seen_names.items():
        for at in range(0, len(content.seen), SECTOR):
            if content.seen[at : at + 4] == COPY_MAGIC:
                copies[int.from_bytes(content.seen[at + 16 : at + 24], "big")] = name, at
    return [copies[number] for number in sorted(copies)]


def test_copies_are_redone_in_their_order_after_the_journal_began_again() -> None:
    machine, number = begun_again()
    lose_entry_log(machine)
    machine.start()
    assert [machine.read(1, each)[0] for each in range(number)] == [Code.OK] * number
    assert not machine.serving._keeper.is_in_doubt


def test_the_newest_copy_proves_the_one_before_it_after_the_journal_began_again() -> None:
    """The power failed during the last write, and the copy before it has rotted."""
    machine, number = begun_again()
    lose_entry_log(machine)
    for name, at in newest_copies(machine)[-2:]:
        machine.journal_disk.flip_bit(name, at + SECTOR + 300, 3)
    machine.start()
    assert [machine.read(1, each)[0] for each in range(number - 2)] == [Code.OK] * (number - 2)
    assert machine.read(1, number - 2)[0] is Code.IO_ERROR, "it was acknowledged"


def test_a_power_loss_during_a_start_takes_no_copy_that_the_start_has_used() -> None:
    """A SIGKILL came before the sync of the newest copy, and it proves the copy before it.

    That copy has rotted, and so has the record in the entry log. The first start writes the newest
    record into the entry log. Without its copy, the next start would take the rot for a torn write.
    """
    machine = started(JOURNAL, file_size_bytes=1 << 18)
    for number in range(3):
        assert machine.add(1, (number,), bytes(600)) is Code.OK
    answers: list[Code] = []
    for number in (3, 4):  # two full groups, which are written one after the other
        machine.serving.add(add_request(1, (number,), bytes(17_000)), answers.append)
    contents = machine.journal_disk.seen_names.values()
    machine.scheduler.run_until(
        lambda: bool(answers) and any(content.unsynced for content in contents)
    )
    assert answers == [Code.OK]
    piece = machine.serving._keeper.active.index.find(1, 3)
    assert piece is not None
    assert piece.target.identity is not None
    slot, offset = piece.target.identity.name, piece.target.offset
    machine.crash()
    (name, at) = newest_copies(machine)[-2]
    machine.journal_disk.flip_bit(name, at + SECTOR + 300, 3)
    machine.disk.seen_names[slot].seen[offset + 20] ^= 1
    machine.disk.seen_names[slot].unsynced.append(
        (offset, bytes(machine.disk.seen_names[slot].seen[offset : offset + SECTOR]))
    )

    def cut(_number: int, name: str) -> None:
        if name.startswith("open ledgers") and machine.disk.counters.writes:
            raise PowerCutError

    machine.disk.counters.writes = 0
    machine.disk.on_operation = cut
    with pytest.raises(PowerCutError):
        machine.start()
    machine.disk.on_operation = None
    machine.host.kill()
    for disk in machine.disks:
        for content in disk.seen_names.values():
            content.unsynced = []
            content.seen = bytearray(content.durable)
        disk.holder = None
    machine._replace_host()
    machine.start()
    assert [machine.read(1, each)[0] for each in range(3)] == [Code.OK] * 3
    assert machine.read(1, 3)[0] is Code.IO_ERROR, "it was acknowledged"


def test_nothing_is_written_after_a_stop_during_a_compaction() -> None:
    machine = started(recent_bytes_max=1)
    for number in range(40):
        for ledger_id in (1, 2):
            assert machine.add(ledger_id, (number,), bytes(1_500)) is Code.OK
    assert machine.drop(1) is Code.OK
    storage = machine.serving
    storage.compactor.request()
    handover = storage._keeper.handover
    machine.scheduler.run_until(lambda: handover.draft is not None)
    machine.scheduler.run(storage.close(), machine.host)
    assert not storage.compactor._is_running
    operations = machine.disk.counters.operations
    machine.scheduler.run_for(1_000)
    assert machine.disk.counters.operations == operations


def test_the_journal_of_the_last_run_is_removed_after_the_commit_without_it() -> None:
    machine = started(JOURNAL)
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    before = machine.manifest().run
    assert before is not None
    removed: list[str] = []

    def note(_number: int, name: str) -> None:
        if name.startswith("remove journal"):
            run = machine.manifest().run
            assert run is None or run.run_id != before.run_id
            removed.append(name)

    machine.journal_disk.on_operation = note
    machine.start()
    assert len(removed) == JOURNAL.journal_files


def test_the_journal_directory_of_another_bookie_is_refused() -> None:
    machine = Machine(1, settings=replace(SMALL, mode_settings=JOURNAL))
    machine.journal_disk.set_name("journal-0123456789abcdef-0123456789abcdef-00", Content())
    with pytest.raises(ForeignJournalError, match="belongs to another directory"):
        machine.start()
