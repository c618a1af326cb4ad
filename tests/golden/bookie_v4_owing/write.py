"""Writes the fixture directories: run once, by the first version whose MANIFEST lists journals.

    python -m tests.golden.bookie_v4_owing.write

The files are those of a bookie that was killed while its run owed a sync: write mode `journal`
without the sync of the journal. The run before it had another journal directory, whose files could
not be removed. So the MANIFEST has `path`, two `journals`, and a run with `is_synced` false. The
page cache has all records, and the number in shared memory proves this. Slots and journal files are
cut behind their last byte that is not zero; the reading test gives them their full size again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest import mock

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import ModeSettings, StorageSettings
from bookie_server.errors import StorageError
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, entry
from tests.golden.bookie_v4.write import written
from tests.sim.disk import SimDisk, SimFileSystem

HERE = Path(__file__).parent
OLD = "/old-journal"


def settings_with(journal: str, *, sync_data: bool) -> StorageSettings:
    mode = ModeSettings(
        BookieWriteMode.JOURNAL,
        journal,
        journal_sync_data=sync_data,
        journal_files=2,
        checkpoint_interval_ms=3_600_000,
    )
    return replace(SMALL, pool_files_max=2, free_bytes_min=0, mode_settings=mode)


remove = SimFileSystem.remove


async def refuse(files: SimFileSystem, name: str) -> None:
    if name.startswith("journal-"):
        raise StorageError(f"cannot remove {name}: Read-only file system", path=name)
    await remove(files, name)


def main() -> None:
    machine = Machine(8, settings=settings_with(OLD, sync_data=True))
    machine.journal_disks[OLD] = SimDisk(Random(9))
    machine.start()
    stored: dict[tuple[int, int], bytes] = {}

    def add(ledger_id: int, ids: range, payload: bytes) -> None:
        assert machine.add(ledger_id, ids, payload) is Code.OK
        stored.update({(ledger_id, i): entry(ledger_id, i, payload) for i in ids})

    for number in range(8):
        add(1, range(number, number + 1), b"%d" % number * 300)
    assert machine.fence(1)[0] is Code.OK
    machine.crash()
    machine.settings = settings_with("/journal", sync_data=False)
    with mock.patch.object(SimFileSystem, "remove", refuse):
        machine.start()
    for number in range(5):
        add(2, range(2 * number, 2 * number + 2), b"%d" % number * 200)
    assert machine.ask(lambda done: machine.serving.write_lac(3, 41, KEY, done)) == (Code.OK,)
    add(2, range(10, 12), b"owed" * 50)
    machine.crash()
    ((name, number_kept),) = machine.disk.numbers.items()
    expected = {
        "sizes": written(machine.disk, HERE / "data"),
        "journal_sizes": written(machine.journal_disk, HERE / "journal"),
        "old_journal_sizes": written(machine.journal_disks[OLD], HERE / "old_journal"),
        "number": [name, number_kept.run_id, number_kept.get()],
        "entries": [[ledger, i, data.hex()] for (ledger, i), data in sorted(stored.items())],
        "held": {"1": [[0, 7]], "2": [[0, 11]]},
        "fenced": [1],
        "lac": [3, 41],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
