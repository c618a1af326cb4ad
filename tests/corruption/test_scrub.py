"""Many damaged bytes of a real directory: a scrub finds all of them while the bookie runs."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bookie_server.core.requests import StoredRead
from bookie_server.core.settings import MEBIBYTE, StorageSettings
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.crash.machine import FixedMetadata, add_request, entry

FLIPS = 1_000
LEDGERS = range(1, 6)
ENTRIES = 900
IN_ADD = 3
SETTINGS = StorageSettings(
    file_size_bytes=MEBIBYTE,
    in_flight_bytes_max=64 * MEBIBYTE,
    free_bytes_min=0,
    open_files_max=64,
    recent_bytes_max=1,
    scrub_bytes_per_s=0,
)

Key = tuple[int, int]


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    return b"%d-%d " % (ledger_id, entry_id) * 80


class RealBookie:
    """The storage of a bookie in a real directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def start(self) -> None:
        files = OsFileSystem(self.directory)
        self.tasks = OsTasks()
        await files.lock()
        await initialize_directory(files)
        shared = Shared(files, OsClock(), self.tasks, SETTINGS, FixedMetadata())
        self.storage = await LedgerStorage.open(shared)

    async def stop(self) -> None:
        await self.storage.close()
        await self.tasks.aclose()

    async def ask(self, call: Any) -> tuple[Any, ...]:
        done: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        call(lambda *answer: done.set_result(answer))
        return await done

    async def fill(self) -> None:
        for first in range(0, ENTRIES, IN_ADD):
            ids = range(first, first + IN_ADD)
            adds = (
                add_request(ledger_id, ids, [payload_of(ledger_id, each) for each in ids])
                for ledger_id in LEDGERS
            )
            answers = [self.ask(partial(self.storage.add, request)) for request in adds]
            assert await asyncio.gather(*answers) == [(Code.OK,)] * len(LEDGERS)

    async def read(self, key: Key) -> tuple[Code, bytes | None]:
        code, data = await self.ask(partial(self.storage.read, StoredRead(*key)))
        return code, data

    async def unreadable(self) -> set[Key]:
        """The entries that are answered as unknown. All others must have the right bytes.

        These reads report the same entries to the repair.
        """
        found = set()
        for key in ((ledger, each) for ledger in LEDGERS for each in range(ENTRIES)):
            code, data = await self.read(key)
            if code is Code.IO_ERROR:
                found.add(key)
            else:
                assert (code, data) == (Code.OK, entry(*key, payload_of(*key)))
        assert self.reported() == found
        return found

    def flip(self, count: int) -> None:
        """Flip bytes in the records of the finished files."""
        random = Random(1)
        files = list(self.storage._keeper.finished)
        assert len(files) > 2
        for _ in range(count):
            file = random.choice(files).entry
            at = random.randrange(RECORDS_START, file.data_end)
            with (self.directory / file.slot).open("r+b", buffering=0) as opened:
                (before,) = os.pread(opened.fileno(), 1, at)
                os.pwrite(opened.fileno(), bytes([before ^ (1 << random.randrange(8))]), at)
                os.fsync(opened.fileno())

    async def scrubbed(self) -> set[Key]:
        await self.storage.scrubber.scrub()
        return self.reported()

    def reported(self) -> set[Key]:
        """The damaged entries that wait for their repair. They are forgotten."""
        return {
            (ledger_id, entry_id)
            for ledger_id, ids in self.storage.take_damaged()
            for entry_id in ids
        }


async def test_a_scrub_finds_all_damaged_entries_of_1000_flipped_bytes(tmp_path: Path) -> None:
    bookie = RealBookie(tmp_path / "data")
    await bookie.start()
    await bookie.fill()
    assert await bookie.scrubbed() == set()
    bookie.flip(FLIPS)
    reported = await bookie.scrubbed()
    assert reported == await bookie.unreadable()
    assert len(reported) > FLIPS // 2
    assert bookie.storage.counters.scrub_damaged_records > FLIPS // 2
    for ledger_id, entry_id in reported:
        stored = entry(ledger_id, entry_id, payload_of(ledger_id, entry_id))
        assert await bookie.storage.store_repaired(ledger_id, entry_id, stored) is Code.OK
    assert await bookie.unreadable() == set()
    assert await bookie.scrubbed() == set()
    await bookie.stop()
    await bookie.start()
    assert await bookie.unreadable() == set()
    await bookie.stop()
