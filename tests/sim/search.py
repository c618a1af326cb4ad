"""The command of the simulators whose schedules are searched in processes."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from benchmarks.options import above_zero, positive
from tests.sim.schedule import Outcome


@dataclass(frozen=True)
class Search:
    """What a simulator searches.

    Attributes:
        name: The package of the simulator.
        run: Runs one seed.
        mutations: The names of its mutations.
        applied: Applies one of them.
        counted: For each mark that the last line counts, the words for it.
    """

    name: str
    run: Callable[..., Outcome]
    mutations: Iterable[str]
    applied: Callable[[str], AbstractContextManager[None]]
    counted: dict[str, str]

    def main(self, arguments: list[str]) -> int:
        """Run the command line, and return the exit code: 1 after a violation."""
        options = self._parsed(arguments)
        with self.applied(options.mutation) if options.mutation else nullcontext():
            return self._replay(options.seed) if options.replay else self._search(options)

    def _parsed(self, arguments: list[str]) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.name}",
            description="Runs random schedules up to the first violation.",
        )
        parser.add_argument("--schedules", type=positive, default=1_000)
        parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
        parser.add_argument(
            "--mutation", choices=sorted(self.mutations), help="search with a mistake on"
        )
        parser.add_argument("--replay", action="store_true", help="print the story of --seed")
        parser.add_argument("--workers", type=positive, default=1, help="processes")
        parser.add_argument("--minutes", type=above_zero, help="end after this time")
        return parser.parse_args(arguments)

    def _replay(self, seed: int) -> int:
        outcome = self.run(seed, keeps_trace=True)
        story = "\n".join(outcome.trace or [])
        sys.stdout.write(f"{story}\n{outcome.violation or 'no violation'}\n")
        return 1 if outcome.violation else 0

    def _search(self, options: argparse.Namespace) -> int:
        began = time.monotonic()
        seeds = range(options.seed, options.seed + options.schedules)
        marks: Counter[str] = Counter()
        done = violations = 0
        with get_context("fork").Pool(options.workers) as pool:
            for outcome in pool.imap(partial(self.run), seeds, chunksize=4):
                done += 1
                marks.update(outcome.marks)
                is_late = options.minutes and time.monotonic() - began > 60 * options.minutes
                if outcome.violation is not None:
                    violations = 1
                    again = f"python -m {self.name} --seed {outcome.seed} --replay"
                    mutation = f" --mutation {options.mutation}" if options.mutation else ""
                    sys.stdout.write(f"{outcome.violation}\n  replay: {again}{mutation}\n")
                if violations or is_late:
                    break
        for name in sorted(marks):
            sys.stdout.write(f"  {marks[name]:6} times: {name}\n")
        seconds = time.monotonic() - began
        counted = "".join(f"{marks[mark]} {words}, " for mark, words in self.counted.items())
        sys.stdout.write(
            f"{done} schedules, {counted}{violations} violations "
            f"({seconds:.1f} s, {done / seconds:.0f} schedules/s)\n"
        )
        return violations
