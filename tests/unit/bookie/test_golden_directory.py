"""A directory that the first version wrote is read by every later one."""

from __future__ import annotations

import json
from pathlib import Path

from bookie_server.core.manifest_codec import FileState, decode_manifest
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine
from tests.sim.disk import Content

FIXTURE = Path(__file__).parents[2] / "golden" / "bookie_v1"


def copied(expected) -> Machine:
    machine = Machine(99)
    for name, size in expected["sizes"].items():
        content = Content()
        content.seen[:] = (FIXTURE / "data" / name).read_bytes().ljust(size, b"\0")
        content.durable[:] = content.seen
        machine.disk.seen_names[name] = machine.disk.durable_names[name] = content
    return machine


def test_directory_of_the_first_version_is_read_back_whole():
    expected = json.loads((FIXTURE / "expected.json").read_text())
    machine = copied(expected)
    manifest = decode_manifest((FIXTURE / "data" / "MANIFEST").read_bytes())
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
