"""Writes the fixture directory `data`: run once by the version that it is named after.

    python -m tests.golden.bookie_v1.write

The files are those of a bookie that stopped cleanly after one roll, was restarted, and was killed
with a fence and an entry in its active file. Slots are cut after their last byte that is not zero.
The test that reads them restores their full size.
"""

from __future__ import annotations

import json
from pathlib import Path

from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, Machine, entry

HERE = Path(__file__).parent
DATA = HERE / "data"


def main() -> None:
    machine = Machine(1)
    machine.start()
    stored: dict[tuple[int, int], bytes] = {}

    def add(ledger_id: int, ids: tuple[int, ...] | range, payload: bytes, **options: bool) -> None:
        assert machine.add(ledger_id, ids, payload, **options) is Code.OK
        stored.update({(ledger_id, i): entry(ledger_id, i, payload) for i in ids})

    add(1, range(4), b"four entries")
    add(2, (0, 3, 4), b"entries with gaps")
    add(1, (2,), b"other bytes")
    for number in range(4, 14):
        add(1, (number,), bytes(3_000))
    assert machine.fence(3)[0].is_absent
    add(3, (0,), b"recovered", is_recovery=True)
    machine.stop()
    machine.start()
    add(4, range(2), b"after the second start")
    assert machine.fence(2)[0] is Code.OK
    assert machine.ask(lambda done: machine.serving.write_lac(4, 1, KEY, done)) == (Code.OK,)
    machine.crash()
    DATA.mkdir(exist_ok=True)
    sizes = {}
    for name, content in machine.disk.seen_names.items():
        sizes[name] = max(len(content.seen), content.allocated)
        (DATA / name).write_bytes(bytes(content.seen).rstrip(b"\0"))
    expected = {
        "sizes": sizes,
        "fenced": [2, 3],
        "explicit_lac": {"4": 1},
        "entries": [[ledger, i, data.hex()] for (ledger, i), data in sorted(stored.items())],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
