"""Options that all benchmarks share, and types of arguments for all commands of the checkout."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path


def positive(text: str) -> int:
    """Parse a whole number of at least 1. With 0, a command would measure nothing and succeed."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def above_zero(text: str) -> float:
    """Parse a finite number above 0, such as a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def parsed(
    description: str | None,
    *,
    rounds: int = 3,
    with_only: bool = False,
    engines: Callable[[str], object] | None = None,
) -> argparse.Namespace:
    """Return the parsed options `--rounds`, `--seconds`, `--directory`, `--json` and `--peer`.

    With `with_only`, there is also the option `--only`. If `engines` is a function, there is also
    the option `--engines`, whose value `engines` parses.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=positive, default=rounds, help="each figure is the median of the rounds"
    )
    parser.add_argument("--seconds", type=above_zero, default=3.0, help="duration of a round")
    parser.add_argument("--directory", type=Path, default=None, help="directory of the bookies")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each figure")
    parser.add_argument(
        "--peer", type=Path, default=None, help="directory of a rig that runs Apache BookKeeper"
    )
    if with_only:
        parser.add_argument("--only", help="measure only the figures whose name contains this text")
    if engines is not None:
        parser.add_argument("--engines", type=engines, help="engines, such as shim,python")
    return parser.parse_args()
