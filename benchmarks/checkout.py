"""Runs the scripts of this folder on the packages of any checkout."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parents[1]


@contextlib.contextmanager
def scripts() -> Iterator[Path]:
    """Yield a working directory with these scripts. `environment` selects the measured packages."""
    with TemporaryDirectory() as directory:
        (Path(directory) / "benchmarks").symlink_to(HERE / "benchmarks")
        yield Path(directory)


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment variables for a process that imports the packages of a checkout."""
    return os.environ | {"PYTHONPATH": str(checkout.absolute())}
