"""`python -m tests.mutation.random_search`: which mistakes in the storage random schedules find.

Each mistake is applied in a copy of the tree. Then random schedules are played there: runs of a
bookie's storage on a simulated disk, with crashes, power losses, full and failing devices, and
schedules of whole ledgers. The search for a mistake ends at the first schedule that is violated.
"""

from __future__ import annotations

import argparse
import queue
import re
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import positive
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
"""The storage, and what hands it the requests that arrive together."""
SECONDS_MAX = 3_600.0
_FOUND = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Search:
    """The search for one mistake: the number of schedules that it took, 0 if none found it."""

    mutation: Mutation
    schedules: int
    violation: str


def main() -> int:
    """Exit code 1 if random schedules find less than GOAL mistakes."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation.random_search", description=__doc__
    )
    parser.add_argument("--schedules", type=positive, default=5_000, help="for each mistake")
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--only", help="those whose name or file contains one of these, by commas")
    parser.add_argument("--results", type=Path, help="keep what is found in this file")
    parser.add_argument("--resume", action="store_true", help="search for what is not in the file")
    parser.add_argument(
        "--part", type=part_of, default=(1, 1), help="2/5: the second of five parts"
    )
    options = parser.parse_args()
    part, parts = options.part
    kept = Kept(options.results, resumes=options.resume)
    searches: list[Search] = []
    waiting: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    for mutation in chosen_by(options.only)[part - 1 :: parts]:
        known = kept.get(key_of(mutation))
        if known is None:
            waiting.put(mutation)
        else:
            searches.append(Search(mutation, known["schedules"], known["violation"]))
    with tempfile.TemporaryDirectory(prefix="ledgerlog-search-") as directory:
        threads = [
            threading.Thread(
                target=_work,
                args=(Path(directory) / str(n), waiting, options.schedules, searches, kept),
            )
            for n in range(options.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [search for search in searches if search.schedules]
    for search in sorted(searches, key=lambda one: one.mutation.name):
        if not search.schedules:
            sys.stdout.write(f"not found: {search.mutation.name}: {search.violation}\n")
    names = {search.mutation.name for search in found}
    named = sum(mutation in names for mutation, _ in DESIGNED.values())
    sys.stdout.write(f"of those that the design of the storage names: {named} of {len(DESIGNED)}\n")
    sys.stdout.write(
        f"random search: {len(found)} of {len(searches)} found within "
        f"{options.schedules:,} schedules\n"
    )
    return int(len(found) < GOAL and parts == 1 and options.only is None)


def chosen_by(only: str | None) -> list[Mutation]:
    """The mistakes in the storage that a test can notice."""
    return [
        mutation
        for mutation in all_mutations()
        if mutation.file.startswith(PARTS)
        and not mutation.equivalent
        and (not only or any(w in mutation.name or w in mutation.file for w in only.split(",")))
    ]


def _work(
    directory: Path,
    waiting: queue.SimpleQueue[Mutation],
    schedules: int,
    searches: list[Search],
    kept: Kept,
) -> None:
    workspace = Workspace(directory, {})
    while True:
        try:
            mutation = waiting.get_nowait()
        except queue.Empty:
            return
        command = (PLAYER, "--schedules", str(schedules), "--seed", "0")
        code, output = workspace.play(mutation, command, SECONDS_MAX)
        search = judged(mutation, code, output)
        searches.append(search)
        said = {"schedules": search.schedules, "violation": search.violation}
        kept.put(key_of(mutation), name=mutation.name, **said)
        told = f"after {search.schedules}" if search.schedules else "NOT FOUND"
        sys.stdout.write(f"{len(searches):4} {mutation.name}: {told}  {search.violation}\n")
        sys.stdout.flush()


def judged(mutation: Mutation, code: int, output: str) -> Search:
    """What the output of the player means."""
    found = _FOUND.search(output)
    if code == 1 and found is not None:
        return Search(mutation, int(found[1]) + 1, found[2])
    lines = output.strip().splitlines() or ["it printed nothing"]
    return Search(mutation, 0, "" if code == 0 else lines[-1][:160])


if __name__ == "__main__":
    sys.exit(main())
