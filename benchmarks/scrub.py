"""How much later does a bookie acknowledge adds while it scrubs its files at the default rate?

The storage of a bookie runs in this process, without a network. Its finished files have enough
bytes for a scrub that lasts for the whole measurement. In each round, adds of 1 KiB, 16 at a time,
are measured first without a scrub and then during a scrub.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.append import KIB, MIB
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from bookie_server.config import BookieSettings
from bookie_server.core.requests import StoredAdd
from bookie_server.core.settings import StorageSettings
from bookie_server.ports import Standing
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code

KEY = bytes(20)
FILLING, MEASURED = 1, 2
RATE_BYTES_PER_S = int(BookieSettings.model_fields["scrub_bytes_per_s"].default)
FILE_SIZE_BYTES = 16 * MIB
LARGE_SIZE_BYTES = 256 * KIB
IN_FLIGHT = 16
SPARE_SECONDS = 2


class NoMetadata:
    """A metadata store that allows each add."""

    async def check(self, _ledger_id: int) -> Standing:
        return Standing.OPEN_WITH_ME


class Writer:
    """Adds entries of one size to a storage."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage
        self._next_id = {FILLING: 0, MEASURED: 0}
        self.taken_ms: list[float] = []

    async def add(self, ledger_id: int, size_bytes: int) -> None:
        """Add an entry, and wait until it is durable."""
        entry_id = self._next_id[ledger_id]
        self._next_id[ledger_id] += 1
        entry = struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, size_bytes)
        entry += bytes(size_bytes)
        request = StoredAdd(ledger_id, (entry_id,), (len(entry),), entry, KEY)
        answered: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        begun = time.perf_counter()
        self._storage.add(request, answered.set_result)
        code = await answered
        assert code is Code.OK, code
        self.taken_ms.append((time.perf_counter() - begun) * 1e3)

    async def _one_after_the_other(self, until: float) -> None:
        while time.perf_counter() < until:
            await self.add(MEASURED, KIB)

    async def late_ms(self, seconds: float) -> float:
        """Return the time in ms within which 99 % of the adds were acknowledged."""
        self.taken_ms = []
        until = time.perf_counter() + seconds
        await asyncio.gather(*(self._one_after_the_other(until) for _ in range(IN_FLIGHT)))
        return sorted(self.taken_ms)[int(len(self.taken_ms) * 0.99)]


async def measured(
    directory: Path, rounds: int, seconds: float
) -> list[tuple[float, float, float]]:
    """Return for each round the p99 without and during a scrub, in ms, and the scrubbed MiB."""
    files, tasks = OsFileSystem(directory), OsTasks()
    await files.lock()
    await initialize_directory(files)
    settings = StorageSettings(
        file_size_bytes=FILE_SIZE_BYTES,
        in_flight_bytes_max=64 * MIB,
        free_bytes_min=0,
        open_files_max=256,
        scrub_bytes_per_s=RATE_BYTES_PER_S,
    )
    storage = await LedgerStorage.open(
        Shared(files, OsClock(), tasks, settings, NoMetadata())  # type: ignore[arg-type]
    )
    writer, figures = Writer(storage), []
    needed_bytes = int(RATE_BYTES_PER_S * (seconds + SPARE_SECONDS)) + FILE_SIZE_BYTES
    for _ in range(needed_bytes // LARGE_SIZE_BYTES):
        await writer.add(FILLING, LARGE_SIZE_BYTES)
    for _ in range(rounds):
        idle_ms = await writer.late_ms(seconds)
        before = storage.counters.scrub_bytes
        scrub = asyncio.ensure_future(storage.scrubber.scrub())
        busy_ms = await writer.late_ms(seconds)
        read_bytes = storage.counters.scrub_bytes - before
        assert not scrub.done(), "the scrub must last for the whole measurement"
        await scrub
        figures.append((idle_ms, busy_ms, read_bytes / MIB))
    await storage.close()
    await tasks.aclose()
    return figures


def main() -> None:
    """Measure without a scrub and during a scrub in each round."""
    options = parsed(__doc__)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        measure = partial(measured, Path(folder) / "bookie", options.rounds, options.seconds)
        found = asyncio.run(measure())
    idle, busy, read = (tuple(column) for column in zip(*found, strict=True))
    ratios = tuple(b / i for b, i in zip(busy, idle, strict=True))
    figures = [
        Figure("1 KiB adds, 16 at a time, p99 during a scrub, divided by the p99 without",
               median(list(ratios)), "", ratios, goal=1.5, lower_is_better=True),
        Figure("1 KiB adds, 16 at a time, p99 without a scrub", median(list(idle)), "ms", idle),
        Figure("read by the scrub in a round", median(list(read)), "MiB", read),
    ]  # fmt: skip
    show("scrub", figures, as_json=options.json)


if __name__ == "__main__":
    main()
