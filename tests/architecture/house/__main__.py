"""`python -m tests.architecture.house` counts a checkout.

`--list NAME` prints the places of a tic; `--sentences N --seed S` prints N sentences at random.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from benchmarks.options import positive
from tests.architecture.house.areas import prose_of
from tests.architecture.house.figures import figures_of
from tests.architecture.house.report import folder_table, other_table, summary
from tests.architecture.house.sentences import drawn
from tests.architecture.house.tics import TICS, hits


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.house", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[3], help="a checkout")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--list", choices=("all", *TICS), help="print each place of a tic instead")
    parser.add_argument(
        "--sentences", type=positive, metavar="N", help="print N sentences at random"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the sentences")
    options = parser.parse_args()
    root = options.root.resolve()
    if options.sentences:
        for sentence in drawn(root, options.sentences, options.seed):
            print(sentence)
        return
    if options.list:
        names = tuple(TICS) if options.list == "all" else (options.list,)
        found = hits(root, prose_of(root), names)
        for hit in found:
            print(f"{hit.path}:{hit.line}: {hit.tic}: {hit.text}")
        print(f"{len(found):,} places")
        return
    figures = figures_of(root)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    console = Console(width=140)
    console.print(folder_table(figures), other_table(figures))
    print(summary(figures))


if __name__ == "__main__":
    main()
