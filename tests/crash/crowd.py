"""Many requests at once, with failing peers, full or failing disks, and stops under load.

`Run` sends its requests one by one. Here, the pages of many readings arrive in one turn of the
event loop, callbacks fail, readings are cancelled, files replace each other in the pool, the disk
has no room or fails, and a stop begins while requests are pending. These rules hold:

- Every request is answered once, even if others fail. No task of the bookie ends with an error. The
  error of a callback is reported to the event loop.
- One turn of the event loop processes a bounded number of records.
- No file is closed, removed or reused while a reading that may use it is running.
- Descriptors are bounded, and after a stop none is open.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from unittest import mock

from bookie_server.errors import StorageError
from bookie_server.ports import Standing
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.reading import readings, reads
from ledgerlog_spark.model import Code
from tests.crash.machine import RANGES_MAX
from tests.crash.model import ViolationError
from tests.crash.modes import DIRECT, Mode
from tests.crash.requests import Requests
from tests.crash.run import Run

N = TypeVar("N")
R = TypeVar("R")

RECORDS_PER_TURN = 4
"""Number of records that readings of one kind process in one turn."""
WORK_PER_TURN_MAX = 20
"""Maximum number of records that are begun or continued in one turn: by three kinds of readings,
and by the reads of a group."""
CARELESS_PART = 0.05
GRID_US = 1_000
ANSWERED_EVENTS_MAX = 60_000
WIDE_RUN = 64
IDLE_MS = 200
"""Maximum time of the commits that run after everything is answered."""
NEVER_MS = 24 * 3_600_000
"""An interval between checkpoints that is longer than a run, so a checkpoint runs only on
request."""
ANSWERED_MS_MAX = 60_000
"""Time in which all requests are answered: a full disk and a metadata check take 5 s each."""


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Turns of a few records, so that dozens of requests need many of them."""
    with contextlib.ExitStack() as patches:
        for module in (readings, reads):
            patches.enter_context(mock.patch.object(module, "RECORDS_PER_TURN", RECORDS_PER_TURN))
        patches.enter_context(mock.patch.object(reads, "RECORDS_PER_PORTION", RECORDS_PER_TURN))
        yield


class Work:
    """The work of the readings of one storage in each turn of the loop, without peers' calls.

    Attributes:
        most: The largest work in one turn so far.
        is_watched: Whether reads count now.
    """

    def __init__(self, run: Run) -> None:
        self._scheduler = run.machine.scheduler
        self._requests = run.requests
        self._turn = 0
        self._begun = 0
        self._gone_on: set[object] = set()
        self.most = 0
        self.is_watched = True

    def watch(self, storage: LedgerStorage) -> None:
        """Begin to count the work of a storage."""
        reader: Any = storage._reader
        find = reader.find

        def counted_find(*arguments: int) -> Any:
            self._count(None)
            return find(*arguments)

        reader.find = counted_find
        for name in ("read_entry", "read_batch", "compare"):
            setattr(reader, name, self._counting(getattr(reader, name)))

    def _counting(
        self, read: Callable[..., Generator[N, bytes, R]]
    ) -> Callable[..., Generator[N, bytes, R]]:
        def counted(*arguments: Any) -> Generator[N, bytes, R]:
            reading, mark = read(*arguments), object()
            data: Any = None
            while True:
                self._count(mark)
                try:
                    need = reading.send(data)
                except StopIteration as end:
                    result: R = end.value
                    return result
                data = yield need

        return counted

    def _count(self, gone_on: object | None) -> None:
        if self._requests.is_sending or not self.is_watched:
            return
        if self._turn != self._scheduler.turns:
            self._turn, self._begun = self._scheduler.turns, 0
            self._gone_on.clear()
        if gone_on is None:
            self._begun += 1
        else:
            self._gone_on.add(gone_on)
        work = self._begun + len(self._gone_on)
        self.most = max(self.most, work)
        if work > WORK_PER_TURN_MAX:
            raise ViolationError(f"a turn of the loop looks at {work} records")


class Crowd:
    """One seeded run.

    Attributes:
        run: The requests, and the model of their answers.
        seen: Situations that occurred.
    """

    def __init__(self, seed: int, modes: Sequence[Mode] = DIRECT) -> None:
        self.run = run = Run(seed, modes)
        run.intervals_ms = (100, NEVER_MS)
        self.random = run.random
        self.machine = machine = run.machine
        machine.settings = replace(machine.settings, open_files_max=self.random.choice((8, 64)))
        machine.grid_us = self.random.choice((1, GRID_US))
        machine.disk.cold_part = self.random.choice((0.3, 0.9))
        machine.metadata.pause = self._pause
        run.requests = Requests(self.random, CARELESS_PART)
        machine.on_host = run.requests.watch
        run.requests.watch(machine.host)
        self.work = Work(run)
        self.seen: Counter[str] = Counter()
        self._listings: list[Callable[[], None]] = []

    async def _pause(self) -> None:
        await self.machine.host.sleep_us(self.random.choice((1, 500, 3_000, 20_000)))

    def play(self, rounds: int = 4) -> None:
        run, random = self.run, self.random
        self.start()
        for _ in range(rounds):
            if random.random() < 0.5:
                self.grow()
            for _ in range(random.randrange(1, 15)):
                run.operate()
                run.let_run(random.randrange(1, 25))
            if random.random() < 0.4:
                self.be_short()
            if random.random() < 0.7:
                self.gather()
            random.choice((self.stop, self.fail, self.machine.crash, self.machine.lose_power))()
            self.start()
            if random.random() < 0.4:
                run.submitted.clear()  # tickets of the previous process
                self.gather()
                self.machine.scheduler.run_for(IDLE_MS)
            self.work.is_watched = False
            run.check_all()
            self.work.is_watched = True
            for noted in (run.submitted, run.accepted, run.denied):
                noted.clear()
        self.seen["raised"] += run.requests.raised

    def start(self) -> None:
        """Start, and watch the work of this process."""
        run = self.run
        run.come_up()
        self._listings.clear()
        if self.random.random() < 0.5:
            self.take_new_ledgers()
        storage = self.machine.serving
        self.work.watch(storage)
        self.watch_files(storage)
        for ledger_id in run.ledgers:
            storage.watch_lac(ledger_id, lambda _lac: run.requests.fail_at_random())

    def take_new_ledgers(self) -> None:
        """Choose ledgers that are new to this bookie. Other clients have closed some of them."""
        run = self.run
        for place in range(len(run.ledgers)):
            ledger_id, run.ledgers_made = run.ledgers_made, run.ledgers_made + 1
            run.ledgers[place] = ledger_id
            if self.random.random() < 0.5:
                self.machine.metadata.standings[ledger_id] = Standing.NOT_WRITABLE
                run.model.fence_sent.add(ledger_id)

    def watch_files(self, storage: LedgerStorage) -> None:
        """Check each freed file against the running readings."""
        keeper: Any = storage._keeper
        drop = keeper._drop_file

        async def watched_drop(slot: str, *, is_kept: bool) -> None:
            handle = keeper._leaving.get(slot)
            if handle is not None and handle.pins and not keeper._is_closing:
                raise ViolationError(f"{slot} is dropped under {handle.pins} readings")
            self.seen["dropped"] += 1
            await drop(slot, is_kept=is_kept)

        keeper._drop_file = watched_drop

    def grow(self) -> None:
        """Fill a few files."""
        run = self.run
        for _ in range(self.random.randrange(4, 24)):
            ledger_id = self.random.choice(run.ledgers)
            self.add(ledger_id, 8, bytes(2_500))
            run.let_run(self.random.randrange(1, 60))
        self.settle()

    def add(self, ledger_id: int, count: int, payload: bytes) -> None:
        """Send the next entries of a ledger."""
        run = self.run
        first = run.next_id[ledger_id]
        run.next_id[ledger_id] = first + count
        run.number += 1
        payloads = [b"%d." % run.number + payload] * count
        run.send_add(ledger_id, range(first, first + count), payloads, is_recovery=False)

    def gather(self) -> None:
        """Many requests at the same time."""
        run, random = self.run, self.random
        if random.random() < 0.5:
            self.add(random.choice(run.ledgers), WIDE_RUN, b"")
            self.settle()
            assert run.last_sent is not None
            run.send_add(*run.last_sent, is_recovery=False)
        if random.random() < 0.2:
            run.excused = {Code.IO_ERROR}
            self.machine.disk.faults.read_errors = random.randrange(1, 6)
        for _ in range(random.randrange(20, 80)):
            self.ask(random.randrange(run.ledgers_made))
            if random.random() < 0.1:
                run.let_run(random.randrange(8))
        self.settle()
        self.machine.disk.faults.read_errors = 0
        if self.machine.serving.failure is not None:
            # The file that was read would have become the next file.
            self.machine.crash()
            run.submitted.clear()
            run.excused = set()
            self.start()
        run.excused = set()

    def ask(self, ledger_id: int) -> None:
        run, random = self.run, self.random
        choice = random.random()
        if choice < 0.65:
            run.read(ledger_id)
        elif choice < 0.75:
            run.read_batch(ledger_id)
        elif choice < 0.9:
            listing = self.listing(ledger_id)
            self._listings.append(self.machine.host.begin("listing", listing))
        elif choice < 0.92:
            run.drop(ledger_id)
        elif choice < 0.95:
            reclaiming = self.machine.host.begin("reclaim", self.machine.serving.reclaim())
            self._listings.append(reclaiming)
        else:
            run.operate()
        if self._listings and random.random() < 0.1:
            self.seen["given up"] += 1
            self._listings.pop(random.randrange(len(self._listings)))()

    async def listing(self, ledger_id: int) -> None:
        """A list of entries gets its answer, even if other requests are cancelled."""
        model = self.run.model
        was_unknown = model.may_be_unknown(ledger_id)
        try:
            await self.machine.serving.entries_held(ledger_id, RANGES_MAX)
        except StorageError as error:
            is_unknown = was_unknown or model.may_be_unknown(ledger_id)
            if not self.run.excused and not is_unknown:
                raise ViolationError(f"what is held of {ledger_id} is not told") from error

    def settle(self) -> None:
        """Wait until all requests are answered."""
        ends_us = self.machine.scheduler.now_us + 1_000 * ANSWERED_MS_MAX
        for _ in range(ANSWERED_EVENTS_MAX):
            is_late = self.machine.scheduler.now_us > ends_us
            if self.run.requests.is_settled or is_late or not self.machine.scheduler.step():
                break
        self.run.requests.require_all_answered()

    def be_short(self) -> None:
        """For a while, the disk has no room, or the process has no descriptors."""
        run, machine, random = self.run, self.machine, self.random
        run.excused = {Code.READ_ONLY, Code.BUSY}
        retry_ms = machine.settings.allocation_retry_ms
        faults = machine.disk.faults
        if random.random() < 0.7:
            left_bytes = random.choice((0, random.randrange(1 << 11), random.randrange(1 << 17)))
            faults.capacity_bytes = machine.disk.used_bytes() + left_bytes
        else:
            faults.descriptors_max = len(machine.files.opened) + random.randrange(3)
        for _ in range(random.randrange(5, 25)):
            run.operate()
            machine.scheduler.run_for(random.choice((0, 2, 50, retry_ms)))
        machine.check_descriptors()
        self.seen["short"] += not machine.serving.is_writable
        faults.capacity_bytes = faults.descriptors_max = None
        machine.scheduler.run_for(2 * retry_ms)
        self.settle()
        if not machine.serving.is_writable:
            raise ViolationError("the disk has room again, and adds are refused")
        run.excused = set()

    def fail(self) -> None:
        """The device fails once. Accepted requests are answered, and no others are accepted."""
        run, machine, random = self.run, self.machine, self.random
        run.excused = {Code.IO_ERROR, Code.READ_ONLY}
        if random.random() < 0.7:
            self.take_new_ledgers()
        setattr(machine.disk.faults, random.choice(("sync_errors", "write_errors")), 1)
        for _ in range(random.randrange(5, 15)):
            run.operate()
            run.let_run(random.randrange(8))
        self.settle()
        faults = machine.disk.faults
        faults.sync_errors = faults.write_errors = 0
        self.seen["failed"] += machine.serving.failure is not None
        if random.random() < 0.5:
            self.stop()
        machine.lose_power()
        run.excused = set()

    def stop(self) -> None:
        """A clean stop while requests arrive. Each request is answered, and no file stays open."""
        run, machine, random = self.run, self.machine, self.random
        run.excused = {*run.excused, Code.IO_ERROR}
        ended: list[bool] = []

        async def close() -> None:
            await machine.serving.close()
            ended.append(True)

        machine.check_descriptors()
        machine.host.spawn("stop", close())
        while not ended:
            if random.random() < 0.3:
                run.operate()
            run.let_run(random.randrange(1, 6))
        for _ in range(3):
            run.operate()
        self.settle()
        if machine.files.opened:
            raise ViolationError(f"still open: {[file.name for file in machine.files.opened]}")
        self.seen["stopped"] += 1
        machine.crash()
        run.excused = set()
