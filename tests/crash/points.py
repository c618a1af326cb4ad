"""A crash at each disk operation of random runs: starts, adds, fences, rolls, stops, switches.

A run is played once to its end, and its disk operations are counted. Then it is played again for
each operation, with a SIGKILL or a power loss after this operation, a start, and a check of
everything that was answered. A run is a function of its seed, so the operations before the crash
are the same each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash.modes import ALL_MODES, DIRECT, SYNCED, Mode
from tests.crash.run import Run

EVENTS_MAX = 20_000
KINDS: dict[str, Sequence[Mode]] = {"direct": DIRECT, "synced": SYNCED, "all": ALL_MODES}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one crash.

    Attributes:
        was_reached: Whether the run reached the operation.
        operation: The name of the operation, without the name of a file.
        phase: The phase of the bookie at the crash.
        is_doubtful: Whether the next start began in doubt, because a run without syncs lost power.
    """

    was_reached: bool
    operation: str = ""
    phase: str = ""
    is_doubtful: bool = False


class PointRun(Run):
    """A run that ends after a disk operation with a given number."""

    def __init__(self, seed: int, modes: Sequence[Mode], crash_at: int) -> None:
        super().__init__(seed, modes)
        self.crash_at = crash_at
        self.operations = 0
        self.is_cut = False
        self.phase = "start"
        self.operation = self.cut_phase = ""
        for disk in (self.machine.disk, self.machine.journal_disk):
            disk.on_operation = self._count

    def _count(self, _number: int, name: str) -> None:
        self.operations += 1
        if self.operations == self.crash_at:
            self.is_cut = True
            self.operation = name.partition(" ")[0]
            self.cut_phase = self.phase

    def let_run(self, events: int) -> None:
        for _ in range(events):
            if self.is_cut or not self.machine.scheduler.step():
                return

    def to_the_end(self, phase: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work`, or the part of it before the crash."""
        ended: list[object] = []

        async def watched() -> None:
            ended.append(await work)

        self.phase = phase
        self.machine.host.spawn(phase, watched())
        for _ in range(EVENTS_MAX):
            if ended or self.is_cut:
                return
            assert self.machine.scheduler.step(), f"{phase} waits for ever"
        raise AssertionError(f"{phase} does not end")

    def start(self) -> None:
        self.take_mode()

        async def opening() -> None:
            self.machine.storage = await self.machine.opening()

        self.to_the_end("start", opening())

    def play(self, starts: int = 3) -> Outcome:
        """Play until the crash, then crash, start and check."""
        for number in range(starts):
            if not self.is_cut:
                self.start()
            self._serve()
            if number < starts - 1 and not self.is_cut:
                self._leave()
        if not self.is_cut:
            return Outcome(was_reached=False)
        for disk in (self.machine.disk, self.machine.journal_disk):
            disk.on_operation = None
        (self.machine.lose_power if self.random.random() < 0.7 else self.machine.crash)()
        if self.machine.is_new:
            # The first start had not created the MANIFEST yet.
            self.machine.start()
        else:
            self.come_up()
        self.check_all()
        return Outcome(True, self.operation, self.cut_phase, self.model.in_doubt)

    def _serve(self) -> None:
        self.phase = "serve"
        for _ in range(self.random.randrange(5, 30)):
            if self.is_cut:
                return
            self.operate()
            self.let_run(self.random.randrange(1, 25))

    def _leave(self) -> None:
        """Stop cleanly, or kill the process."""
        if self.random.random() < 0.5:
            self.let_run(400)  # requests in flight are answered
            if not self.is_cut:
                self.to_the_end("stop", self.machine.serving.close())
            if self.is_cut:
                return
            self.machine.host.kill()
            self.machine._replace_host()
        else:
            self.machine.crash()
        self.requests.forget()
        self.model.process_ended()
        # The next process begins its tickets again.
        for noted in (self.submitted, self.accepted, self.denied):
            noted.clear()


def play_all_points(seed: int, kind: str) -> Counter[str]:
    """Play one run with a crash after each of its operations; count the outcomes.

    Raises:
        AssertionError: An entry was lost. The note names the seed, the modes and the operation.
    """
    seen: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        try:
            outcome = PointRun(seed, KINDS[kind], number).play()
        except BaseException as error:
            error.add_note(f"seed {seed}, modes {kind}, operation {number}")
            raise
        if not outcome.was_reached:
            return seen
        seen["states"] += 1
        seen["doubts"] += outcome.is_doubtful
        seen[f"in {outcome.phase}"] += 1
        seen[f"after {outcome.operation}"] += 1


def play_job(seed: int, kind: str) -> tuple[Counter[str], str]:
    """Play one run for a program; return the counts and the violation, or ""."""
    try:
        return play_all_points(seed, kind), ""
    except AssertionError as error:
        return Counter(states=1, lost=1), f"{', '.join(error.__notes__)}: {str(error)[:500]}"
