"""Options that all benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def parsed(
    description: str | None,
    *,
    rounds: int = 3,
    with_only: bool = False,
    engines: Callable[[str], object] | None = None,
) -> argparse.Namespace:
    """`--rounds`, `--seconds`, `--directory`, `--json` and `--peer`.

    Some scripts also have `--only` or `--engines`; `engines` parses the value of the latter.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="each figure is their median")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--directory", type=Path, default=None, help="where the bookies write")
    parser.add_argument("--json", action="store_true", help="one JSON object a figure")
    parser.add_argument(
        "--peer", type=Path, default=None, help="directory of a rig that runs Apache BookKeeper"
    )
    if with_only:
        parser.add_argument("--only", help="figures whose name contains this")
    if engines is not None:
        parser.add_argument("--engines", type=engines, help="compare these, such as shim,python")
    return parser.parse_args()
