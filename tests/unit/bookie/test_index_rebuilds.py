"""Damage in an index and in the records that it points to, and errors of the device meanwhile."""

from __future__ import annotations

from dataclasses import replace

from bookie_server.core.manifest_codec import FileEntry, FileState
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.unit.bookie.test_drops import started

LEDGER, ENTRIES = 1, 20


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
