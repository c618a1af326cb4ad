"""`python -m tests.kill_test --rounds 100 --seed 1`.

Each round keeps a small ledger beside the large one that it deletes. Before each kill, each bookie
begins a compaction, so bookies are killed while they copy entries. Each round reads every entry of
its large ledger from every replica. At the end, all small ledgers are read in the same way.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.progress import track

from benchmarks.options import above_zero, positive
from tests.fixtures.bookie_process import MEBIBYTE
from tests.fixtures.stage import Stage
from tests.kill_test.round import Tally, check_kept, mode_settings, play

BOOKIES = 5
SETTINGS = {
    "compaction_major_percent": 95,
    "compaction_bytes_per_s": MEBIBYTE // 4,  # slow, so more kills happen during it
    "disk_usage_max": 1,
}


def run(rounds: int, seed: int, minutes: float, directory: Path) -> int:
    """Play rounds until all are played or the time is over, and return the exit code."""
    tally = Tally()
    ends = time.monotonic() + 60 * minutes
    with ExitStack() as stack:
        stage = Stage(
            directory, stack, BOOKIES, lambda number: SETTINGS | mode_settings(directory, number)
        )
        for number in track(range(rounds), description="killing"):
            if time.monotonic() > ends:
                break
            was_right = tally.is_right
            play(stage, number, seed, tally)
            if was_right and not tally.is_right:
                print(f"round {number} is wrong; replay with --seed {seed}")
        kept = check_kept(stage, tally)
        compactions = sum(
            bookie.log().count('"event": "compacted"') for bookie in stage.bookies.values()
        )
    for sentence in tally.copies.broken:
        print(f"broken: {sentence}")
    kills = ", ".join(f"{count} {mode}" for mode, count in sorted(tally.kills.items()))
    copies = tally.copies
    print(
        f"{tally.rounds} rounds, {tally.kills.total()} bookies killed ({kills}; "
        f"{tally.compacting} of them during a compaction), {compactions} compactions, "
        f"{tally.acknowledged:,} acknowledged, {tally.lost} lost, {tally.invented} invented; "
        f"{copies.entries:,} entries, "
        f"{copies.read:,} copies read ({kept:,} of kept ledgers), {copies.absent:,} absent, "
        f"{copies.wrong} wrong"
    )
    return 0 if tally.is_right and compactions else 1


def main() -> int:
    """Return 0 if nothing was lost, changed or invented."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=above_zero, default=math.inf, help="begin no round after this"
    )
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        return run(chosen.rounds, chosen.seed, chosen.minutes, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-kills-") as directory:
        return run(chosen.rounds, chosen.seed, chosen.minutes, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
