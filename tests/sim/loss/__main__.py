"""`python -m tests.sim.loss --limit one --schedules N`: runs random schedules with losses."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context

from benchmarks.options import positive
from tests.sim.loss.mutations import MUTATIONS, UNNOTICED, applied
from tests.sim.loss.options import LIMITS
from tests.sim.loss.schedule import run_losses
from tests.sim.schedule import Outcome
from tests.sim.shrink import shrink


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.loss", description=__doc__)
    parser.add_argument("--limit", choices=LIMITS, default="one", help="losses at a time")
    parser.add_argument("--schedules", type=positive, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    mutations = sorted({**MUTATIONS, **UNNOTICED})
    parser.add_argument("--mutation", choices=mutations, help="search with a mistake on")
    parser.add_argument("--replay", action="store_true", help="print the story of --seed")
    parser.add_argument("--without", default="", help="deviations to leave out, by comma")
    parser.add_argument("--workers", type=positive, default=1, help="processes")
    return parser.parse_args(arguments)


def report(options: argparse.Namespace, outcome: Outcome) -> None:
    """Print a violation, and the command that repeats it with as few deviations as possible."""
    violation = outcome.violation
    assert violation is not None
    mutation = f" --mutation {options.mutation}" if options.mutation else ""
    again = f"python -m tests.sim.loss --limit {options.limit} --seed {outcome.seed} --replay"
    sys.stdout.write(f"seed {outcome.seed}: {violation}\n  replay: {again}{mutation}\n")
    sys.stdout.flush()

    def still_fails(suppressed: frozenset[str]) -> bool:
        found = run_losses(outcome.seed, options.limit, suppressed=suppressed).violation
        return found is not None and found.name == violation.name

    needed = shrink(outcome.deviations, still_fails)
    left_out = [name for name in [*outcome.deviations, "jitter"] if name not in needed]
    sys.stdout.write(f"  needed: {', '.join(needed) or 'no deviation at all'}\n")
    sys.stdout.write(f"  shrunk: {again}{mutation} --without '{','.join(left_out)}'\n")


def replay(options: argparse.Namespace) -> int:
    suppressed = frozenset(name for name in options.without.split(",") if name)
    outcome = run_losses(options.seed, options.limit, suppressed=suppressed, keeps_trace=True)
    sys.stdout.write("\n".join(outcome.trace or []) + f"\n{outcome.violation or 'no violation'}\n")
    return 1 if outcome.violation else 0


def search(options: argparse.Namespace) -> int:
    """Run all schedules up to the first violation."""
    began = time.monotonic()
    seeds = range(options.seed, options.seed + options.schedules)
    marks: Counter[str] = Counter()
    done = events = violations = 0
    with get_context("fork").Pool(options.workers) as pool:
        play = partial(run_losses, limit=options.limit)
        for outcome in pool.imap(play, seeds, chunksize=4):
            done += 1
            events += outcome.events
            marks.update(outcome.marks.keys())
            if outcome.violation is not None:
                violations = 1
                report(options, outcome)
                break
    seconds = time.monotonic() - began
    for name in sorted(marks):
        sys.stdout.write(f"  {marks[name]:6} schedules: {name}\n")
    sys.stdout.write(
        f"{done} schedules with losses (limit: {options.limit}), {events} events, "
        f"{violations} violations ({seconds:.1f} s, {done / seconds:.0f} schedules/s)\n"
    )
    return violations


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    with applied(options.mutation) if options.mutation else nullcontext():
        return replay(options) if options.replay else search(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
