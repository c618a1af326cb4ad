"""The versions that the metadata allows, and the pairs of versions that are tested.

Every allowed PySpark runs with the oldest Python, and every allowed Python with the newest PySpark,
because differences between two Pythons hardly depend on the PySpark.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYSPARK_RELEASES = ("4.0.5", "4.1.4", "4.2.0", "4.2.1", "4.3.0")
"""The newest release of each minor release of Spark 4. It includes all allowed releases."""
PYTHON_RELEASES = ("3.10", "3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True, slots=True)
class Pair:
    """One environment."""

    python: str
    pyspark: str

    def __str__(self) -> str:
        return f"Python {self.python}, PySpark {self.pyspark}"


def pairs() -> list[Pair]:
    """The tested pairs, the oldest PySpark first."""
    pythons, sparks = allowed_pythons(), allowed_pysparks()
    return [
        *(Pair(pythons[0], spark) for spark in sparks),
        *(Pair(python, sparks[-1]) for python in pythons[1:]),
    ]


def allowed_pythons() -> list[str]:
    """Minor releases of Python, oldest first."""
    return _within(PYTHON_RELEASES, _project()["requires-python"])


def allowed_pysparks() -> list[str]:
    """Releases of PySpark, oldest first."""
    extra = _project()["optional-dependencies"]["spark"]
    bounds = next(one for one in extra if one.startswith("pyspark"))
    return _within(PYSPARK_RELEASES, bounds.removeprefix("pyspark"))


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _within(releases: tuple[str, ...], bounds: str) -> list[str]:
    found = re.fullmatch(r">=([\d.]+),<([\d.]+)", bounds.replace(" ", ""))
    assert found is not None, f"{bounds!r} is not of the form >=A,<B"
    low, high = (_parts(each) for each in found.groups())
    return [release for release in releases if low <= _parts(release) < high]


def _parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
