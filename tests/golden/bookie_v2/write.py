"""Writes the fixture directory `data`: run once, by the version that first dropped ledgers.

    python -m tests.golden.bookie_v2.write

The files are those of a bookie that dropped ledgers 1 and 2, recycled files, forgot ledger 1 after
a week, and was killed with a tombstone in its active file. Slots are cut after their last byte that
is not zero. The test that reads them restores their full size.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

HERE = Path(__file__).parent
DATA = HERE / "data"
WEEK_MS = 7 * 24 * 3_600 * 1_000


def main() -> None:
    machine = Machine(2, settings=replace(SMALL, pool_files_max=2))
    machine.start()
    stored: dict[tuple[int, int], bytes] = {}

    def add(ledger_id: int, ids: range, payload: bytes, **options: bool) -> None:
        assert machine.add(ledger_id, ids, payload, **options) is Code.OK
        stored.update({(ledger_id, i): entry(ledger_id, i, payload) for i in ids})

    def drop(ledger_id: int) -> None:
        assert machine.drop(ledger_id) is Code.OK
        for key in [key for key in stored if key[0] == ledger_id]:
            del stored[key]

    for number in range(24):
        add(1, range(number, number + 1), b"%d" % number * 1_000)
    drop(1)
    machine.host.wall_offset_ms += WEEK_MS
    for number in range(14):
        add(2, range(number, number + 1), b"%d" % number * 1_100)
    drop(2)
    machine.reclaim()
    machine.reclaim()
    assert sorted(machine.serving._states) == [2]
    for number in range(20):
        add(3, range(number, number + 1), b"%d" % number * 900)
    add(2, range(3), b"recovered", is_recovery=True)
    add(4, range(2), b"in the file that is written")
    drop(4)
    assert machine.serving.counters.files_recycled
    machine.crash()
    DATA.mkdir(exist_ok=True)
    sizes = {}
    for name, content in machine.disk.seen_names.items():
        sizes[name] = max(len(content.seen), content.allocated)
        (DATA / name).write_bytes(bytes(content.seen).rstrip(b"\0"))
    expected = {
        "sizes": sizes,
        "entries": [[ledger, i, data.hex()] for (ledger, i), data in sorted(stored.items())],
        "held": {"2": [[0, 2]], "3": [[0, 19]], "4": []},
        "fenced": [2, 4],
        "forgotten": [1],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
