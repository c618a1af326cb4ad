"""Directories that earlier versions wrote are read by every later one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.manifest_codec import FileState, decode_manifest
from bookie_server.core.settings import ModeSettings
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine
from tests.sim.disk import Content

GOLDEN = Path(__file__).parents[2] / "golden"


def copied(fixture: Path, expected: dict[str, Any]) -> Machine:
    machine = Machine(99)
    machine.is_new = False
    for name, size in expected["sizes"].items():
        content = Content()
        content.seen[:] = (fixture / "data" / name).read_bytes().ljust(size, b"\0")
        content.durable[:] = content.seen
        machine.disk.seen_names[name] = machine.disk.durable_names[name] = content
    return machine


def check_what_is_stored(machine: Machine, expected: dict[str, Any]) -> None:
    """Entries, what is held of each ledger, and fences are those that were written down."""
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
    for name, size in expected["journal_sizes"].items():
        content = Content()
        content.seen[:] = (fixture / "journal" / name).read_bytes().ljust(size, b"\0")
        content.durable[:] = content.seen
        names = machine.journal_disk
        names.seen_names[name] = names.durable_names[name] = content
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
