"""Damage in an index and in the records that it points to, and errors of the device meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.requests import StoredRead
from bookie_server.storage import slices
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.unit.bookie.test_drops import started

LEDGER, ENTRIES = 1, 20
LEDGERS = range(1, 9)


def with_a_damaged_index() -> tuple[Machine, FileEntry]:
    """A stopped bookie with one finished file, and a flipped bit in the only block of its index."""
    machine = started(settings=replace(SMALL, recent_bytes_max=1))
    for number in range(ENTRIES):
        assert machine.add(LEDGER, (number,), b"%d" % number * 100) is Code.OK
    machine.stop()
    (file,) = (file for file in machine.manifest().files if file.state is FileState.FINISHED)
    content = machine.disk.durable_names[file.slot].durable
    end = max(at for at in range(len(content)) if content[at])
    assert end > file.finish_offset
    machine.disk.flip_bit(file.slot, end, 0)
    return machine, file


def test_a_rebuild_that_met_a_read_error_is_tried_again_at_the_next_read() -> None:
    machine, _ = with_a_damaged_index()
    machine.start()
    doubts = machine.serving._health.files_in_doubt
    assert machine.read(LEDGER, 3)[0] is Code.IO_ERROR
    assert doubts
    machine.disk.faults.read_errors = 1
    machine.scheduler.run_for(1_000)
    assert machine.disk.faults.read_errors == 0, "the rebuild met it"
    assert doubts
    assert machine.read(LEDGER, 3)[0] is Code.IO_ERROR
    machine.scheduler.run_until(lambda: not doubts)
    for number in range(ENTRIES):
        assert machine.read(LEDGER, number) == (
            Code.OK,
            entry(LEDGER, number, b"%d" % number * 100),
        )
    assert machine.read(LEDGER, ENTRIES)[0] is Code.NO_ENTRY


def test_reads_during_a_rebuild_get_no_older_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older copies are in a file whose index is intact."""
    monkeypatch.setattr(slices, "UNITS_PER_TURN", 1)
    machine = started(settings=replace(SMALL, recent_bytes_max=1))
    files: tuple[FileEntry, ...] = ()
    for payload in (b"older", b"newer"):
        for ledger_id in LEDGERS:
            assert machine.add(ledger_id, (0,), payload, is_recovery=True) is Code.OK
        machine.stop()
        files = machine.manifest().files
        machine.start()
    newest = max(files, key=lambda file: file.file_id)
    end = len(bytes(machine.disk.durable_names[newest.slot].durable).rstrip(b"\0")) - 1
    machine.crash()
    machine.disk.flip_bit(newest.slot, end, 0)
    machine.start()
    doubts = machine.serving._health.files_in_doubt
    assert machine.read(1, 0)[0] is Code.IO_ERROR
    answers: list[tuple[Code, bytes | None]] = []
    give_way = Shared.give_way

    async def read_all(shared: Shared) -> None:
        for ledger_id in LEDGERS:
            machine.serving.read(StoredRead(ledger_id, 0), lambda *answer: answers.append(answer))
        await give_way(shared)

    monkeypatch.setattr(Shared, "give_way", read_all)
    machine.scheduler.run_until(lambda: not doubts)
    monkeypatch.undo()
    machine.scheduler.run_for(100)
    assert len(answers) > 10 * len(LEDGERS)
    for code, data in answers:
        assert code is Code.IO_ERROR or (code is Code.OK and data and data.endswith(b"newer"))


def test_an_entry_whose_bytes_and_index_are_damaged_is_not_absent() -> None:
    machine, file = with_a_damaged_index()
    at = machine.disk.seen_names[file.slot].seen.find(entry(LEDGER, 7, b"7" * 100))
    machine.disk.flip_bit(file.slot, at + 50, 2)
    for _ in range(2):
        machine.start()
        assert machine.read(LEDGER, 3)[0] is Code.IO_ERROR
        machine.scheduler.run_until(lambda: not machine.serving._health.files_in_doubt)
        assert machine.read(LEDGER, 7)[0] is Code.IO_ERROR
        assert machine.held(LEDGER) == [(0, ENTRIES - 1)]
        assert machine.read(LEDGER, 3)[0] is Code.OK
        assert machine.read(LEDGER, ENTRIES)[0] is Code.NO_ENTRY, "no record is lost"
        machine.stop()
