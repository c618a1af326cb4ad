"""Random runs in which a device fails once, or the system loses pages, before the process ends.

After a failed write or sync, the data is lost, but the next sync succeeds, because the page cache
still has the data. So a later start may find data that the next power loss destroys.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from bookie_server.core.manifest_codec import decode_manifest
from ledgerlog_spark.model import Code
from tests.crash.modes import ALL_MODES, Mode
from tests.crash.run import Run
from tests.sim.disk import SECTOR, Content, Faults, SimDisk, put


class FailingRun(Run):
    """One seeded run.

    Attributes:
        may_have_lost: A write or a sync failed since the last start, or pages were lost. After a
            run without syncs, the next start may begin in doubt.
    """

    def __init__(self, seed: int, modes: Sequence[Mode] = ALL_MODES) -> None:
        super().__init__(seed, modes)
        self.may_have_lost = False

    @property
    def _is_weak(self) -> bool:
        """Whether the next start may find a MANIFEST that lists a run without syncs."""
        seen = decode_manifest(bytes(self.machine.disk.seen_names["MANIFEST"].seen))
        runs = (self.machine.manifest().run, seen.run)
        return any(run is not None and not run.is_synced for run in runs)

    def play(self, rounds: int = 4) -> None:
        """Play all rounds."""
        self.take_mode()
        self.machine.start()
        for _ in range(rounds):
            self.work(40)
            if self.random.random() < 0.5:
                self.break_device()
                self.work(20)
            self.end_and_start()
            self.check_all()
            # Lost pages may have damaged an entry that was never acknowledged. It stays unknown.
            may_repair = self.model.in_doubt and not self.seen["pages lost"]
            if may_repair and self.random.random() < 0.5:
                self.losses.repair()
            self.forget()

    def work(self, operations_max: int) -> None:
        """Send requests."""
        for _ in range(self.random.randrange(1, operations_max)):
            self.operate()
            if self.random.random() < 0.3:
                self.let_run(self.random.randrange(1, 6))
                self.read_newest()
            self.let_run(self.random.randrange(1, 25))

    def break_device(self) -> None:
        """Let the next write or sync of a device fail."""
        self.excused = {Code.IO_ERROR, Code.READ_ONLY}
        self.may_have_lost = True
        disk = self.random.choice((self.machine.disk, self.machine.journal_disk))
        setattr(disk.faults, self.random.choice(("sync_errors", "write_errors")), 1)

    def forget(self) -> None:
        """Reset the state that belonged to the last process."""
        self.submitted.clear()
        self.accepted.clear()
        self.denied.clear()

    def end_and_start(self) -> None:
        """End the process, and start it again."""
        machine, random = self.machine, self.random
        self.seen["failed"] += machine.serving.failure is not None
        was_weak = self._is_weak
        way = random.random()
        if way < 0.2:
            # This failure needs no device, or the next start finds its effects.
            self.excused |= {Code.IO_ERROR}
            machine.scheduler.run(machine.serving.close(), machine.host)
            was_weak = self._is_weak
        machine.disk.faults, machine.journal_disk.faults = Faults(), Faults()
        if way < 0.6 or (was_weak and way < 0.9):
            machine.crash()
            if was_weak and not self.may_have_lost and random.random() < 0.8:
                self.may_have_lost = lose_pages(machine.disk, random)
                self.seen["pages lost"] += self.may_have_lost
        else:
            machine.lose_power()
            self.may_have_lost |= was_weak
        self.excused = set()
        self.requests.forget()
        self.model.process_ended()
        self.take_mode()
        self.losses.is_possible = was_weak and self.may_have_lost
        machine.start()
        self.losses.started()
        self.may_have_lost = False
        if random.random() < 0.5:
            # The entries that the start found must be on the device after a clean stop.
            self.seen["stopped"] += 1
            machine.stop()
            machine.lose_power()
            machine.start()
            self.losses.started()


def lose_pages(disk: SimDisk, random: Random) -> bool:
    """Drop some sectors that the system could not write. Return whether there were any.

    The bookie gets no error, because the error was reported for another file descriptor.
    """
    found: list[tuple[Content, int, bytes]] = [
        (content, offset, data)
        for name, content in sorted(disk.seen_names.items())
        if name.startswith("slot-")
        for offset, data in content.unsynced
    ]
    if not found:
        return False
    content, offset, data = random.choice(found)
    first = random.randrange(0, len(data), SECTOR)
    last = random.randrange(first, len(data), SECTOR)
    start, end = offset + first, min(offset + last + SECTOR, offset + len(data))
    content.unsynced.remove((offset, data))
    left = [(offset, data[:first]), (end, data[end - offset :])]
    content.unsynced += [(at, rest) for at, rest in left if rest]
    before = bytes(content.durable[start:end])
    put(content.seen, start, before + bytes(end - start - len(before)))
    return True
