"""`python -m tests.sim.healing --schedules N`: runs random schedules of workers."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext
from multiprocessing import get_context

from benchmarks.options import positive
from tests.sim.healing.mutations import MUTATIONS, applied
from tests.sim.healing.schedule import run_healing


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.healing", description=__doc__)
    parser.add_argument("--schedules", type=positive, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="search with a mistake on")
    parser.add_argument("--replay", action="store_true", help="print the story of --seed")
    parser.add_argument("--workers", type=positive, default=1, help="processes")
    return parser.parse_args(arguments)


def replay(options: argparse.Namespace) -> int:
    outcome = run_healing(options.seed, keeps_trace=True)
    sys.stdout.write("\n".join(outcome.trace or []) + f"\n{outcome.violation or 'no violation'}\n")
    return 1 if outcome.violation else 0


def search(options: argparse.Namespace) -> int:
    """Run all schedules up to the first violation."""
    began = time.monotonic()
    seeds = range(options.seed, options.seed + options.schedules)
    marks: Counter[str] = Counter()
    done = violations = 0
    with get_context("fork").Pool(options.workers) as pool:
        for outcome in pool.imap(run_healing, seeds, chunksize=4):
            done += 1
            marks.update(outcome.marks)
            if outcome.violation is not None:
                violations = 1
                again = f"python -m tests.sim.healing --seed {outcome.seed} --replay"
                mutation = f" --mutation {options.mutation}" if options.mutation else ""
                sys.stdout.write(f"{outcome.violation}\n  replay: {again}{mutation}\n")
                break
    for name in sorted(marks):
        sys.stdout.write(f"  {marks[name]:6} times: {name}\n")
    seconds = time.monotonic() - began
    moved, deleted = marks["fragment moved"], marks["mark deleted"]
    sys.stdout.write(
        f"{done} schedules, {moved} members replaced, {deleted} marks deleted, "
        f"{violations} violations ({seconds:.1f} s, {done / seconds:.0f} schedules/s)\n"
    )
    return violations


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    with applied(options.mutation) if options.mutation else nullcontext():
        return replay(options) if options.replay else search(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
