"""Writes the fixture directory: run once, by the first version whose MANIFEST has counters.

    python -m tests.golden.bookie_v4_counted.write

The directory is that of a bookie after a clean stop and a downgrade: a MANIFEST of version 3, and
the file IDENTITY. `MANIFEST-4` is its MANIFEST before the downgrade. The directory had another path
before, so it has a previous id.
"""

from __future__ import annotations

import json
from pathlib import Path

from bookie_server.core.manifest_codec import FORMAT_VERSION_BEFORE
from bookie_server.storage.shared import Shared
from bookie_server.tools.directory import NoMetadata, RestingDirectory
from bookie_server.tools.versions import rewrite_manifest
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.golden.bookie_v4.write import written

HERE = Path(__file__).parent


def main() -> None:
    machine = Machine(11)
    machine.path = "/before"
    machine.start()
    machine.stop()
    machine.path = "/data"
    machine.start()
    for number in range(4):
        assert machine.add(1, (number,), b"%d" % number * 100) is Code.OK
    machine.stop()
    (HERE / "MANIFEST-4").write_bytes(machine.disk.durable_names["MANIFEST"].durable)

    async def downgrade() -> None:
        shared = Shared(machine.make_files(), machine.host, machine.host, SMALL, NoMetadata())
        names = await shared.files.names()
        shared.states.update(await shared.store.load(names))
        directory = RestingDirectory(Path("/data"), shared, frozenset(names))
        await rewrite_manifest(directory, FORMAT_VERSION_BEFORE)

    before = machine.manifest()
    machine.scheduler.run(downgrade(), machine.host)
    machine.crash()
    expected = {
        "sizes": written(machine.disk, HERE / "data"),
        "identity": [before.directory_id, before.starts, before.changes, before.previous_id],
        "entries": [[1, i, entry(1, i, b"%d" % i * 100).hex()] for i in range(4)],
        "held": {"1": [[0, 3]]},
        "fenced": [],
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
