"""A MANIFEST is written in the version of the previous release, and in the newest one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bookie_server.core.manifest_codec import (
    FORMAT_VERSION,
    FORMAT_VERSION_BEFORE,
    decode_manifest,
    decode_version,
)
from bookie_server.errors import UncleanDirectoryError
from bookie_server.tools.versions import rewrite_manifest
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, entry
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
