"""Random runs in which many bits of finished files flip under the page cache, and a scrub runs.

Each damaged entry that reads would look for is reported, and no other entry. Then copies of the
reported entries are added again, as a repair adds them, while clients add, drop and compact. At the
end, each acknowledged entry is readable, also after a restart, and the next scrub finds nothing.
"""

from __future__ import annotations

from collections import Counter

from bookie_server.core.manifest_codec import FileState
from bookie_server.core.slot_header import RECORDS_START
from ledgerlog_spark.model import Code
from tests.crash.machine import entry
from tests.crash.model import ViolationError
from tests.crash.run import Run

FLIPS_MAX = 30
REBUILD_MS = 1_000
HEADER_SIZE = 32
"""Size of the ids, the LAC and the length before the payload of a stored entry."""

Key = tuple[int, int]


class ScrubRotRun:
    """One seeded run.

    Attributes:
        run: The entries that are written before the damage, and their model.
        seen: Situations that occurred.
    """

    def __init__(self, seed: int) -> None:
        self.run = Run(seed)
        self.random = self.run.random
        self.machine = self.run.machine
        self.seen: Counter[str] = Counter()

    def play(self) -> None:
        run, machine = self.run, self.machine
        machine.start()
        for _ in range(self.random.randrange(60, 200)):
            run.operate()
            run.let_run(self.random.randrange(25))
        machine.scheduler.run_until(lambda: not run.requests.open)
        machine.scheduler.run_for(500)
        self.check_readable("before the damage")
        flips = self.flip()
        if not flips:
            return
        machine.scrub()
        self.seen["scrubs"] += machine.serving.counters.scrubs
        self.seen["damaged records"] += machine.serving.counters.scrub_damaged_records
        self.seen["damaged indexes"] += machine.serving.counters.scrub_damaged_indexes
        in_doubt = self.is_in_doubt
        self.seen["in doubt"] += in_doubt
        reported = {
            (ledger_id, entry_id)
            for ledger_id, ids in machine.serving.take_damaged()
            for entry_id in ids
        }
        self.seen["reported"] += len(reported)
        unreadable = {key for key in run.model.acked if self.code_of(key) is Code.IO_ERROR}
        missed = unreadable - reported
        if missed and not in_doubt:
            raise ViolationError(f"unreadable, and not reported: {sorted(missed)}")
        wrong = reported - unreadable
        if wrong:
            raise ViolationError(f"reported, and readable: {sorted(wrong)}")
        self.repair(sorted(reported | unreadable))
        self.check_readable("after the repair")
        # A scrub during the repair reports the entries that were not repaired yet.
        machine.scheduler.run_until(lambda: not machine.serving.scrubber.is_running)
        machine.serving.take_damaged()
        machine.scrub()
        again = machine.serving.take_damaged()
        if again:
            raise ViolationError(f"repaired entries are reported again: {again}")
        (machine.crash if self.random.random() < 0.5 else machine.stop)()
        machine.start()
        self.check_readable("after a restart")

    @property
    def is_in_doubt(self) -> bool:
        """Whether a read may answer "unknown" without a report.

        The index of a file is damaged, and one of its records too, so the ledger of the record is
        unknown. This raises the doubt of the directory, and the repair of all ledgers fetches the
        entries.
        """
        health = self.machine.serving._health
        return bool(health.files_in_doubt or health.doubt.epoch)

    def flip(self) -> int:
        """Flip bits of finished files on the device. The page cache keeps the right bytes."""
        places = [
            (file.slot, at)
            for file in self.machine.manifest().files
            if file.state is FileState.FINISHED
            for at in self._used(file.slot)
        ]
        flips = min(len(places), self.random.randrange(1, FLIPS_MAX))
        for slot, at in self.random.sample(places, flips):
            self.machine.disk.flip_bit(slot, at, self.random.randrange(8), is_cached=True)
        return flips

    def _used(self, slot: str) -> list[int]:
        content = self.machine.disk.durable_names[slot].durable
        return [at for at in range(RECORDS_START, len(content)) if content[at]]

    def code_of(self, key: Key) -> Code:
        return self.machine.read(*key)[0]

    def repair(self, keys: list[Key]) -> None:
        for key in keys:
            ledger_id, entry_id = key
            (data, *_) = self.run.model.acked[key]
            payload = data[HEADER_SIZE:]
            code = self.machine.add(ledger_id, (entry_id,), payload, is_recovery=True)
            if code is not Code.OK:
                raise ViolationError(f"the repair of {key} answered {code}")
            stored = entry(ledger_id, entry_id, payload)
            self.run.model.acked[key] = {stored: 0}
            self.run.written.setdefault(key, set()).add(stored)
            if self.random.random() < 0.2:
                self.meddle()

    def meddle(self) -> None:
        """Let a client or compaction change files."""
        if self.random.random() < 0.5:
            self.machine.serving.compactor.request(self.random.choice((80, 101)))
        else:
            self.machine.serving.scrubber.request()
        self.run.let_run(self.random.randrange(30))

    def check_readable(self, when: str) -> None:
        for key, stored in self.run.model.acked.items():
            code, data = self.machine.read(*key)
            if code is Code.IO_ERROR and self.is_in_doubt:
                # The read has found a damaged index, and is repeated after the rebuild.
                self.machine.scheduler.run_for(REBUILD_MS)
                code, data = self.machine.read(*key)
                if code is Code.IO_ERROR and self.is_in_doubt:
                    self.seen["unknown"] += 1
                    continue
            if code is not Code.OK or data not in stored:
                raise ViolationError(f"{when}, {key} is {code.name}")
