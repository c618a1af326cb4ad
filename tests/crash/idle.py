"""Random runs without syncs that are idle most of the time: a MANIFEST lists them as synced.

Then a few requests arrive, while syncs of files take longer than the commit of a MANIFEST, and the
process is killed or the power fails. A power loss begins a doubt only if the bookie was busy.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.crash.modes import WEAK, Mode
from tests.crash.run import Run

INTERVAL_MS = 100


class IdleRun(Run):
    """One seeded run."""

    def __init__(self, seed: int, modes: Sequence[Mode] = WEAK) -> None:
        super().__init__(seed, modes)
        self.intervals_ms = (INTERVAL_MS,)
        for disk in self.machine.disks:
            disk.slow_part = self.random.choice((0.0, 0.5))

    def play(self, rounds: int = 8) -> None:
        """Play all rounds."""
        self.take_mode()
        self.machine.start()
        for _ in range(rounds):
            for _ in range(self.random.randrange(12)):
                self.operate()
                self.let_run(self.random.randrange(20))
            self.machine.scheduler.run_for(self.random.choice((0, 1, 2, 3, 5)) * INTERVAL_MS)
            run = self.machine.manifest().run
            self.seen["idle"] += run is not None and run.is_synced
            for _ in range(self.random.randrange(5)):
                self.disturb()
                self.let_run(self.random.randrange(60))
            run = self.machine.manifest().run
            self.seen["idle at the end"] += run is not None and run.is_synced
            self.go_down()
            self.come_up()
            self.check_all()
            if self.model.in_doubt and self.random.random() < 0.5:
                self.losses.repair()
            for noted in (self.submitted, self.accepted, self.denied):
                noted.clear()

    def disturb(self) -> None:
        """Send a request, which seldom ends the idle time."""
        ledger_id = self.random.choice(self.ledgers)
        choice = self.random.random()
        if choice < 0.3:
            self.drop(ledger_id)
            self.let_run(self.random.randrange(12))
            self.machine.host.spawn("commit", self.machine.serving._keeper.commit_soon())
        elif choice < 0.5:
            self.fence(ledger_id)
        elif choice < 0.6:
            self.write_lac(ledger_id)
        elif choice < 0.8:
            # For example, a compaction needs a MANIFEST.
            self.machine.host.spawn("commit", self.machine.serving._keeper.commit_soon())
        elif choice < 0.9:
            self.compact()
        else:
            self.operate()
