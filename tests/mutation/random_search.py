"""`python -m tests.mutation.random_search`: which mistakes in the storage random schedules find.

Each mistake is applied in a copy of the tree. Then random schedules are played there: runs of a
bookie's storage on a simulated disk, with crashes, power losses, full and failing devices, and
schedules of whole ledgers. The search for a mistake ends at the first schedule that is violated.
With --seconds, it ends earlier, and --resume continues it with the next schedule.
"""

from __future__ import annotations

import argparse
import math
import queue
import re
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import above_zero, positive
from tests.mutation.design import DESIGNED
from tests.mutation.lists import all_mutations, part_of
from tests.mutation.mutation import Mutation
from tests.mutation.results import Kept, key_of
from tests.mutation.run import Workspace

GOAL = 30
PLAYER = "tests.crash.schedules"
PARTS = (
    "bookie_server/storage/",
    "bookie_server/core/",
    "bookie_server/service/v2/segments.py",
    "bookie_server/service/v2/together.py",
)
"""The storage, and the code that passes requests that arrive together to the storage."""
SECONDS_MAX = 3_600.0
_FOUND = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)
_PLAYED = re.compile(r"^([\d,]+) schedules, 0 violations$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Search:
    """The search for one mistake.

    Attributes:
        schedules: How many it took; 0 if none found the mistake.
        played: How many were played.
        violation: What the last schedule violated, or why nothing was played.
    """

    mutation: Mutation
    schedules: int
    played: int
    violation: str


def main() -> int:
    """Return 1 if random schedules find fewer than GOAL mistakes."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation.random_search", description=__doc__
    )
    parser.add_argument("--schedules", type=positive, default=5_000, help="for each mistake")
    parser.add_argument("--seconds", type=above_zero, default=SECONDS_MAX, help="for each mistake")
    parser.add_argument(
        "--minutes", type=above_zero, default=math.inf, help="begin none after this"
    )
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--only", help="those whose name or file contains one of these, by commas")
    parser.add_argument("--results", type=Path, help="keep what is found in this file")
    parser.add_argument(
        "--resume", action="store_true", help="continue the searches that the file has"
    )
    parser.add_argument(
        "--part", type=part_of, default=(1, 1), help="2/5: the second of five parts"
    )
    options = parser.parse_args()
    part, parts = options.part
    with tempfile.TemporaryDirectory(prefix="ledgerlog-search-") as directory:
        work = _Work(Path(directory), options)
        searches = work.searched(chosen_by(options.only)[part - 1 :: parts])
    _report(searches, options.schedules)
    found = sum(search.schedules > 0 for search in searches)
    return int(found < GOAL and parts == 1 and options.only is None)


def chosen_by(only: str | None) -> list[Mutation]:
    """The mistakes in the storage that a test can detect."""
    return [
        mutation
        for mutation in all_mutations()
        if mutation.file.startswith(PARTS)
        and not mutation.equivalent
        and (not only or any(w in mutation.name or w in mutation.file for w in only.split(",")))
    ]


class _Work:
    """Searches by several workers, each in a copy of the tree."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self._directory = directory
        self._options = options
        self._kept = Kept(options.results, resumes=options.resume)
        self._ends_at = time.monotonic() + 60 * options.minutes
        self._waiting: queue.SimpleQueue[Search] = queue.SimpleQueue()
        self._searches: dict[str, Search] = {}

    def searched(self, mutations: list[Mutation]) -> list[Search]:
        """Search for mistakes, first for those that the fewest schedules were played for."""
        for mutation in mutations:
            known = self._kept.get(key_of(mutation)) or {}
            counts = known.get("schedules", 0), known.get("played", 0)
            self._searches[mutation.name] = Search(mutation, *counts, known.get("violation", ""))
        for search in sorted(self._searches.values(), key=lambda one: one.played):
            if not search.schedules and search.played < self._options.schedules:
                self._waiting.put(search)
        threads = [
            threading.Thread(target=self._work, args=(self._directory / str(number),))
            for number in range(min(self._options.workers, self._waiting.qsize()))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return list(self._searches.values())

    def _work(self, directory: Path) -> None:
        workspace = Workspace(directory)
        while time.monotonic() < self._ends_at:
            try:
                before = self._waiting.get_nowait()
            except queue.Empty:
                return
            left = self._options.schedules - before.played
            seed, seconds = str(before.played), str(self._options.seconds)
            command = (PLAYER, "--schedules", str(left), "--seed", seed, "--seconds", seconds)
            code, output = workspace.play(before.mutation, command, 2 * SECONDS_MAX)
            search = judged(before, code, output)
            self._searches[search.mutation.name] = search
            self._kept.put(
                key_of(search.mutation),
                name=search.mutation.name,
                schedules=search.schedules,
                played=search.played,
                violation=search.violation,
            )
            told = "after" if search.schedules else "NOT FOUND in"
            sys.stdout.write(
                f"{search.mutation.name}: {told} {search.played:,}  {search.violation}\n"
            )
            sys.stdout.flush()


def judged(before: Search, code: int, output: str) -> Search:
    """The result of a search, from the exit code and the output of the player."""
    found, passed = _FOUND.search(output), _PLAYED.search(output)
    if code == 1 and found is not None:
        number = int(found[1]) + 1
        return Search(before.mutation, number, number, found[2])
    if code == 0 and passed is not None:
        played = before.played + int(passed[1].replace(",", ""))
        return Search(before.mutation, 0, played, "")
    lines = output.strip().splitlines() or ["it printed nothing"]
    return Search(before.mutation, 0, before.played, lines[-1][:160])


def _report(searches: list[Search], schedules_max: int) -> None:
    found = sorted((one for one in searches if one.schedules), key=lambda one: one.schedules)
    others = sorted((one for one in searches if not one.schedules), key=lambda one: one.played)
    for search in found:
        sys.stdout.write(f"{search.schedules:6,} {search.mutation.name}: {search.violation}\n")
    for search in others:
        name = search.mutation.name
        sys.stdout.write(f"not found in {search.played:,}: {name}  {search.violation}\n")
    names = {search.mutation.name for search in found}
    named = sum(mutation in names for mutation, _ in DESIGNED.values())
    sys.stdout.write(f"of those that the design of the storage names: {named} of {len(DESIGNED)}\n")
    sys.stdout.write(
        f"random search: {len(found)} of {len(searches)} found within {schedules_max:,} schedules\n"
    )
    if others:
        sys.stdout.write(
            f"of each other one, {others[0].played:,} to {others[-1].played:,} were played\n"
        )


if __name__ == "__main__":
    sys.exit(main())
