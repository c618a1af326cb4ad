"""Writes the fixture directory `data`: run once, by the version that first appended states.

    python -m tests.golden.bookie_v3.write

The files are those of a bookie whose ledger-state file has a first block and later ones: a fence,
an explicit LAC and a drop after the first commit of its start, a ledger that was forgotten after a
week, and bytes after the valid ones, from a commit that a power loss interrupted. Slots are cut
after their last byte that is not zero. The test that reads them restores their full size.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, entry

HERE = Path(__file__).parent
DATA = HERE / "data"
WEEK_MS = 7 * 24 * 3_600 * 1_000


def main() -> None:
    machine = Machine(3, settings=replace(SMALL, pool_files_max=2, free_bytes_min=0))
    machine.start()
    stored: dict[tuple[int, int], bytes] = {}

    def add(ledger_id: int, ids: range, payload: bytes) -> None:
        assert machine.add(ledger_id, ids, payload) is Code.OK
        stored.update({(ledger_id, i): entry(ledger_id, i, payload) for i in ids})

    for number in range(24):
        add(1, range(number, number + 1), b"%d" % number * 1_000)
    assert machine.drop(1) is Code.OK
    machine.host.wall_offset_ms += WEEK_MS
    for number in range(20):
        add(5, range(number, number + 1), b"%d" % number * 1_100)
    assert machine.drop(5) is Code.OK
    stored.clear()
    machine.reclaim()
    machine.reclaim()
    for number in range(20):
        add(2, range(number, number + 1), b"%d" % number * 1_100)
    assert machine.fence(2)[0] is Code.OK
    assert machine.ask(lambda done: machine.serving.write_lac(3, 41, KEY, done)) == (Code.OK,)
    for number in range(20):
        add(4, range(number, number + 1), b"%d" % number * 900)
    machine.scheduler.run_for(500)
    assert sorted(machine.serving._states) == [2, 3, 4, 5]
    machine.crash()
    state_file = machine.disk.seen_names[machine.manifest().state_file]
    assert machine.manifest().state_bytes > 512, "a later block counts"
    state_file.seen += b"LSTA cut off by power"
    DATA.mkdir(exist_ok=True)
    sizes = {}
    for name, content in machine.disk.seen_names.items():
        sizes[name] = max(len(content.seen), content.allocated)
        (DATA / name).write_bytes(bytes(content.seen).rstrip(b"\0"))
    expected = {
        "sizes": sizes,
        "entries": [[ledger, i, data.hex()] for (ledger, i), data in sorted(stored.items())],
        "held": {"2": [[0, 19]], "3": [], "4": [[0, 19]]},
        "fenced": [2, 5],
        "forgotten": [1],
        "lac": [3, 41],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
