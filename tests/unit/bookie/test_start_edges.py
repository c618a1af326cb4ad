"""The records that a start finds in the files of a bookie, and those that it keeps."""

from __future__ import annotations

from bookie_server.core.replay_decision import FileScan
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.replay import Scanner
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine
from tests.unit.bookie.test_drops import started


def keeper_of(machine: Machine) -> FileKeeper:
    return machine.serving._keeper


def scanned(machine: Machine, first_sequence: int) -> FileScan:
    """The records of the active file, of which the first one should have a sequence."""
    active = keeper_of(machine).active
    scanner = Scanner(active.handle, active.entry, active.entry.size_bytes)
    return machine.scheduler.run(scanner.scan(first_sequence), machine.host)


def test_a_scan_notices_each_record_that_is_missing_or_too_old() -> None:
    machine = started()
    for number in range(3):
        assert machine.add(1, (number,)) is Code.OK
    found = [record.sequence for record in scanned(machine, 1).records]
    assert found[0] == 1
    early = scanned(machine, 0)
    assert (early.gaps[0].offset, early.gaps[0].sequence) == (RECORDS_START, 0)
    late = scanned(machine, 2)
    assert [record.sequence for record in late.records] == found[1:]
    assert (late.gaps[0].offset, late.gaps[0].sequence) == (RECORDS_START, 2)


def test_records_that_a_start_copies_prove_only_what_was_synced_before() -> None:
    machine = started()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    machine.start()
    assert machine.serving.counters.boot_rewritten_records == 1
    (copy,) = scanned(machine, keeper_of(machine).active.first_sequence).records
    assert copy.durable_upto < copy.sequence


def test_a_file_that_a_start_finishes_names_ledgers_without_entries() -> None:
    machine = started()
    for ledger_id in (1, 2):
        assert machine.add(ledger_id, (0,)) is Code.OK
    assert machine.drop(1) is Code.OK
    machine.scheduler.run_for(200)
    machine.crash()
    machine.start()
    (file,) = keeper_of(machine).finished
    assert file.has(1)
    assert file.has(2)


def test_what_a_start_replays_is_in_the_ledger_states() -> None:
    """A clean stop frees the file with the record of the fence."""
    machine = started()
    assert machine.fence(1)[0].is_absent
    machine.scheduler.run_for(200)
    machine.crash()
    machine.start()
    machine.check_states()
    machine.stop()
    machine.start()
    assert machine.serving.is_fenced(1)
