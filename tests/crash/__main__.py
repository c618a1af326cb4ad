"""`python -m tests.crash --states 10000`: crashes at each disk operation of random runs."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
from collections import Counter, deque
from concurrent.futures import Future, ProcessPoolExecutor

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.options import positive
from tests.crash.points import KINDS, play_job


def main() -> int:
    """Return 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=positive, default=12_000, help="minimum number of crashes")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run")
    chosen = parser.parse_args()
    seen: Counter[str] = Counter()
    by_kind: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    jobs = ((seed, kind) for seed in itertools.count(chosen.seed) for kind in KINDS)
    workers = multiprocessing.cpu_count()
    running: deque[tuple[str, Future[tuple[Counter[str], str]]]] = deque()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, Progress() as progress:
        bar = progress.add_task("crash states", total=chosen.states)
        while seen["states"] < chosen.states:
            while len(running) <= workers:
                job = next(jobs)
                running.append((job[1], pool.submit(play_job, *job)))
            kind, result = running.popleft()
            counts, violation = result.result()
            seen += counts
            by_kind[kind] += counts
            if violation:
                progress.console.print(violation, markup=False)
            progress.update(bar, completed=seen["states"])
        pool.shutdown(cancel_futures=True)
    Console().print(table_of(by_kind))
    print(f"{seen['states']:,} crash states, {seen['lost']} lost")
    return 1 if seen["lost"] else 0


def table_of(by_kind: dict[str, Counter[str]]) -> Table:
    """The counts of each kind of run: one row for each situation."""
    table = Table("crash", *by_kind)
    for name in sorted({name for counts in by_kind.values() for name in counts}):
        table.add_row(name, *(f"{counts[name]:,}" for counts in by_kind.values()))
    return table


if __name__ == "__main__":
    sys.exit(main())
