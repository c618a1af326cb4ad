"""`python -m tests.kill_test --rounds 50 --seed 1`."""

from __future__ import annotations

import argparse
import sys

from rich.progress import track

from benchmarks.options import positive
from ledgerlog_spark.local.cluster import local_cluster
from tests.kill_test.round import Result, play

BOOKIES = 5


def main() -> int:
    """Exit code 0 when nothing was lost, changed or invented."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=50)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    results: list[Result] = []
    with local_cluster(bookies=BOOKIES) as cluster:
        for number in track(range(chosen.rounds), description="killing"):
            results.append(play(cluster, number, chosen.seed))
            if results[-1].lost or results[-1].changed or results[-1].invented:
                print(f"round {number}: {results[-1]}; replay with --seed {chosen.seed}")
    acknowledged = sum(r.acknowledged for r in results)
    lost = sum(r.lost for r in results)
    changed = sum(r.changed for r in results)
    invented = sum(r.invented for r in results)
    print(
        f"{len(results)} rounds, {acknowledged:,} acknowledged, "
        f"{lost} lost, {changed} changed, {invented} invented"
    )
    return 1 if lost or changed or invented else 0


if __name__ == "__main__":
    sys.exit(main())
