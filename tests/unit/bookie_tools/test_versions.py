"""A MANIFEST is written in the version of the previous release, and in the newest one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import (
    FORMAT_VERSION,
    FORMAT_VERSION_BEFORE,
    decode_manifest,
    decode_version,
)
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import (
    UncleanDirectoryError,
    UnrepairedDirectoryError,
    WrongDirectoryError,
)
from bookie_server.storage.files.manifest import UNCLEAN_NAME
from bookie_server.tools.versions import rewrite_manifest
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.cookie import Cookie
from tests.crash.machine import SMALL, Machine, entry
from tests.fixtures.resting import GOLDEN, golden, put_on, written
from tests.unit.bookie_tools.calls import checked, content_of, with_directory

LEDGER = 7


def rewritten(path: Path, version: int) -> int:
    return with_directory(path, lambda directory: rewrite_manifest(directory, version))


def stopped(path: Path) -> Path:
    machine = Machine(1)
    machine.start()
    for number in range(40):
        assert machine.add(LEDGER, (number,), bytes(3_000)) is Code.OK
    assert machine.fence(8)[0].is_absent
    machine.stop()
    return written(machine, path)


def fields_of(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((path / "MANIFEST").read_bytes().partition(b"\n")[2])
    return fields


def started(path: Path) -> Machine:
    machine = Machine(2)
    machine.is_new = False
    put_on(machine.disk, path)
    machine.start()
    return machine


def test_a_downgrade_writes_what_the_previous_release_wrote(tmp_path: Path) -> None:
    path = stopped(tmp_path / "b")
    before = fields_of(path)
    assert rewritten(path, FORMAT_VERSION_BEFORE) == FORMAT_VERSION
    assert decode_version((path / "MANIFEST").read_bytes()) == FORMAT_VERSION_BEFORE
    after = fields_of(path)
    older = json.loads((GOLDEN / "bookie_v3/data/MANIFEST").read_bytes().partition(b"\n")[2])
    assert after.keys() == older.keys()
    changing = ("generation", "state_file", "state_bytes", "mark")
    assert [after[key] for key in after if key not in changing] == [
        before[key] for key in after if key not in changing
    ]
    assert checked(path).wrong == 0
    machine = started(path)
    for number in range(40):
        assert machine.read(LEDGER, number) == (Code.OK, entry(LEDGER, number, bytes(3_000)))
    assert machine.add(8, (0,)) is Code.FENCED


def test_a_second_downgrade_and_a_second_upgrade_change_nothing(tmp_path: Path) -> None:
    path = stopped(tmp_path / "b")
    for version in (FORMAT_VERSION_BEFORE, FORMAT_VERSION):
        rewritten(path, version)
        content = content_of(path)
        assert rewritten(path, version) == version
        assert content_of(path) == content


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_upgrade_keeps_what_is_stored(tmp_path: Path, version: int) -> None:
    path = golden(version, tmp_path / "b")
    files = decode_manifest((path / "MANIFEST").read_bytes()).files
    assert rewritten(path, FORMAT_VERSION) == version
    manifest = decode_manifest((path / "MANIFEST").read_bytes())
    assert manifest.files == files
    assert len(manifest.directory_id) == 16
    machine = started(path)
    expected = json.loads((GOLDEN / f"bookie_v{version}" / "expected.json").read_text())
    for ledger_id, entry_id, data in expected["entries"]:
        assert machine.read(ledger_id, entry_id) == (Code.OK, bytes.fromhex(data))


def test_a_downgrade_needs_a_clean_stop(tmp_path: Path) -> None:
    machine = Machine(1)
    machine.start()
    assert machine.add(LEDGER, (0,)) is Code.OK
    machine.crash()
    path = written(machine, tmp_path / "b")
    content = content_of(path)
    with pytest.raises(UncleanDirectoryError, match="stop it with SIGTERM"):
        rewritten(path, FORMAT_VERSION_BEFORE)
    assert content_of(path) == content


def test_a_downgrade_needs_a_stop_that_ended(tmp_path: Path) -> None:
    """The last step of a clean stop removes the marker."""
    path = stopped(tmp_path / "b")
    (path / UNCLEAN_NAME).touch()
    with pytest.raises(UncleanDirectoryError, match="stop it with SIGTERM"):
        rewritten(path, FORMAT_VERSION_BEFORE)


def test_a_downgrade_needs_finished_files(tmp_path: Path) -> None:
    """A bookie whose journal failed has stopped without a run, and with open files."""
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal")
    machine = Machine(1, settings=replace(SMALL, mode_settings=mode))
    machine.start()
    assert machine.add(LEDGER, (0,)) is Code.OK
    machine.journal_disk.faults.write_errors = 1
    assert machine.add(LEDGER, (1,)) is Code.IO_ERROR
    machine.scheduler.run(machine.serving.close(), machine.host)
    assert machine.manifest().run is None
    path = written(machine, tmp_path / "b")
    (path / UNCLEAN_NAME).unlink()
    with pytest.raises(UncleanDirectoryError, match="stop it with SIGTERM"):
        rewritten(path, FORMAT_VERSION_BEFORE)


@pytest.mark.parametrize("damage", ["none", "index", "index and record"])
def test_a_downgrade_lists_the_records_of_copies(damage: str, tmp_path: Path) -> None:
    """The previous release looks for records up to `last_sequence` if an index is damaged."""
    machine = Machine(1)
    machine.start()
    for number in range(40):
        assert machine.add(LEDGER, (number,), b"%d." % number * 500) is Code.OK
        assert machine.add(8, (number,), bytes(2_000)) is Code.OK
    assert machine.drop(8) is Code.OK
    machine.compact()
    machine.stop()
    path = written(machine, tmp_path / "b")
    files = decode_manifest((path / "MANIFEST").read_bytes()).files
    copies = next(file for file in files if file.is_copies)
    data = bytearray((path / copies.slot).read_bytes())
    records = sum(data[at : at + 4] == b"LREC" for at in range(8_192, copies.data_end, 512))
    if damage != "none":
        data[copies.finish_offset + 20] ^= 1
        data[8_192 + 20] ^= damage == "index and record"
        (path / copies.slot).write_bytes(data)
    rewritten(path, FORMAT_VERSION_BEFORE)
    after = {file["slot"]: file for file in fields_of(path)["files"]}
    assert min(file["last_sequence"] for file in after.values()) > 0
    assert after[copies.slot]["first_sequence"] == 1
    assert after[copies.slot]["last_sequence"] == records
    assert after[copies.slot]["has_damage"] == (damage == "index and record")
    machine = started(path)
    expected = {(Code.OK, entry(LEDGER, number, b"%d." % number * 500)) for number in range(40)}
    found = {machine.read(LEDGER, number) for number in range(40)}
    assert found - {(Code.IO_ERROR, None)} <= expected
    assert found == expected or damage == "index and record"
    assert machine.read(LEDGER, 99)[0] is (
        Code.IO_ERROR if damage == "index and record" else Code.NO_ENTRY
    )


def test_a_bookie_with_several_directories_is_not_downgraded(tmp_path: Path) -> None:
    path = stopped(tmp_path / "b")
    cookie = Cookie("b7", str(path), (str(path), "/other"), None)
    (path / "VERSION").write_bytes(cookie.encode())
    before = content_of(path)
    with pytest.raises(WrongDirectoryError, match="has several directories"):
        rewritten(path, FORMAT_VERSION_BEFORE)
    assert content_of(path) == before
    assert rewritten(path, FORMAT_VERSION) == FORMAT_VERSION


def test_a_downgrade_needs_an_end_of_the_doubt_and_an_upgrade_continues_it(tmp_path: Path) -> None:
    machine = Machine(1)
    machine.start()
    assert machine.add(LEDGER, (0,)) is Code.OK
    storage = machine.serving

    def stopped_copy(name: str) -> Path:
        machine.stop()
        path = written(machine, tmp_path / name)
        machine.start()
        return path

    machine.scheduler.run(storage.raise_doubt(), machine.host)
    for name in ("in doubt", "in limbo"):
        path = stopped_copy(name)
        content = content_of(path)
        with pytest.raises(UnrepairedDirectoryError, match="in_doubt"):
            rewritten(path, FORMAT_VERSION_BEFORE)
        assert content_of(path) == content
        machine.scheduler.run(machine.serving.end_doubt(1), machine.host)
    clearing = machine.serving.clear_ledger(LEDGER, 1, 0)
    assert machine.scheduler.run(clearing, machine.host) is Code.OK
    path = stopped_copy("repaired")
    rewritten(path, FORMAT_VERSION_BEFORE)
    again = started(path)
    assert again.serving.doubt == Doubt(epoch=1, cleared=1)
    assert again.serving.limbo_ledgers() == []
    assert again.read(LEDGER, 9)[0] is Code.NO_ENTRY
    assert again.read(99, 9)[0] is Code.NO_LEDGER
