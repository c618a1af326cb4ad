"""How does this checkout compare with another checkout, in alternating rounds on the same machine?

`python -m benchmarks.compare BASE append read --pairs 30`: BASE is a directory with another
checkout (`git worktree add BASE REVISION`). The scripts of this checkout measure the packages of
both checkouts. Each checkout has a cluster of its own, and both clusters run at the same time. A
pair consists of one round of each checkout, in alternating order, so that other programs on the
machine affect both checkouts equally. After every few pairs, new clusters are started. The ratio of
a pair is the figure of this checkout divided by the figure of BASE. If the figure is a time, the
ratio is inverted. So a ratio above 1 always means that this checkout is faster. The script prints
the median of the ratios and its 95 % confidence interval, which depends only on the ranks of the
ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import subprocess
import sys
from pathlib import Path

from benchmarks.checkout import HERE, environment, scripts
from benchmarks.machine import median
from benchmarks.options import above_zero, positive
from benchmarks.report import show_ratios

RATIO_MIN = 0.95
PAIRS_OF_A_CLUSTER = {"append": 2, "read": 10, "recovery": 30, "spark_write": 10, "spark_read": 30}
"""Number of pairs after which new clusters are started. Data that `append` and `spark_write` have
deleted stays on the disk for some time. A pair of `append` needs 10 GB, and bookies refuse writes
shortly before their disk is full."""


class Side:
    """The process that runs rounds with the packages of one checkout."""

    def __init__(self, tree: Path, script: str, options: argparse.Namespace) -> None:
        """Start the process. Its cluster is ready when the method `figures` returns."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.rounds", script, str(options.seconds), str(tree)],
            cwd=options.scripts_directory,
            env=environment(tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def figures(self) -> list[str]:
        """Return the names of the figures of this checkout."""
        return list(json.loads(self._line()))

    def round(self, figure: str) -> float:
        """Run one round of a figure, and return its value."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{figure}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End the process and its cluster."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a round failed with exit code {self._process.wait()}, see above")
        return line


def main() -> int:
    """Run the pairs. The exit code is 1 if a median is below 0.95."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path, help="directory with the other checkout")
    parser.add_argument("scripts", nargs="+", choices=PAIRS_OF_A_CLUSTER)
    parser.add_argument("--pairs", type=positive, default=30)
    parser.add_argument("--seconds", type=above_zero, default=1.0, help="time of an append round")
    parser.add_argument("--only", help="compare only figures whose name contains this text")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each figure")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    with scripts() as directory:
        options.scripts_directory = directory
        for script in options.scripts:
            _compare(script, options, ratios)
    if not ratios:
        raise SystemExit(f"no figure with {options.only!r} in its name is in both checkouts")
    rows = [(name, median(found), *_interval(found), len(found)) for name, found in ratios.items()]
    show_ratios(f"this checkout to {options.base}", rows, RATIO_MIN, as_json=options.json)
    return int(any(row[1] < RATIO_MIN for row in rows))


def _compare(script: str, options: argparse.Namespace, ratios: dict[str, list[float]]) -> None:
    """Add the ratios of a script, pair by pair."""
    done = 0
    while done < options.pairs:
        count = min(PAIRS_OF_A_CLUSTER[script], options.pairs - done)
        with contextlib.ExitStack() as stack:
            ours, base = sides = [
                Side(tree, script, options) for tree in (HERE, options.base.absolute())
            ]
            for side in sides:
                stack.callback(side.close)
            names = [side.figures() for side in sides]
            wanted = [name for name in names[0] if name in names[1] and _is_wanted(name, options)]
            for name in wanted:
                for side in sides:
                    side.round(name)  # warms up, not counted
            for number in range(count):
                for name in wanted:
                    found = {side: side.round(name) for side in sides[:: 1 - 2 * (number % 2)]}
                    ratios.setdefault(f"{script}: {name}", []).append(found[ours] / found[base])
                sys.stderr.write(f"{script}: pair {done + number + 1} of {options.pairs}\n")
        done += count


def _is_wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.only or options.only in name


def _interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, by ranks (binomial, p = 1/2)."""
    count, ordered = len(ratios), sorted(ratios)
    tail, rank = 0.0, 0
    while rank < count // 2:
        tail += math.comb(count, rank) / 2**count
        if tail > 0.025:
            break
        rank += 1
    return ordered[max(rank - 1, 0)], ordered[min(count - rank, count - 1)]


if __name__ == "__main__":
    sys.exit(main())
