"""The source files of both packages, which several generated pages describe."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("ledgerlog_spark", "bookie_server")


def python_files() -> list[Path]:
    """Return the Python files of both packages, sorted within each package."""
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
