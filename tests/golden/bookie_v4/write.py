"""Writes the fixture directories `data` and `journal`: run once, by the first version with runs.

    python -m tests.golden.bookie_v4.write

The files are those of a bookie in write mode `journal` with a file of copies from a compaction. The
power failed, and the last records are only in the journal. Slots and journal files are cut after
their last byte that is not zero. The test that reads them restores their full size.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import ModeSettings
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, entry
from tests.sim.disk import SimDisk

HERE = Path(__file__).parent
MODE = ModeSettings(
    BookieWriteMode.JOURNAL, "/journal", journal_files=2, checkpoint_interval_ms=3_600_000
)


def main() -> None:
    settings = replace(SMALL, pool_files_max=2, free_bytes_min=0, mode_settings=MODE)
    machine = Machine(4, settings=settings)
    machine.start()
    stored: dict[tuple[int, int], bytes] = {}

    def add(ledger_id: int, ids: range, payload: bytes) -> None:
        assert machine.add(ledger_id, ids, payload) is Code.OK
        stored.update({(ledger_id, i): entry(ledger_id, i, payload) for i in ids})

    for number in range(40):
        add(1 + 8 * (number % 10 > 0), range(number, number + 1), b"%d" % number * 1_000)
    machine.scheduler.run_for(500)
    assert machine.drop(9) is Code.OK
    stored = {key: data for key, data in stored.items() if key[0] != 9}
    machine.compact(100)
    assert machine.serving.counters.compactions
    for number in range(6):
        add(2, range(number, number + 1), b"%d" % number * 500)
    assert machine.fence(2)[0] is Code.OK
    assert machine.ask(lambda done: machine.serving.write_lac(3, 41, KEY, done)) == (Code.OK,)
    machine.crash()
    for name, content in machine.disk.seen_names.items():
        if name.startswith("slot-"):
            content.unsynced = []
            content.seen = bytearray(content.durable)
    expected = {
        "sizes": written(machine.disk, HERE / "data"),
        "journal_sizes": written(machine.journal_disk, HERE / "journal"),
        "entries": [[ledger, i, data.hex()] for (ledger, i), data in sorted(stored.items())],
        "held": {"1": [[i, i] for i in range(0, 40, 10)], "2": [[0, 5]], "9": []},
        "fenced": [2, 9],
        "lac": [3, 41],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def written(disk: SimDisk, directory: Path) -> dict[str, int]:
    """Write the files of a device, and return their sizes."""
    directory.mkdir(exist_ok=True)
    sizes = {}
    for name, content in disk.seen_names.items():
        sizes[name] = max(len(content.seen), content.allocated)
        (directory / name).write_bytes(bytes(content.seen).rstrip(b"\0"))
    return sizes


if __name__ == "__main__":
    main()
