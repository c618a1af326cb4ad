"""The storage of one bookie on a simulated disk, and entries to store in it."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any

from bookie_server.core.background.compaction import ALL_PERCENT
from bookie_server.core.directory_identity import FoundOutside
from bookie_server.core.ledger_state import HeldLedgers, decode_states, encode_states
from bookie_server.core.manifest_codec import Manifest, decode_manifest, manifest_encoding
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead, StoredSliceRead
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import StorageError
from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.storage.files.entry_log_file import FinishedFile, OpenFile
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.sim.disk import SimDisk, SimFileSystem
from tests.sim.runtime import Host, Scheduler

RANGES_MAX = 1 << 20
KEY = bytes(range(20))
SMALL = StorageSettings(
    file_size_bytes=1 << 16,
    pieces_max=50,
    in_flight_bytes_max=1 << 20,
    group_bytes_max=1 << 14,
    recent_bytes_max=1 << 13,
    free_bytes_min=1 << 14,
    open_files_max=1_024,
)
"""Sizes at which rolls, evictions and cold reads happen within a few dozen adds."""


def entry(ledger_id: int, entry_id: int, payload: bytes = b"", lac: int | None = None) -> bytes:
    """A stored entry without a digest, because the bookie never verifies the digest."""
    lac = entry_id - 1 if lac is None else lac
    return struct.pack(">qqqq", ledger_id, entry_id, lac, len(payload)) + payload


def add_request(
    ledger_id: int,
    entry_ids: Sequence[int],
    payloads: Sequence[bytes] | bytes = b"payload",
    *,
    key: bytes = KEY,
    is_recovery: bool = False,
    lac: int | None = None,
) -> StoredAdd:
    if isinstance(payloads, bytes):
        payloads = [payloads] * len(entry_ids)
    entries = [entry(ledger_id, i, p, lac) for i, p in zip(entry_ids, payloads, strict=True)]
    ids = entry_ids if isinstance(entry_ids, range) else tuple(entry_ids)
    return StoredAdd(ledger_id, ids, tuple(map(len, entries)), b"".join(entries), key, is_recovery)


def encode_manifest(manifest: Manifest) -> bytes:
    """The whole file, encoded in one turn."""
    try:
        next(manifest_encoding(manifest, max(1, len(manifest.files))))
    except StopIteration as end:
        return bytes(end.value)
    raise AssertionError("all files are one part")


def unsynced_bytes(machine: Machine) -> int:
    names = machine.disk.seen_names
    slots = (content for name, content in names.items() if name.startswith("slot-"))
    return sum(len(data) for content in slots for _, data in content.unsynced)


class FixedMetadata:
    """A metadata store that always returns the same state of a ledger.

    Attributes:
        standings: The states of ledgers that differ from the common state.
        created: The transactions that created the ledgers; 1 for other ledgers.
        pause: Time before each answer.
    """

    def __init__(self, standing: Standing = Standing.OPEN_WITH_ME) -> None:
        self.standing = standing
        self.standings: dict[int, Standing] = {}
        self.created: dict[int, int] = {}
        self.asked: list[int] = []
        self.pause: Callable[[], Awaitable[None]] | None = None

    async def check(self, ledger_id: int) -> MetadataAnswer:
        self.asked.append(ledger_id)
        if self.pause is not None:
            await self.pause()
        standing = self.standings.get(ledger_id, self.standing)
        created = 0 if standing is Standing.UNKNOWN else self.created.get(ledger_id, 1)
        return MetadataAnswer(standing, created)


class Machine:
    """A simulated disk, and the storage of a bookie on it, which can be killed and started again.

    Attributes:
        is_new: No start has made the directory's first MANIFEST durable yet.
        on_host: Called with each new process before anything runs in it.
        grid_us: The value for its files (see `SimFileSystem`).
        path: Path of the directory.
        found: What the bookie's record shows about the directory.
        journal_disks: The disks of journal directories, by path. `journal_disk` is used for all
            other paths.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        settings: StorageSettings = SMALL,
        standing: Standing = Standing.OPEN_WITH_ME,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.scheduler = scheduler or Scheduler()
        self.disk = SimDisk(Random(seed))
        self.journal_disk = SimDisk(Random(seed + 1))
        self.settings = settings
        self.metadata = FixedMetadata(standing)
        self.host = Host(self.scheduler, "bookie")
        self.storage: LedgerStorage | None = None
        self.starts = 0
        self.is_new = True
        self.on_host: Callable[[Host], None] = lambda _host: None
        self.grid_us = 1
        self.path = "/data"
        self.found = FoundOutside()
        self.journal_disks: dict[str, SimDisk] = {}

    def make_files(self) -> SimFileSystem:
        self.files = SimFileSystem(self.disk, self.host)
        self.files.grid_us = self.grid_us
        self.files.path = self.path
        return self.files

    def start(self) -> LedgerStorage:
        """Open the storage and run until it serves."""
        self.storage = storage = self.scheduler.run(self.opening(), self.host)
        has_next = storage._keeper.spare is not None or storage._keeper.full is not None
        assert has_next or not storage.is_writable, "adds are accepted, and there is no next file"
        return storage

    async def opening(self) -> LedgerStorage:
        self.starts += 1
        files = self.make_files()
        if self.is_new:
            await initialize_directory(files)
            self.is_new = False
        shared = Shared(
            files=files,
            clock=self.host,
            tasks=self.host,
            settings=self.settings,
            metadata=self.metadata,
            open_directory=self.open_journal,
        )
        shared.found = self.found
        return await LedgerStorage.open(shared)

    def open_journal(self, path: str) -> SimFileSystem:
        return SimFileSystem(self.journal_disks.get(path, self.journal_disk), self.host)

    @property
    def disks(self) -> list[SimDisk]:
        return [self.disk, self.journal_disk, *self.journal_disks.values()]

    def lose_power(self) -> None:
        self.host.kill()
        for disk in self.disks:
            disk.lose_power()
        self._replace_host()

    def crash(self) -> None:
        """Kill the process. The bytes that it wrote stay in the page cache."""
        self.host.kill()
        for disk in self.disks:
            disk.crash_process()
        self._replace_host()

    def stop(self) -> None:
        """Stop cleanly."""
        assert self.storage is not None
        self.check_descriptors()
        self.scheduler.run(self.storage.close(), self.host)
        assert self.files.opened == [], [file.name for file in self.files.opened]
        self.host.kill()
        self._replace_host()

    def check_states(self) -> None:
        """Check that the ledger-state file and the changed states together are all states."""
        states, stored = self.serving._states, self.stored_states()
        unnoted = {
            ledger_id
            for ledger_id in {*states, *stored} - states.changed
            if encode_states(1, states, [ledger_id]) != encode_states(1, stored, [ledger_id])
        }
        assert not unnoted, f"not in the ledger-state file, and not noted: {unnoted}"

    def stored_states(self) -> HeldLedgers:
        """The states in the committed part of the ledger-state file on the device."""
        manifest = self.manifest()
        content = self.disk.durable_names[manifest.state_file].durable
        return decode_states(bytes(content[: manifest.state_bytes]), manifest.state_file)

    def check_descriptors(self) -> None:
        """Check that the pool counts all open files, and that each has a reason to be open."""
        storage = self.serving
        pool, keeper = storage._shared.files, storage._keeper
        assert len(self.files.opened) <= pool.open_count <= self.settings.open_files_max
        files: list[OpenFile | FinishedFile] = [*keeper.opened, *keeper._unmarked]
        files += [] if keeper.spare is None else [keeper.spare]
        known = {file.entry.slot for file in files} | set(keeper._leaving) | keeper.handover.taken
        # The maintenance may hold the file that it prepared, and one that it cuts. Compaction may
        # hold the file that it prepares.
        assert len(set(pool.held_names) - known) <= 3, (pool.held_names, known)

    def _replace_host(self) -> None:
        self.storage = None
        self.host = Host(self.scheduler, f"bookie start {self.starts}")
        self.on_host(self.host)

    # Calls that wait for their answer.

    def ask(self, call: Callable[[Callable[..., None]], None]) -> tuple[Any, ...]:
        answers: list[tuple[Any, ...]] = []
        call(lambda *answer: answers.append(answer))
        self.scheduler.run_until(lambda: bool(answers))
        assert len(answers) == 1
        return answers[0]

    @property
    def serving(self) -> LedgerStorage:
        assert self.storage is not None
        return self.storage

    def add(self, *arguments: Any, **options: Any) -> Code:
        request = add_request(*arguments, **options)
        return self.ask(lambda on_done: self.serving.add(request, on_done))[0]

    def read(self, ledger_id: int, entry_id: int, **options: Any) -> tuple[Code, bytes | None]:
        request = StoredRead(ledger_id, entry_id, **options)
        code, data = self.ask(lambda on_done: self.serving.read(request, on_done))
        return code, data

    def fence(self, ledger_id: int, key: bytes = KEY) -> tuple[Code, bytes | None]:
        return self.read(ledger_id, -1, fence_key=key, is_recovery=True)

    def drop(self, ledger_id: int) -> Code:
        return self.ask(lambda on_done: self.serving.drop(ledger_id, on_done))[0]

    def reclaim(self) -> None:
        self.scheduler.run(self.serving.reclaim(), self.host)

    def compact(self, live_percent: int = ALL_PERCENT) -> None:
        """Compact the files with less than a live part, and wait for the end."""
        self.scheduler.run(self.serving.compactor.compact(live_percent), self.host)

    def scrub(self) -> None:
        """Continue or begin a pass of the scrub, and wait for its end."""
        self.scheduler.run(self.serving.scrubber.scrub(), self.host)

    def droppable(self) -> Sequence[int]:
        return self.scheduler.run(self.serving.droppable(), self.host)

    def slots(self) -> set[str]:
        """Slot files in the directory."""
        return {name for name in self.disk.seen_names if name.startswith("slot-")}

    def manifest(self) -> Manifest:
        """The MANIFEST on the device."""
        return decode_manifest(bytes(self.disk.durable_names["MANIFEST"].durable))

    def read_batch(
        self, ledger_id: int, first: int, count: int = 0, size: int = 1 << 20
    ) -> tuple[Code, Sequence[bytes]]:
        request = StoredBatchRead(ledger_id, first, count, size)
        code, entries = self.ask(lambda on_done: self.serving.read_batch(request, on_done))
        return code, entries

    def read_slices(
        self, ledger_id: int, entries: Any, size: int = 1 << 20
    ) -> tuple[Code, Sequence[bytes]]:
        request = StoredSliceRead(ledger_id, entries, size)
        code, slices = self.ask(lambda on_done: self.serving.read_slices(request, on_done))
        return code, slices

    def held(self, ledger_id: int) -> Sequence[tuple[int, int]] | StorageError:
        try:
            listing = self.serving.entries_held(ledger_id, RANGES_MAX)
            return list(self.scheduler.run(listing, self.host))
        except StorageError as error:
            return error


def is_cut(machine: Machine, work: Callable[[], Coroutine[Any, Any, Any]], number: int) -> bool:
    """Run `work`, and end the process after a disk operation. Return False if it ended before."""
    ended: list[object] = []
    reached, left = False, number

    def count(_number: int, _name: str) -> None:
        nonlocal left, reached
        left -= 1
        reached |= left == 0

    async def watched() -> None:
        ended.append(await work())

    machine.disk.on_operation = count
    machine.host.spawn("work", watched())
    machine.scheduler.run_until(lambda: reached or bool(ended))
    machine.disk.on_operation = None
    (machine.lose_power if number % 3 else machine.crash)()
    return reached
