"""The storage of one bookie with several directories, each on a simulated disk of its own."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from bookie_server.core.directory_identity import FoundOutside
from bookie_server.core.requests import StoredReads
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import StorageError
from bookie_server.storage.directories.opening import open_directories
from bookie_server.storage.directories.router import LedgerDirectories
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine
from tests.sim.runtime import Host, Scheduler

T = TypeVar("T")


class Several:
    """Machines with one directory each, which one process uses.

    Attributes:
        machines: One for each directory. Only their disks and files are used.
        front: Has the requests of clients. Its storage is that of all directories.
        used: The numbers of the directories of the next start.
        loss: Why the next start may have lost records, or "".
    """

    def __init__(self, count: int = 2, seed: int = 0, settings: StorageSettings = SMALL) -> None:
        self.scheduler = Scheduler()
        self.machines = [
            Machine(16 * seed + number, settings=settings, scheduler=self.scheduler)
            for number in range(count)
        ]
        self.front = Machine(seed, settings=settings, scheduler=self.scheduler)
        for number, machine in enumerate(self.machines):
            machine.path = f"/data{number}"
            machine.metadata = self.front.metadata
        self.used = list(range(count))
        self.loss = ""
        self.storage: LedgerDirectories | None = None

    def start(self) -> LedgerDirectories:
        """Open all used directories, and run until the bookie serves."""
        self.front.host = Host(self.scheduler, "bookie")
        storage = self.scheduler.run(self.opening(), self.front.host)
        assert isinstance(storage, LedgerDirectories)
        self.storage = storage
        self.front.storage = storage  # type: ignore[assignment]
        return storage

    async def opening(self) -> object:
        parts = []
        found = FoundOutside(loss=self.loss, doubt_epoch=self.doubt_epoch())
        for number in self.used:
            machine = self.machines[number]
            machine.host = self.front.host
            files = machine.make_files()
            if machine.is_new:
                await initialize_directory(files)
                machine.is_new = False
            shared = Shared(
                files, machine.host, machine.host, machine.settings, machine.metadata,
                machine.open_journal,
            )  # fmt: skip
            shared.found = found
            parts.append(shared)
        return await open_directories(parts)

    def doubt_epoch(self) -> int:
        """The newest epoch of the used directories."""
        used = [self.machines[number] for number in self.used]
        return max((m.manifest().doubt.epoch for m in used if not m.is_new), default=0)

    def epochs(self) -> list[int]:
        return [self.machines[number].manifest().doubt.epoch for number in self.used]

    @property
    def serving(self) -> LedgerDirectories:
        assert self.storage is not None
        return self.storage

    def home_of(self, ledger_id: int) -> int | None:
        """The number of the directory among all directories."""
        for number, directory in zip(self.used, self.serving.directories, strict=True):
            if directory.is_known(ledger_id):
                return number
        return None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.scheduler.run(work, self.front.host)

    def fail(self, number: int) -> None:
        """Let a directory fail at its next record, which is a LAC of one of its ledgers."""
        directory = self.serving.directories[self.used.index(number)]
        (ledger_id, *_) = directory.ledger_ids
        self.machines[number].disk.faults.sync_errors = 1
        assert self.write_lac(ledger_id) is Code.IO_ERROR
        assert directory.failure is not None

    def write_lac(self, ledger_id: int, lac: int = 0) -> Code:
        return self.front.ask(lambda done: self.serving.write_lac(ledger_id, lac, KEY, done))[0]

    def read_lac(self, ledger_id: int) -> Code:
        return self.front.ask(lambda done: self.serving.read_lac(ledger_id, done))[0]

    def reads_of(self, ledger_id: int) -> dict[str, Code]:
        """The answers to all kinds of reads that do not change the ledger."""
        together: list[Code] = []
        request = StoredReads(ledger_id, (0, 1))

        def on_some(code: Code, ids: Sequence[int], _entries: Sequence[bytes]) -> None:
            together.extend([code] * len(ids))

        count = self.serving.read_together(request, on_some)
        self.scheduler.run_until(lambda: len(together) == count)
        assert together == [together[0]] * 2
        held = self.front.held(ledger_id)
        return {
            "read": self.front.read(ledger_id, 0)[0],
            "recovery": self.front.read(ledger_id, -1, is_recovery=True)[0],
            "batch": self.front.read_batch(ledger_id, 0)[0],
            "slices": self.front.read_slices(ledger_id, [(0, [(0, 1)])])[0],
            "together": together[0],
            "lac": self.read_lac(ledger_id),
            "list": Code.IO_ERROR if isinstance(held, StorageError) else Code.NO_LEDGER,
        }

    def end(self, how: str) -> None:
        """Stop cleanly, kill the process ("crash"), or cut the power ("lose_power")."""
        if how == "stop":
            self.run(self.serving.close())
        self.front.host.kill()
        if how != "stop":
            for machine in self.machines:
                for disk in machine.disks:
                    (disk.lose_power if how == "lose_power" else disk.crash_process)()
        self.front.storage = self.storage = None


def start_is_cut(several: Several, number: int, how: str) -> bool:
    """Start, and end the process after a disk operation. Return False if it serves before."""
    left, has_started = number, False

    def count(_number: int, _name: str) -> None:
        nonlocal left
        left -= 1

    async def starting() -> None:
        nonlocal has_started
        await several.opening()
        has_started = True

    several.front.host = Host(several.scheduler, f"start that is cut after {number}")
    for machine in several.machines:
        machine.disk.on_operation = count
    several.front.host.spawn("start", starting())
    several.scheduler.run_until(lambda: left <= 0 or has_started)
    for machine in several.machines:
        machine.disk.on_operation = None
    several.end(how)
    return not has_started
