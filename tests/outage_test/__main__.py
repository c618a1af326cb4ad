"""`python -m tests.outage_test --away-s 300 --zookeeper-away-s 30 --seed 1`.

The load of three bookies with auto-recovery is a leader log, a Spark stream and single ledgers.
First a bookie dies, and comes back. Then, on another cluster, ZooKeeper dies and comes back, and
all sessions expire. At the end of each part, all rows, records and entries are read. Then each copy
of each entry is read.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.options import positive
from tests.outage_test import bookie_away, zookeeper_away
from tests.outage_test.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = ("bookie", "zookeeper")
DELAY_SECONDS_MAX = 60
"""The default delay of auto-recovery before the ledgers of one lost bookie are marked."""
DELAY_SHARE = 5
"""A short absence is divided by this number to get the delay, so that all ledgers are marked."""
ZOOKEEPER_DELAY_SECONDS = 5


def run(name: str, world: World, play: Callable[[World], dict[str, float]]) -> tuple[str, int]:
    """Play a part, and return its line and the number of its violations."""
    longest: dict[str, float] = {}
    try:
        with world:
            longest = play(world)
            world.finish()
    except Exception as error:  # noqa: BLE001 - the other part runs too
        traceback.print_exc()
        world.fail(f"{type(error).__name__}: {str(error)[:500]}")
    copies = world.copies
    marks = len(world.observer.marked) if hasattr(world, "observer") else 0
    gaps = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in longest.items())
    line = (
        f"{name} away: gaps {gaps or 'unknown'}; {copies.entries:,} entries, "
        f"{copies.read:,} copies, {copies.absent} absent, {copies.wrong} wrong, "
        f"healed after {world.seconds_to_heal:.0f} s, {marks:,} marks"
    )
    note(line)
    return line, len(world.broken)


def note(sentence: str) -> None:
    """Print at once what has happened."""
    print(sentence, flush=True)


def main() -> int:
    """Return 0 if nothing was lost, nothing stood still for too long, and each copy is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--away-s", type=positive, default=300)
    parser.add_argument("--zookeeper-away-s", type=positive, default=30)
    parser.add_argument("--settled-s", type=positive, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    plays: dict[str, tuple[int, Callable[[World], dict[str, float]]]] = {
        "bookie": (
            min(DELAY_SECONDS_MAX, max(1, chosen.away_s // DELAY_SHARE)),
            lambda world: bookie_away.play(world, chosen.away_s),
        ),
        "zookeeper": (
            ZOOKEEPER_DELAY_SECONDS,
            lambda world: zookeeper_away.play(world, chosen.zookeeper_away_s, chosen.settled_s),
        ),
    }
    lines, violations = [], 0
    with tempfile.TemporaryDirectory(prefix="ledgerlog-outage-") as temporary:
        directory = chosen.directory or Path(temporary)
        for name in [chosen.only] if chosen.only else PARTS:
            delay, play = plays[name]
            line, broken = run(name, World(directory / name, chosen.seed, delay, note), play)
            lines.append(line)
            violations += broken
    print(f"{len(lines)} outages, {violations} violations: {'; '.join(lines)}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
