"""A bookie of the simulator: the real storage on a simulated disk, with crashes and restarts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bookie_server.core.doubt import standing_of
from bookie_server.core.manifest_codec import FileState, decode_manifest
from bookie_server.core.record import JournalRecordKind
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import StorageError, UnusableDirectoryError
from bookie_server.ports import MetadataAnswer
from bookie_server.service.collector import Collector
from bookie_server.service.releaser import Releaser
from bookie_server.storage.compaction.cycle import Compacted
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.ledger_storage import LedgerStorage
from ledgerlog_spark.model import NO_ENTRY, Code
from tests.sim.checker import require
from tests.sim.directories import SimDirectories
from tests.sim.disk import SECTOR, SimDisk, tear_tail
from tests.sim.late_add import late_add
from tests.sim.records import RecordsFromStore
from tests.sim.runtime import Host

if TYPE_CHECKING:
    from tests.sim.world import World

SETTINGS = StorageSettings(
    file_size_bytes=1 << 16,
    in_flight_bytes_max=1 << 20,
    recent_bytes_max=1 << 12,
    free_bytes_min=0,
    open_files_max=1_024,
    metadata_check_ms=200,
    allocation_retry_ms=20,
    pool_files_max=1,
    tombstone_keep_s=60,
)


EVERY_FILE_PERCENT = 101
"""Files without a deleted entry are compacted too, because few files in a schedule have one."""
RELEASE_PAUSE_MS = 1
UNTIL_HEALED_US = 1 << 60
COLLECTOR_INTERVAL_MS = 3_600_000
"""Longer than any schedule, so passes run only when a schedule requests them."""


class MetadataFromStore:
    """The lazy metadata check, which reads the simulated store directly."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    async def check(self, ledger_id: int) -> MetadataAnswer:
        record = self._world.store.records.get(ledger_id)
        if record is None:
            return MetadataAnswer(standing_of(None, self._name))
        return MetadataAnswer(standing_of(record.value, self._name), record.version.incarnation)


class ListingFromStore:
    """The listing for garbage collection, from the simulated store, with delayed answers."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        await self._host.sleep_us(500)
        listed = self._world.store.listed(f"{self._host.name} {self._world.scheduler.now_us}")
        return [ledger_id for ledger_id in ledger_ids if ledger_id not in listed]

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        await self._host.sleep_us(500)
        return [ledger_id for ledger_id in ledger_ids if ledger_id not in self._world.store.records]


class SimBookie:
    """One bookie, through all its restarts.

    Attributes:
        is_up: Whether its process runs. The bookie serves as soon as its storage is open.
        boots: Number of starts.
        directories: Its directories and their disks.
        is_rotten: Whether a bit of its files has flipped.
        is_in_limbo: Whether it began in limbo after it had lost its directories.
        unanswered: Number of requests that its storage got and has not answered.
        last_adds: The newest adds of writers that it got.
        refuses_adds: Whether it answers all adds with BUSY.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        number = int(name.lstrip("b"))
        self.directories = SimDirectories(world.draws.seed * 64 + number, world.options.directories)
        self.storage: BookieStorage | None = None
        self.host: Host | None = None
        self.is_up = True
        self.boots = 0
        self.collector: Collector | None = None
        self.latency_us = (20, 400)
        self.settings = replace(SETTINGS, pieces_max=world.options.pieces_max)
        self.is_rotten = self.is_in_limbo = False
        self.down_us = -1 << 60
        self.unanswered = 0
        self.last_adds: deque[StoredAdd] = deque(maxlen=3)
        self.refuses_adds = False
        self._answers = 0
        self._writable_changes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def disk(self) -> SimDisk:
        """The disk of its first directory."""
        return self.directories.disks[0]

    def start(self) -> None:
        """Start the bookie. Requests during the boot wait, as on a listening socket."""
        self.is_up = True
        self.boots += 1
        faults = self.world.faults
        self._note_boot()
        self.host = Host(self.world.scheduler, f"{self.name}.{self.boots}")
        self.host.spawn("boot", self._boot(self.host))
        if faults.happens(self.world.options.boot_crash_rate, "boot crash", self.name, self.boots):
            delay_us = faults.draws.integer(1, 6_000, "boot crash at", self.name, self.boots)
            self.host.call_later(delay_us, lambda: self.world.crash(self.name, "boot"))

    async def _boot(self, host: Host) -> None:
        metadata = MetadataFromStore(self.world, self.name)
        try:
            storage = await self.directories.open(host, self.latency_us, self.settings, metadata)
        except (StorageError, UnusableDirectoryError):
            host.call_later(1_000, lambda: self.world.stop_failed(self.name, host))
            return
        if self.host is not host:
            return
        self._note_boot()
        self.storage = storage
        storage.on_state_change = self._on_state_change
        for directory in storage.directories:
            directory.compactor.on_compacted = self._on_compacted
        self.collector = Collector(
            storage=storage,
            listing=ListingFromStore(self.world, host),
            releaser=Releaser(
                storage,
                RecordsFromStore(self.world, self.name, host),
                host,
                self.name,
                RELEASE_PAUSE_MS,
            ),
            tasks=host,
            interval_ms=COLLECTOR_INTERVAL_MS,
            on_pass=lambda collected: self.world.note(self.name, collected),
        )
        self.collector.start()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request()

    def _note_boot(self) -> None:
        """Record a boot, which explains failures while it lasts. The first boot takes no time."""
        if self.boots > 1:
            self.world.faults.lasts("boot")

    def _on_compacted(self, compacted: Compacted) -> None:
        if compacted.files_freed:
            self.world.note(self.name, compacted)
            self.world.checkers.mark("compacted")

    def _on_state_change(self) -> None:
        """If the storage has failed, stop the bookie after its pending answers."""
        self._writable_changes += 1
        storage, host = self.storage, self.host
        if storage is None or host is None:
            return
        for directory in storage.directories:
            if directory.failure is not None:
                host.call_soon(partial(self._ask_failed, directory))
        if storage.failure is not None:
            host.call_later(8_000, lambda: self.world.stop_failed(self.name, host))
        elif self.has_failed_directory:
            self.world.note(self.name, "has lost a directory, and is read-only")
            self.world.checkers.mark("one of two directories failed")
            self.world.faults.lasts("disk", UNTIL_HEALED_US)

    def _ask_failed(self, storage: LedgerStorage) -> None:
        """Check PROTOCOL.md#L38: after a failed write or sync, no answer means "absent", and
        nothing is stored.
        """

        def judge(code: Code, *_: object) -> None:
            is_silent = code is not Code.OK and not code.is_absent
            require(is_silent, "L38", f"{self.name}, whose disk failed, answers {code.name}")

        for ledger_id, checker in self.world.checkers.by_ledger.items():
            nobody_has = max(checker.payloads, default=NO_ENTRY) + 1
            storage.read(StoredRead(ledger_id, nobody_has), judge)
            storage.read(StoredRead(ledger_id, NO_ENTRY), judge)
            storage.read_batch(StoredBatchRead(ledger_id, nobody_has, 3, 1 << 20), judge)
            storage.read_lac(ledger_id, judge)
            storage.add(late_add(checker, ledger_id), judge)

    def require_nothing_in_flight(self) -> None:
        """Check that no bytes are in flight, because no request waits (PROTOCOL.md#V11)."""
        parts = () if self.storage is None else self.storage.directories
        left = sum(directory._health.in_flight_bytes for directory in parts)
        require(not left, "V11", f"{self.name} counts {left} bytes in flight, nothing is")

    def stop(self, *, power: bool) -> None:
        """Kill the process. With `power`, also lose the data that was not synced."""
        self.is_up = False
        self.down_us = self.world.scheduler.now_us
        self._waiting = []
        self.unanswered = 0
        if self.host is not None:
            self.host.kill()
            self.host = None
        self.storage = self.collector = None
        self.directories.stop(power=power)

    def serve(self, request: Callable[[BookieStorage], None]) -> bool:
        """Pass a request to the storage, now or when it is open. False if the process is down."""
        if not self.is_up:
            return False
        if self.host is None:
            self.start()
        if self.storage is None:
            self._waiting.append(lambda: self._run(request))
        else:
            self._run(request)
        return True

    def _run(self, request: Callable[[BookieStorage], None]) -> None:
        assert self.storage is not None
        request(self.storage)

    @property
    def has_failed(self) -> bool:
        """Whether its disk failed. The process ends a moment later."""
        return self.storage is not None and self.storage.failure is not None

    @property
    def has_failed_directory(self) -> bool:
        """Whether a directory failed. The bookie serves without it until it is restarted."""
        parts = () if self.storage is None else self.storage.directories
        return any(directory.failure is not None for directory in parts)

    @property
    def is_registered(self) -> bool:
        """Whether clients find the bookie. A dead bookie is listed until its session ends."""
        now_us, session_us = self.world.scheduler.now_us, self.world.options.session_ms * 1_000
        return self.is_up or now_us - self.down_us < session_us

    def stop_cleanly(self) -> None:
        """End the process as SIGTERM does. Requests during the stop get no answer."""
        host, storage = self.host, self.storage
        if host is None or storage is None:
            return
        self.is_up = False

        async def closing() -> None:
            await storage.close()
            host.call_soon(lambda: self.stop(power=False) if self.host is host else None)

        host.spawn("stop", closing())

    def tear(self) -> None:
        """Lose power in the middle of a write. The next boot cuts the torn tail."""
        active = self.storage and self.storage.directories[0]._keeper.active
        self.stop(power=True)
        content = active and self.disk.durable_names.get(active.entry.slot)
        if active and content and active.end + SECTOR <= active.entry.size_bytes:
            tear_tail(content, active.end)

    def fences(self, *, is_vouched: bool = True) -> list[tuple[str, int]]:
        """Return (file, offset) of each written fence; with `is_vouched`, of proved fences only.

        A fence is proved if later data proves that it was synced.
        """
        found: list[tuple[str, int]] = []
        for name, content in sorted(self.disk.durable_names.items()):
            if not name.startswith("slot-"):
                continue
            end = content.vouched_end if is_vouched else len(content.durable)
            for offset in range(0, end, SECTOR):
                head = content.durable[offset : offset + 6]
                if head[:4] == b"LREC" and head[5] == JournalRecordKind.FENCE:
                    found.append((name, offset))
        return found

    def vouched(self) -> dict[str, int]:
        """Return each entry-log file, with the offset up to which a boot takes no damage as torn.

        In a file that the durable MANIFEST lists as finished, this is the end of the file.
        """
        names = self.disk.durable_names
        ends = {n: c.vouched_end for n, c in names.items() if n.startswith("slot-")}
        if "MANIFEST" in names:
            for file in decode_manifest(bytes(names["MANIFEST"].durable)).files:
                if file.state is FileState.FINISHED and file.slot in names:
                    ends[file.slot] = len(names[file.slot].durable)
        return {name: end for name, end in ends.items() if end > 0}

    def rot(self, name: str, offset: int, bit: int) -> None:
        """Flip one bit of a file. Nothing notices this before the bit is read."""
        self.disk.flip_bit(name, offset, bit)
        self.is_rotten = True
        self.world.note(self.name, f"{name} rots at {offset}")
        self.world.checkers.mark("rot")

    def rot_fence(self, *, is_vouched: bool = True) -> None:
        """Flip a bit of the last fence that the bookie wrote."""
        name, offset = self.fences(is_vouched=is_vouched)[-1]
        self.rot(name, offset + 20, 3)

    def make_slow(self, latency_us: tuple[int, int]) -> None:
        """From now on, each operation of the disk takes a time in this range."""
        self.latency_us = latency_us
        self.directories.make_slow(latency_us)

    def heal(self) -> None:
        """End all faults of the disks, and the process if a directory has failed."""
        self.directories.heal()
        self.make_slow((20, 400))
        if self.has_failed_directory and not self.has_failed:
            self.world.kill(self.name)

    def _may_crash(self, what: str) -> None:
        """Perhaps let the process or the machine die at the moment when it sends an answer."""
        self._answers += 1
        world, rate = self.world, self.world.options.answer_crash_rate
        # Fences are rare, and their promise is permanent, so crashes at fences are more frequent.
        rate *= 10 if what == "fence" else 1
        if world.faults.happens(rate, "answer crash", what, self.name, self._answers):
            world.scheduler.call_later(0, lambda: world.crash(self.name, "answer"))

    def _once(self, storage: BookieStorage, answered: Callable[..., None]) -> Callable[..., None]:
        """Return a function that passes the first answer on while this process lives."""
        is_open = True
        self.unanswered += 1

        def on_done(*answer: Any) -> None:
            nonlocal is_open
            require(is_open, "V1", f"{self.name} answers one request twice")
            is_open = False
            if self.storage is storage:
                self.unanswered -= 1
                answered(*answer)

        return on_done

    def _is_busy(self) -> bool:
        """Whether a request is refused before the storage, as if there were too many requests."""
        self._answers += 1
        world = self.world
        return world.faults.happens(world.options.busy_rate, "busy", self.name, self._answers)

    def add(self, request: StoredAdd, answer: Callable[[Code], None]) -> bool:
        checkers, faults = self.world.checkers, self.world.faults
        if self.refuses_adds or self._is_busy():
            answer(Code.BUSY)
            return self.is_up
        rate = self.world.options.write_back_crash_rate
        if request.is_recovery and faults.happens(
            rate, "kill", "write back", self.name, self._answers
        ):
            self.world.crash(self.name, "write back")
            return False
        if not request.is_recovery:
            self.last_adds.append(request)

        def store(storage: BookieStorage) -> None:
            is_new = not checkers.of(request.ledger_id).copies.has_begun(self.name, request)
            sent = checkers.add_begun(self.name, request)
            is_full, changes = not storage.is_writable, self._writable_changes

            def answered(code: Code) -> None:
                is_full_yet = is_full and changes == self._writable_changes
                is_taken = is_full_yet and is_new and code is Code.OK and not request.is_recovery
                require(not is_taken, "L39", f"{self.name} is full and takes {request.entry_ids}")
                checkers.add_answered(self.name, request, code, sent)
                answer(code)
                self._may_crash("add")

            storage.add(request, self._once(storage, answered))

        return self.serve(store)

    def read(self, request: StoredRead, answer: Callable[[Code, bytes | None], None]) -> bool:
        checkers = self.world.checkers
        if self._is_busy():
            answer(Code.BUSY, None)
            return self.is_up

        def look(storage: BookieStorage) -> None:
            promise = checkers.promise(self.name, request.ledger_id, request.entry_id)

            def answered(code: Code, stored: bytes | None) -> None:
                checkers.read_answered(self.name, request, code, stored, promise)
                answer(code, stored)
                if request.fence_key is not None:
                    self._may_crash("fence")

            storage.read(request, self._once(storage, answered))

        return self.serve(look)

    def read_batch(
        self, request: StoredBatchRead, answer: Callable[[Code, Sequence[bytes]], None]
    ) -> bool:
        checkers = self.world.checkers
        if self._is_busy():
            answer(Code.BUSY, ())
            return self.is_up

        def look(storage: BookieStorage) -> None:
            promise = checkers.promise(self.name, request.ledger_id, request.first_entry_id)

            def answered(code: Code, stored: Sequence[bytes]) -> None:
                checkers.batch_answered(self.name, request, code, stored, promise)
                answer(code, stored)

            storage.read_batch(request, self._once(storage, answered))

        return self.serve(look)

    def read_lac(self, ledger_id: int, answer: Callable[[Code, int], None]) -> bool:
        checkers = self.world.checkers
        if self._is_busy():
            answer(Code.BUSY, NO_ENTRY)
            return self.is_up

        def look(storage: BookieStorage) -> None:
            promise = checkers.promise(self.name, ledger_id, -1)

            def answered(code: Code, lac: int) -> None:
                checkers.lac_answered(self.name, ledger_id, code, lac, promise)
                answer(code, lac)

            storage.read_lac(ledger_id, self._once(storage, answered))

        return self.serve(look)

    def take_lac(self, ledger_id: int, lac: int, key: bytes, *, is_written: bool) -> bool:
        """Handle the LAC that a writer announces or writes."""
        checkers = self.world.checkers

        def store(storage: BookieStorage) -> None:
            if not is_written:
                storage.announce_lac(ledger_id, lac, key)
                return

            def answered(code: Code) -> None:
                if code is Code.OK:
                    checkers.mark("LAC announced")
                    checkers.lac_acknowledged(self.name, ledger_id, lac)
                    self._may_crash("lac")

            storage.write_lac(ledger_id, lac, key, self._once(storage, answered))

        return self.serve(store)

    def collect(self, on_done: Callable[[], None] = lambda: None) -> None:
        """Begin a pass of garbage collection, if the bookie serves."""

        async def collect(collector: Collector, storage: BookieStorage) -> None:
            await collector.collect()
            storage.compactor.request(EVERY_FILE_PERCENT)
            on_done()

        if self.host is not None and self.collector is not None and self.storage is not None:
            self.host.spawn("garbage", collect(self.collector, self.storage))

    def peek(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return what this bookie would answer now, without the network. Start it if it is down."""
        found: list[tuple[Code, bytes | None]] = []
        self.world.restart(self.name)
        self.world.scheduler.run_until(lambda: self.is_up)
        request = StoredRead(ledger_id, entry_id)
        self.serve(
            lambda storage: storage.read(request, lambda code, stored: found.append((code, stored)))
        )
        self.world.scheduler.run_until(lambda: bool(found))
        code, stored = found[0]
        is_known = code is Code.OK or code.is_absent or self.is_rotten or self.is_in_limbo
        assert is_known, f"{self.name} cannot say: {code}"
        return stored
