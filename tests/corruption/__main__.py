"""`python -m tests.corruption`: damages each byte of small directories of a bookie."""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.corruption.damage import KINDS
from tests.corruption.judge import Verdict
from tests.corruption.plan import Counts, play, portions


def main() -> int:
    """Return 0 if no answer was wrong."""
    counts: Counts = Counter()
    context = multiprocessing.get_context("spawn")
    workers = multiprocessing.cpu_count()
    with ProcessPoolExecutor(workers, mp_context=context) as pool, Progress() as progress:
        running = [pool.submit(play, name, start) for name, start in portions()]
        bar = progress.add_task("portions", total=len(running))
        for done in as_completed(running):
            found, wrong = done.result()
            counts += found
            for reason in wrong:
                progress.console.print(f"wrong: {reason}", markup=False)
            progress.advance(bar)
    Console(width=120).print(table_of(counts))
    sums = {verdict: total(counts, verdict=verdict.value) for verdict in Verdict}
    print(
        f"{counts.total():,} cases, "
        + ", ".join(f"{count:,} {verdict.value}" for verdict, count in sums.items())
    )
    return 1 if sums[Verdict.WRONG] else 0


def total(counts: Counts, role: str = "", kind: str = "", verdict: str = "") -> int:
    """Number of cases with these properties. An empty property fits all cases."""
    wanted = (role, kind, verdict)
    return sum(
        count
        for key, count in counts.items()
        if all(not want or have == want for have, want in zip(key, wanted, strict=True))
    )


def table_of(counts: Counts) -> Table:
    """Harmless, detected and wrong cases of each file, by kind of damage."""
    table = Table("file", *KINDS, "all", title="harmless / detected / wrong")
    for role in sorted({role for role, _, _ in counts}):
        cells = (
            " / ".join(f"{total(counts, role, kind, verdict.value):,}" for verdict in Verdict)
            for kind in (*KINDS, "")
        )
        table.add_row(role, *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
