"""A crash at each disk operation of a change of the format: the next start finds everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bookie_server.core.manifest_codec import FORMAT_VERSION, FORMAT_VERSION_BEFORE, decode_version
from bookie_server.storage.shared import Shared
from bookie_server.tools.directory import NoMetadata, RestingDirectory
from bookie_server.tools.versions import rewrite_manifest
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry, is_cut
from tests.sim.disk import Content
from tests.sim.runtime import Host

GOLDEN = Path(__file__).parents[1] / "golden"
LEDGER = 7
ENTRIES = 40


def of_version(version: int) -> tuple[Machine, dict[str, Any]]:
    """A machine with the directory that an earlier version wrote, and what is in it."""
    fixture = GOLDEN / f"bookie_v{version}"
    expected = json.loads((fixture / "expected.json").read_text())
    machine = Machine(version)
    machine.is_new = False
    for name, size in expected["sizes"].items():
        content = Content()
        content.seen[:] = (fixture / "data" / name).read_bytes().ljust(size, b"\0")
        content.durable[:] = content.seen
        machine.disk.seen_names[name] = machine.disk.durable_names[name] = content
    return machine, expected


def stopped() -> Machine:
    """A machine after a clean stop, with a file of copies."""
    machine = Machine(1)
    machine.start()
    for number in range(ENTRIES):
        assert machine.add(LEDGER, (number,), bytes(3_000)) is Code.OK
        assert machine.add(8, (number,), bytes(1_000)) is Code.OK
    assert machine.drop(8) is Code.OK
    machine.compact()
    assert machine.serving.counters.compaction_bytes_freed
    machine.stop()
    return machine


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_first_start_with_a_directory_of_an_earlier_version(version: int) -> None:
    number = 0
    is_over = False
    while not is_over:
        number += 1
        machine, expected = of_version(version)
        is_over = not is_cut(machine, machine.opening, number)
        machine.start()
        for ledger_id, entry_id, data in expected["entries"]:
            assert machine.read(ledger_id, entry_id) == (Code.OK, bytes.fromhex(data)), number
        for ledger_id in expected["fenced"]:
            assert machine.add(ledger_id, (50,)) is Code.FENCED, number
        assert machine.serving.counters.boot_damaged_records == 0
    assert number > 20


@pytest.mark.parametrize("versions", [(3,), (3, 4)])
def test_a_downgrade_and_an_upgrade(versions: tuple[int, ...]) -> None:
    assert {*versions} <= {FORMAT_VERSION, FORMAT_VERSION_BEFORE}
    number = 0
    is_over = False
    while not is_over:
        number += 1
        machine = stopped()

        async def rewrite(machine: Machine = machine) -> None:
            files = machine.make_files()
            host: Host = machine.host
            shared = Shared(files, host, host, SMALL, NoMetadata())
            names = await shared.files.names()
            shared.states.update(await shared.store.load(names))
            directory = RestingDirectory(Path("/data"), shared, frozenset(names))
            for version in versions:
                await rewrite_manifest(directory, version)

        is_over = not is_cut(machine, rewrite, number)
        data = bytes(machine.disk.durable_names["MANIFEST"].durable)
        assert decode_version(data) in (FORMAT_VERSION, FORMAT_VERSION_BEFORE)
        assert not is_over or decode_version(data) == versions[-1]
        machine.start()
        for entry_id in range(ENTRIES):
            stored = entry(LEDGER, entry_id, bytes(3_000))
            assert machine.read(LEDGER, entry_id) == (Code.OK, stored), number
        assert machine.read(8, 0)[0].is_absent
        assert machine.serving.counters.boot_damaged_records == 0
    assert number > 10
