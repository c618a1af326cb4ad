"""Few descriptors, in processes with a low limit."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from bookie_server.descriptors import raise_limit


def test_the_soft_limit_is_raised_and_the_hard_one_kept() -> None:
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1500))\n"
        "from bookie_server.descriptors import raise_limit\n"
        "print(raise_limit(1024), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1500 (1500, 1500)\n"
    assert raise_limit(0) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


SCRIPT = """
import asyncio, os, resource, sys, time
from pathlib import Path
os.fsync = lambda _descriptor: None
from bookie_server.storage.device import filesystem
filesystem._fdatasync = lambda _descriptor: None
from bookie_server.core.requests import StoredRead
from bookie_server.core.settings import StorageSettings
from bookie_server.ports import Standing
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from tests.crash.machine import FixedMetadata, add_request, entry

COUNT = 200
SETTINGS = StorageSettings(
    file_size_bytes=1 << 16, in_flight_bytes_max=64 << 20, free_bytes_min=0, open_files_max=16,
    pieces_max=1, recent_bytes_max=1,
)

async def main(directory):
    loop = asyncio.get_running_loop()
    for start in range(2):
        files = OsFileSystem(directory)
        await files.lock()
        await initialize_directory(files)
        tasks = OsTasks()
        storage = await LedgerStorage.open(Shared(files=files, clock=OsClock(), tasks=tasks,
            settings=SETTINGS, metadata=FixedMetadata(Standing.OPEN_WITH_ME)))
        for number in range(COUNT if start == 0 else 0):
            done = loop.create_future()
            storage.add(add_request(1, (number,), b"%d" % number), done.set_result)
            assert (await done).value == "ok", number
        finished = len(list(storage._keeper.finished))
        for number in range(COUNT):
            done = loop.create_future()
            storage.read(StoredRead(1, number), lambda *answer: done.set_result(answer))
            code, data = await done
            assert (code.value, data) == ("ok", entry(1, number, b"%d" % number)), (number, code)
        opened = len(os.listdir("/proc/self/fd"))
        await storage.close()
        await tasks.aclose()
        print(start, finished, opened)

resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
asyncio.run(main(Path(sys.argv[1])))
"""


def test_200_files_are_written_replayed_and_read_with_48_descriptors(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    for line in done.stdout.splitlines():
        _, finished, opened = map(int, line.split())
        assert finished >= 190
        assert opened <= 48
    assert len(done.stdout.splitlines()) == 2
