"""`python -m tests.sim.auditor --schedules N`: runs random schedules of auditors, or of checks."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from benchmarks.options import positive
from tests.sim.auditor.mutations import COPY_MUTATIONS, MUTATIONS, applied
from tests.sim.auditor.schedule import run_audit, run_copies


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.auditor", description=__doc__)
    parser.add_argument("--schedules", type=positive, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--copies", action="store_true", help="of the checks of copies")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS | COPY_MUTATIONS))
    parser.add_argument("--replay", action="store_true", help="print the story of --seed")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    run = run_copies if options.copies else run_audit
    marks: Counter[str] = Counter()
    began = time.monotonic()
    with applied(options.mutation) if options.mutation else nullcontext():
        count = 1 if options.replay else options.schedules
        for seed in range(options.seed, options.seed + count):
            outcome = run(seed, keeps_trace=options.replay)
            marks.update(outcome.marks)
            if options.replay:
                sys.stdout.write("\n".join(outcome.trace or []) + "\n")
            if outcome.violation is not None:
                sys.stdout.write(f"seed {seed}: {outcome.violation}\n")
                return 1
    for name in sorted(marks):
        sys.stdout.write(f"  {marks[name]:8} times: {name}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(f"{count} schedules, no violation ({seconds:.1f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
