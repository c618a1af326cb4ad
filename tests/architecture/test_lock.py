"""Exactly the packages of the lock file are installed, even after a newer release of a package."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.trees import ROOT, assert_none
from tests.matrix.__main__ import _without

LOCK = ROOT / "requirements.lock"
INSTALLERS = (ROOT / "Makefile", ROOT / "tests/matrix/__main__.py")


def installations(path: Path) -> list[str]:
    """The lines that install from hashes."""
    return [line for line in path.read_text().splitlines() if "--require-hashes" in line]


def test_the_resolver_of_pip_does_not_see_what_the_lock_file_leaves_open() -> None:
    # A dependency with an extra (coverage[toml]>=7) made pip look at the newest release, which
    # has no hash here: each setup failed from the day of that release.
    assert all(installations(path) for path in INSTALLERS)
    assert_none(
        (
            f"{path.name}: {line.strip()}"
            for path in INSTALLERS
            for line in installations(path)
            if "--no-deps" not in line
        ),
        "install the lock file with --no-deps",
    )


def test_each_requirement_has_one_version_and_its_hashes() -> None:
    blocks = re.split(r"\n(?=\S)", LOCK.read_text())
    assert len(blocks) > 100
    assert_none(
        (
            block.splitlines()[0]
            for block in blocks
            if not re.match(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+]+ ", block) or "--hash=" not in block
        ),
        "run make lock",
    )


def test_a_package_is_left_out_of_the_lock_file_with_its_extras() -> None:
    names = ("py4j", "pyspark[connect]", "pyarrow")
    first, second, third = (f"{each}==1 \\\n    --hash=sha256:0\n" for each in names)
    assert _without(first + second + third, {"pyspark", "py4j"}) == third
