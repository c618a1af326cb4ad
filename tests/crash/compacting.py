"""Random runs that compact most of the time, while requests change the copied entries.

Each round fills a few files, drops some of the ledgers in them, and compacts. Meanwhile, ledgers
are dropped, forgotten, rewritten by recovery, and read, and the device may have no room. Then the
process stops or is killed, or the power fails, usually before the compaction ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from unittest import mock

from bookie_server.core.requests import StoredRead
from bookie_server.storage import slices
from bookie_server.storage.files import active_index, manifest
from ledgerlog_spark.model import Code
from tests.crash.modes import SYNCED, Mode
from tests.crash.run import Run
from tests.sim.runtime import Host

LATER_MS = 2_000
"""A time that is longer than the minimum age at which a tombstone is forgotten."""
UNITS_PER_TURN = 3
SCRUBS_PART = 0.1
"""The part of the requests before which a scrub is requested."""


@contextlib.contextmanager
def short_slices() -> Iterator[None]:
    """Slices of few states, pieces and ledgers, so that other tasks run between them."""
    with contextlib.ExitStack() as patches:
        for module in (slices, active_index, manifest):
            patches.enter_context(mock.patch.object(module, "UNITS_PER_TURN", UNITS_PER_TURN))
        yield


class CompactingRun(Run):
    """One seeded run."""

    def __init__(self, seed: int, modes: Sequence[Mode] = SYNCED) -> None:
        super().__init__(seed, modes)
        self.scrubs = Random(seed)
        self.machine.settings = replace(
            self.machine.settings,
            tombstone_keep_s=1,
            recent_bytes_max=1,
            open_files_max=self.random.choice((8, 1_024)),
            pieces_max=self.random.choice((12, 50)),
            pool_files_max=self.random.choice((0, 2, 4)),
            compaction_bytes_per_s=self.random.choice((0, 0, 1 << 18)),
            scrub_bytes_per_s=self.scrubs.choice((0, 1 << 17)),
            allocation_retry_ms=50,
        )
        self.machine.disk.cold_part = self.random.choice((0.3, 0.9))
        self.slice_us = self.random.choice((0, 50, 1_000))
        self.machine.on_host = self._slow_down
        self._slow_down(self.machine.host)

    def _slow_down(self, host: Host) -> None:
        host.slice_us = self.slice_us

    def play(self, rounds: int = 4) -> None:
        """Play all rounds."""
        self.take_mode()
        self.machine.start()
        for _ in range(rounds):
            self.grow()
            self.leave_ledgers()
            self.machine.scheduler.run_for(self.random.choice((20, 300)))
            self.machine.serving.compactor.request(self.random.choice((80, 100, 101)))
            for _ in range(self.random.choice((0, 5, 20, 60))):
                self.meddle()
                self.let_run(self.random.randrange(12))
            self.machine.disk.faults.capacity_bytes = None
            if self.random.random() < 0.4:
                self.machine.scheduler.run_for(2_000)
            self.go_down()
            self.excused = set()
            self.come_up()
            self.check_all()
            if self.model.in_doubt and self.random.random() < 0.5:
                self.losses.repair()
            for noted in (self.submitted, self.accepted, self.denied):
                noted.clear()

    def grow(self) -> None:
        """Fill files with entries of all ledgers."""
        for _ in range(self.random.randrange(20, 60)):
            ledger_id = self.random.choice(self.ledgers)
            count = self.random.choice((1, 1, 4))
            first = self.next_id[ledger_id]
            if self.random.random() < 0.1:
                first = self.random.randrange(max(1, first))
            self.next_id[ledger_id] = max(self.next_id[ledger_id], first + count)
            self.number += 1
            payload = b"%d." % self.number * self.random.choice((10, 300, 600))
            is_recovery = self.random.random() < 0.3
            ids = range(first, first + count)
            self.send_add(ledger_id, ids, [payload] * count, is_recovery=is_recovery)
            self.let_run(self.random.randrange(1, 60))

    def leave_ledgers(self) -> None:
        """Replace some ledgers by new ones. Most of the time, the old ledgers are dropped."""
        for place, ledger_id in enumerate(self.ledgers):
            if self.random.random() < 0.5:
                if self.random.random() < 0.7:
                    self.drop(ledger_id)
                self.ledgers[place] = self.ledgers_made
                self.ledgers_made += 1

    def meddle(self) -> None:
        """Send requests that change or read entries while compaction copies, and scrub."""
        random, machine = self.random, self.machine
        if self.scrubs.random() < SCRUBS_PART:
            machine.serving.scrubber.request()
        choice = random.random()
        if choice < 0.3:
            self.operate()
        elif choice < 0.45:
            self.read_any()
        elif choice < 0.5:
            self.read_newest()
        elif choice < 0.6:
            self.drop(random.randrange(self.ledgers_made))
        elif choice < 0.62:
            for ledger_id in range(self.ledgers_made):
                self.drop(ledger_id)
        elif choice < 0.65:
            self.drop_source()
        elif choice < 0.72:
            self.forget_soon()
        elif choice < 0.75:
            # Often, the tombstone is durable before the next event.
            self.drop(random.randrange(self.ledgers_made))
            self.let_run(random.randrange(12))
            self.forget_soon()
        elif choice < 0.8:
            self.seen["short"] += 1
            self.excused = {Code.READ_ONLY, Code.BUSY, Code.IO_ERROR}
            machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + random.randrange(1024)
        elif choice < 0.85:
            machine.disk.faults.capacity_bytes = None
        else:
            self.compact()

    def drop_source(self) -> None:
        """Drop all ledgers of a file that is being copied, and forget them when it is freed."""
        keeper = self.machine.serving._keeper
        for file in list(keeper.finished):
            if file.entry.file_id in keeper.handover.owned:
                for ledger_id in list(file.live):
                    self.drop(ledger_id)
        for _ in range(self.random.randrange(1, 6)):
            self.let_run(self.random.randrange(100))
            self.forget_soon()

    def forget_soon(self) -> None:
        """Let time pass until the tombstones are old, and forget them."""
        self.machine.host.wall_offset_ms += LATER_MS
        self.machine.host.spawn("reclaim", self.machine.serving.reclaim())

    def read_any(self) -> None:
        """Read an acknowledged entry, and compare the answer with the model."""
        keys = list(self.model.acked)
        if not keys:
            return
        key = self.random.choice(keys)
        before = dict(self.model.acked[key])
        age, dropped = self.model.age[key[0]], self.model.dropped[key[0]]

        def done(code: Code, data: bytes | None) -> None:
            if code in self.excused or (data is not None and data in before):
                return
            if code.is_absent and self.model.age[key[0]] > age:
                return  # dropped in the meantime
            self.model.check_read(*key, code, data, dropped)

        call = partial(self.machine.serving.read, StoredRead(*key))
        self.requests.send(f"read of {key}", call, done)
