"""`python -m tests.exactly_once --kills 20 --seed 1`: exactly once, by force."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.options import positive
from ledgerlog_spark.local.cluster import Cluster, local_cluster
from ledgerlog_spark.log.failpoints import NAMES
from tests.exactly_once.compare import Comparison
from tests.exactly_once.driver import ROOT
from tests.exactly_once.kills import Scenario
from tests.exactly_once.zombie import Verdict, haunt

BOOKIES = 5
CHUNK_ROWS = 180_000


def _compared(cluster: Cluster, rows: int) -> Comparison:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.exactly_once.compare",
         cluster.metadata_service_uri, str(rows)],
        cwd=ROOT, stdout=subprocess.PIPE, check=False, text=True,
    )  # fmt: skip
    return Comparison(**json.loads(ended.stdout.strip().splitlines()[-1]))


def main() -> int:
    """Return 0 if output equals input, all failpoints were hit and the zombie had no effect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=positive, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chunk-rows", type=positive, default=CHUNK_ROWS)
    parser.add_argument("--no-zombie", action="store_true")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    directory = tempfile.mkdtemp(prefix="exactly-once-")
    print(f"what drivers say is in {directory}", file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    with (
        local_cluster(bookies=BOOKIES, upkeep=False) as cluster,
        Progress(*columns, console=console) as progress,
    ):
        scenario = Scenario(cluster, Path(directory), chosen.chunk_rows, chosen.seed)
        bar = progress.add_task("kills", total=chosen.kills)
        drivers_max = chosen.kills // 4 + len(NAMES)
        while scenario.tally.total < chosen.kills or (
            scenario.failpoints_left and scenario.drivers < drivers_max
        ):
            scenario.play_driver(chosen.kills - scenario.tally.total)
            scenario.sweep()
            progress.update(bar, completed=scenario.tally.total)
        verdict = None
        if not chosen.no_zombie:
            progress.update(bar, description="zombie")
            verdict = haunt(scenario)
        progress.update(bar, description="finish")
        scenario.finish()
        result = _compared(cluster, scenario.rows)
    status = _report(scenario, result, verdict)
    if status == 0:
        shutil.rmtree(directory)
    return status


def _report(scenario: Scenario, result: Comparison, verdict: Verdict | None) -> int:
    tally = scenario.tally
    print(", ".join(f"{count} {role}" for role, count in sorted(tally.kills.items()) if count))
    if tally.let_down:
        print(f"{tally.let_down} drivers were let down by Spark itself and tried again")
    if tally.missed:
        print(f"armed and not reached by the first driver: {', '.join(tally.missed)}")
    print(result)
    if verdict is not None:
        print(verdict)
    if scenario.failpoints_left:
        print(f"nothing died at {', '.join(scenario.failpoints_left)}")
    print(
        f"{tally.total} kills at {tally.failpoints} failpoints and at random, "
        f"{tally.batches:,} batches, {result.rows_in:,} rows in, {result.rows_out:,} rows out, "
        f"{result.lost} lost, {result.duplicated} duplicated"
    )
    is_laid = verdict is None or verdict.is_right
    return 0 if result.is_exact and is_laid and not scenario.failpoints_left else 1


if __name__ == "__main__":
    sys.exit(main())
