"""`python -m tests.kill_test --rounds 50 --seed 1`.

Each round keeps a small ledger beside the large one that it deletes. So the bookies compact files
all the time, and are killed during compactions. At the end, all small ledgers are read.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.progress import track

from benchmarks.options import positive
from ledgerlog_spark.local.cluster import local_cluster
from tests.kill_test.round import Result, check_kept, play

BOOKIES = 5
ALWAYS_COMPACTING = {
    "LEDGERLOG_GC_INTERVAL_MS": "1000",
    "LEDGERLOG_COMPACTION_MAJOR_INTERVAL_MS": "1",
    "LEDGERLOG_COMPACTION_MAJOR_PERCENT": "95",
}


def main() -> int:
    """Exit code 0 when nothing was lost, changed or invented."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=50)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    results: list[Result] = []
    os.environ.update(ALWAYS_COMPACTING)
    with local_cluster(bookies=BOOKIES) as cluster:
        for number in track(range(chosen.rounds), description="killing"):
            results.append(play(cluster, number, chosen.seed))
            if results[-1].lost or results[-1].changed or results[-1].invented:
                print(f"round {number}: {results[-1]}; replay with --seed {chosen.seed}")
        kept = check_kept(cluster, [result.kept_ledger_id for result in results])
        compactions = sum(
            log.read_text().count('"event": "compacted"')
            for log in Path(cluster.directory).glob("bookie-*.log")
        )
    acknowledged = sum(r.acknowledged for r in results)
    lost = sum(r.lost for r in results)
    changed = sum(r.changed for r in results)
    invented = sum(r.invented for r in results)
    print(
        f"{len(results)} rounds, {acknowledged:,} acknowledged, "
        f"{lost} lost, {changed} changed, {invented} invented; "
        f"{compactions} compactions, {kept.read:,} entries of kept ledgers read, {kept.lost} lost"
    )
    return 1 if lost or changed or invented or kept.lost or not compactions else 0


if __name__ == "__main__":
    sys.exit(main())
