"""`python -m tests.sim --schedules N --seed S`: runs random schedules, and reports violations."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context

from benchmarks.options import positive
from tests.sim.coverage import Coverage, Wanted, covered
from tests.sim.mutations import MUTATIONS, applied
from tests.sim.schedule import Outcome, run_schedule
from tests.sim.shrink import shrink
from tests.sim.unreached import CODES, FILES, RARE, REASONS, TABLES

WANTED = Wanted(FILES, REASONS, TABLES, CODES, RARE)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--schedules", type=positive, help="1,000, or 5,000 with --coverage")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="search with a defect on")
    parser.add_argument("--replay", action="store_true", help="print the story of --seed")
    parser.add_argument("--without", default="", help="deviations to leave out, by comma")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--trace-hash", action="store_true", help="print each schedule's hash")
    parser.add_argument(
        "--coverage", action="store_true", help="print what the schedules reach, and what not"
    )
    parser.add_argument(
        "--workers", type=positive, default=1, help="processes that share the seeds"
    )
    parser.add_argument("--keep-going", action="store_true", help="past the first violation")
    options = parser.parse_args(arguments)
    if options.schedules is None:
        options.schedules = 5_000 if options.coverage else 1_000
    return options


def command(options: argparse.Namespace, seed: int, without: list[str]) -> str:
    """Return the command line that runs a schedule again."""
    mutation = f" --mutation {options.mutation}" if options.mutation else ""
    left_out = f" --without '{','.join(without)}'" if without else ""
    return f"python -m tests.sim --seed {seed} --replay{mutation}{left_out}"


def replay(options: argparse.Namespace) -> int:
    suppressed = frozenset(name for name in options.without.split(",") if name)
    outcome = run_schedule(options.seed, suppressed=suppressed, keeps_trace=True)
    sys.stdout.write("\n".join(outcome.trace or []) + "\n")
    sys.stdout.write(f"{len(outcome.deviations)} deviations: {', '.join(outcome.deviations)}\n")
    sys.stdout.write(f"{outcome.violation or 'no violation'}\n")
    return 1 if outcome.violation else 0


def report(options: argparse.Namespace, outcome: Outcome) -> None:
    """Print a violation, and the command that repeats it with as few deviations as possible."""
    violation = outcome.violation
    assert violation is not None
    sys.stdout.write(f"seed {outcome.seed}: {violation}\n")
    sys.stdout.write(f"  replay: {command(options, outcome.seed, [])}\n")
    sys.stdout.flush()
    if options.no_shrink:
        return

    def still_fails(suppressed: frozenset[str]) -> bool:
        again = run_schedule(outcome.seed, suppressed=suppressed).violation
        return again is not None and again.name == violation.name

    needed = shrink(outcome.deviations, still_fails)
    left_out = [name for name in [*outcome.deviations, "jitter"] if name not in needed]
    sys.stdout.write(f"  needed: {', '.join(needed) or 'no deviation at all'}\n")
    sys.stdout.write(f"  shrunk: {command(options, outcome.seed, left_out)}\n")


def cover(options: argparse.Namespace) -> int:
    """Run the schedules and print what they reach. Return 1 if a gap has no listed reason."""
    seeds = range(options.seed, options.seed + options.schedules)
    shares = [seeds[worker :: options.workers] for worker in range(options.workers)]
    with get_context("fork").Pool(options.workers) as pool:
        (whole, broken), *others = pool.map(partial(_share_covered, options), shares, chunksize=1)
    for coverage, broken_there in others:
        whole.add(coverage)
        broken += broken_there
    wrong = whole.report(sys.stdout, WANTED)
    return 1 if wrong or broken else 0


def _share_covered(options: argparse.Namespace, seeds: range) -> tuple[Coverage, int]:
    """Return what the schedules of one process reach, and how many end with a violation."""
    broken = 0

    def play() -> None:
        nonlocal broken
        for seed in seeds:
            outcome = run_schedule(seed)
            if outcome.violation is not None:
                broken += 1
                report(options, outcome)

    return covered(WANTED, play), broken


def played(options: argparse.Namespace) -> Iterator[Outcome]:
    """Yield the outcomes of all seeds, in order. The caller may stop early."""
    seeds = range(options.seed, options.seed + options.schedules)
    play = partial(run_schedule, keeps_trace=options.trace_hash)
    if options.workers == 1:
        yield from map(play, seeds)
        return
    # The processes are forked, so that a mutation that is applied here is applied in all of them.
    with get_context("fork").Pool(options.workers) as pool:
        yield from pool.imap(play, seeds, chunksize=4)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    if options.coverage:
        return cover(options)
    with applied(options.mutation) if options.mutation else nullcontext():
        if options.replay:
            return replay(options)
        began = time.monotonic()
        events = faults = violations = done = 0
        marks: dict[str, int] = {}
        for outcome in played(options):
            done += 1
            events += outcome.events
            faults += len(outcome.deviations)
            for name in outcome.marks:
                marks[name] = marks.get(name, 0) + 1
            if options.trace_hash:
                sys.stdout.write(f"{outcome.seed} {outcome.trace_hash}\n")
            if outcome.violation is not None:
                violations += 1
                report(options, outcome)
                if not options.keep_going:
                    break
        seconds = time.monotonic() - began
        for name in sorted(marks):
            sys.stdout.write(f"  {marks[name]:6} schedules: {name}\n")
        sys.stdout.write(
            f"{done} schedules, {events} events, {faults} faults, {violations} violations "
            f"({seconds:.1f} s, {done / seconds:.0f} schedules/s, "
            f"{events / seconds:.0f} events/s)\n"
        )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
