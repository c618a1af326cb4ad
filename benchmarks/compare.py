"""How does this checkout compare with another one, in alternating runs on the same machine?

`python -m benchmarks.compare BASE append read --pairs 30`: BASE is a directory with another
checkout (`git worktree add BASE REVISION`); the scripts are those of this one. Each pair runs both,
in alternating order, so that what else the machine does falls on both alike. A figure is the median
of the pairs' ratios, this checkout to BASE, turned so that more than 1 is better; beside it stands
the range in which the median lies with 95 % confidence, from the order of the ratios alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import median
from benchmarks.report import show_ratios

HERE = Path(__file__).parents[1]
RATIO_MIN = 0.95


def main() -> int:
    """Run the pairs; the exit code is 1 when a median is below 0.95."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path, help="directory with the other checkout")
    parser.add_argument("scripts", nargs="+", help="of benchmarks, such as append and read")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--only", help="figures whose name contains this")
    parser.add_argument("--json", action="store_true", help="one JSON object a figure")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    with TemporaryDirectory() as directory:
        # A working directory without packages: those come from the checkout that is measured.
        (Path(directory) / "benchmarks").symlink_to(HERE / "benchmarks")
        options.scripts_directory = directory
        for number in range(options.pairs):
            for script in options.scripts:
                for question, ratio in _pair(options, script, ours_first=number % 2 == 0).items():
                    ratios.setdefault(f"{script}: {question}", []).append(ratio)
            sys.stderr.write(f"pair {number + 1} of {options.pairs}\n")
    rows = [(name, median(found), *_interval(found), len(found)) for name, found in ratios.items()]
    show_ratios(f"this checkout to {options.base}", rows, RATIO_MIN, as_json=options.json)
    return int(any(row[1] < RATIO_MIN for row in rows))


def _pair(options: argparse.Namespace, script: str, *, ours_first: bool) -> dict[str, float]:
    """The ratio of each figure, more than 1 where this checkout is better."""
    trees = [HERE, options.base.absolute()]
    found = {
        tree: _figures(tree, script, options) for tree in (trees if ours_first else trees[::-1])
    }
    ours, base = (found[tree] for tree in trees)
    return {
        question: _better(ours[question], base[question])
        for question in ours.keys() & base.keys()
        if not options.only or options.only in question
    }


def _better(ours: dict[str, float], base: dict[str, float]) -> float:
    ratio = ours["value"] / base["value"]
    return 1 / ratio if ours["lower_is_better"] else ratio


def _figures(tree: Path, script: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """What a script prints in a checkout, by question."""
    arguments = ["--rounds", "1", "--seconds", str(options.seconds), "--json"]
    if options.only and script == "append":
        arguments += ["--only", options.only]
    ended = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{script}", *arguments],
        cwd=options.scripts_directory,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {figure["question"]: figure for figure in figures}


def _interval(ratios: list[float]) -> tuple[float, float]:
    """Where the median lies with 95 % confidence: ranks of a binomial distribution of one half."""
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
