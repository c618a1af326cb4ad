"""Directories that earlier versions wrote are read by every later one."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.directory_identity import DirectoryIdentity, identity_of
from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import FileState, decode_manifest
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import MovedDirectoryError
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine
from tests.sim.disk import Content, SimDisk, SimNumber

GOLDEN = Path(__file__).parents[2] / "golden"


def copied(fixture: Path, expected: dict[str, Any]) -> Machine:
    machine = Machine(99)
    machine.is_new = False
    put(machine.disk, fixture / "data", expected["sizes"])
    return machine


def put(disk: SimDisk, directory: Path, sizes: dict[str, int]) -> None:
    """Put the files of a directory on a device, with their original sizes."""
    for name, size in sizes.items():
        content = Content()
        content.seen[:] = (directory / name).read_bytes().ljust(size, b"\0")
        content.durable[:] = content.seen
        disk.seen_names[name] = disk.durable_names[name] = content


def check_what_is_stored(machine: Machine, expected: dict[str, Any]) -> None:
    """Compare the entries, the ledgers and the fences with the recorded ones."""
    assert expected["entries"]
    for ledger_id, entry_id, data in expected["entries"]:
        assert machine.read(ledger_id, entry_id) == (Code.OK, bytes.fromhex(data))
    for ledger_id, held in expected["held"].items():
        assert machine.held(int(ledger_id)) == [tuple(span) for span in held]
    for ledger_id in expected["fenced"]:
        assert machine.add(ledger_id, (50,)) is Code.FENCED
    assert machine.serving.counters.boot_damaged_records == 0


def test_directory_of_the_first_version_is_read_back_whole() -> None:
    fixture = GOLDEN / "bookie_v1"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = copied(fixture, expected)
    manifest = decode_manifest((fixture / "data" / "MANIFEST").read_bytes())
    assert {file.state for file in manifest.files} == {FileState.FINISHED, FileState.OPEN}
    for _ in range(2):
        machine.start()
        assert machine.serving.was_unclean
        for ledger_id, entry_id, data in expected["entries"]:
            assert machine.read(ledger_id, entry_id) == (Code.OK, bytes.fromhex(data))
        for ledger_id in (1, 2, 3, 4):
            code = machine.add(ledger_id, (50,))
            assert (code is Code.FENCED) == (ledger_id in expected["fenced"])
        assert machine.ask(lambda done: machine.serving.read_lac(4, done))[1] >= 1
        assert machine.read(2, 1) == (Code.NO_ENTRY, None)
        machine.crash()


def test_directory_with_dropped_ledgers_and_recycled_files_is_read_back_whole() -> None:
    fixture = GOLDEN / "bookie_v2"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = copied(fixture, expected)
    manifest = decode_manifest((fixture / "data" / "MANIFEST").read_bytes())
    assert manifest.highest_dropped_ledger_id == max(expected["forgotten"])
    assert any(file.slot != f"slot-{file.file_id:08d}" for file in manifest.files)
    for _ in range(2):
        machine.start()
        check_what_is_stored(machine, expected)
        machine.crash()
    machine.start()
    assert machine.metadata.asked == []
    for ledger_id in expected["forgotten"]:
        assert machine.add(ledger_id, (0,)) is Code.OK
    assert machine.metadata.asked == expected["forgotten"]
    machine.crash()


def test_directory_with_appended_states_is_read_back_whole() -> None:
    fixture = GOLDEN / "bookie_v3"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = copied(fixture, expected)
    manifest = decode_manifest((fixture / "data" / "MANIFEST").read_bytes())
    assert 512 < manifest.state_bytes < expected["sizes"][manifest.state_file]
    for _ in range(2):
        machine.start()
        assert sorted(machine.serving._states) == [2, 3, 4, 5]
        check_what_is_stored(machine, expected)
        lac = expected["lac"][1]
        assert machine.ask(lambda done: machine.serving.read_lac(3, done)) == (Code.OK, lac)
        machine.crash()
    machine.start()
    assert machine.add(expected["forgotten"][0], (0,)) is Code.OK
    assert machine.metadata.asked == expected["forgotten"]
    machine.crash()


@pytest.mark.parametrize("mode", list(BookieWriteMode))
def test_directory_with_a_journal_and_copies_is_read_back_whole(mode: BookieWriteMode) -> None:
    fixture = GOLDEN / "bookie_v4"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = copied(fixture, expected)
    journal = "/journal" if mode is BookieWriteMode.JOURNAL else ""
    machine.settings = replace(SMALL, mode_settings=ModeSettings(mode, journal))
    put(machine.journal_disk, fixture / "journal", expected["journal_sizes"])
    manifest = decode_manifest((fixture / "data" / "MANIFEST").read_bytes())
    assert manifest.run is not None
    assert manifest.run.mode is BookieWriteMode.JOURNAL
    copies = [file for file in manifest.files if file.state is FileState.FINISHED]
    assert [(file.first_sequence, file.last_sequence) for file in copies] == [(0, 0)]
    for number in range(2):
        machine.start()
        assert (machine.serving.counters.boot_redone_groups > 0) == (number == 0)
        check_what_is_stored(machine, expected)
        lac = expected["lac"][1]
        assert machine.ask(lambda done: machine.serving.read_lac(3, done)) == (Code.OK, lac)
        assert machine.read(9, 1) == (Code.NO_ENTRY, None)
        machine.crash()


OLD_JOURNAL = "/old-journal"


def owing(mode: BookieWriteMode = BookieWriteMode.DIRECT) -> tuple[Machine, dict[str, Any]]:
    """A bookie whose run owed a sync, with the journals of two runs, and its stored entries."""
    fixture = GOLDEN / "bookie_v4_owing"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = copied(fixture, expected)
    journal = "/journal" if mode is BookieWriteMode.JOURNAL else ""
    machine.settings = replace(SMALL, mode_settings=ModeSettings(mode, journal))
    machine.journal_disks[OLD_JOURNAL] = old = SimDisk(Random(9))
    put(machine.journal_disk, fixture / "journal", expected["journal_sizes"])
    put(old, fixture / "old_journal", expected["old_journal_sizes"])
    name, run_id, number = expected["number"]
    machine.disk.numbers[name] = SimNumber(run_id, number)
    return machine, expected


def test_the_manifest_of_a_run_that_owes_a_sync_has_its_path_and_journals() -> None:
    manifest = owing()[0].manifest()
    assert manifest.path == "/data"
    assert [journal.path for journal in manifest.journals] == [OLD_JOURNAL, "/journal"]
    assert manifest.run is not None
    assert not manifest.run.is_synced
    assert manifest.journals[1].run_id == manifest.run.run_id


@pytest.mark.parametrize("mode", list(BookieWriteMode))
def test_directory_of_a_run_that_owed_a_sync_is_read_back_whole(mode: BookieWriteMode) -> None:
    machine, expected = owing(mode)
    for _ in range(2):
        machine.start()
        check_what_is_stored(machine, expected)
        lac = expected["lac"][1]
        assert machine.ask(lambda done: machine.serving.read_lac(3, done)) == (Code.OK, lac)
        assert machine.journal_disks[OLD_JOURNAL].seen_names == {}, "removed, as they are listed"
        names = set(expected["journal_sizes"])
        assert not names & machine.journal_disk.seen_names.keys()
        machine.crash()


def test_a_run_that_owed_a_sync_is_doubted_without_its_proof_and_refused_elsewhere() -> None:
    machine, _ = owing()
    machine.disk.numbers.clear()
    machine.start()
    assert machine.serving.doubt.epoch == 1
    machine, _ = owing()
    machine.path = "/copy"
    with pytest.raises(MovedDirectoryError):
        machine.start()
    assert len(machine.journal_disks[OLD_JOURNAL].seen_names) == 2


def test_a_directory_with_counters_is_read_before_and_after_a_downgrade() -> None:
    fixture = GOLDEN / "bookie_v4_counted"
    expected = json.loads((fixture / "expected.json").read_text())
    identity = DirectoryIdentity(*expected["identity"])
    assert identity.previous_id
    assert identity_of(decode_manifest((fixture / "MANIFEST-4").read_bytes())) == identity
    machine = copied(fixture, expected)
    assert identity_of(machine.manifest()) == DirectoryIdentity()
    machine.start()
    after = replace(identity, starts=identity.starts + 1, changes=identity.changes + 1)
    assert identity_of(machine.manifest()) == after
    check_what_is_stored(machine, expected)


def test_a_directory_in_doubt_is_read_back_whole() -> None:
    fixture = GOLDEN / "bookie_v4_doubt"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = copied(fixture, expected)
    for _ in range(2):
        machine.start()
        assert machine.serving.doubt == Doubt(**expected["doubt"])
        assert machine.serving.limbo_ledgers() == expected["limbo"]
        for ledger_id, entry_id, data in expected["entries"]:
            assert machine.read(ledger_id, entry_id) == (Code.OK, bytes.fromhex(data))
        for ledger_id in (1, 2, 3, 4, 5):
            is_clear = ledger_id in (1, 3)
            code = machine.read(ledger_id, 50)[0]
            assert code is (Code.NO_ENTRY if is_clear else Code.IO_ERROR), ledger_id
        ledger_id, lac = expected["lac"]
        read_lac = partial(machine.serving.read_lac, ledger_id)
        assert machine.ask(read_lac) == (Code.OK, lac)
        machine.lose_power()
