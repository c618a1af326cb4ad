"""Writes the fixture directory: run once, by the first version with doubt and limbo.

    python -m tests.golden.bookie_v4_doubt.write

The bookie is in doubt, in its second epoch. The states have one ledger that is cleared, and one
that is in limbo. The last file has limbo records: one clears a ledger, and one keeps a ledger in
limbo.
"""

from __future__ import annotations

import json
from pathlib import Path

from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, entry
from tests.golden.bookie_v4.write import written

HERE = Path(__file__).parent
CLEARED, IN_LIMBO, CLEARED_LATER, KEPT = 1, 2, 3, 4


def main() -> None:
    machine = Machine(12)
    machine.start()
    for ledger_id in (CLEARED, IN_LIMBO, CLEARED_LATER):
        assert machine.add(ledger_id, range(2)) is Code.OK
    storage = machine.serving

    async def lose_and_repair() -> None:
        await storage.raise_doubt()
        await storage.end_doubt(1)
        await storage.raise_doubt()
        await storage.date_doubt(2, 77)
        assert await storage.clear_ledger(CLEARED, 2, 1) is Code.OK
        await storage._keeper.commit_soon()
        assert await storage.clear_ledger(CLEARED_LATER, 2, 5) is Code.OK
        assert await storage.keep_in_limbo(KEPT) is Code.OK

    machine.scheduler.run(lose_and_repair(), machine.host)
    machine.crash()
    stored = [(ledger_id, i) for ledger_id in (1, 2, 3) for i in range(2)]
    expected = {
        "sizes": written(machine.disk, HERE / "data"),
        "doubt": machine.manifest().doubt.to_json(),
        "entries": [[ledger, i, entry(ledger, i, b"payload").hex()] for ledger, i in stored],
        "limbo": [IN_LIMBO, KEPT],
        "lac": [CLEARED_LATER, 5],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
