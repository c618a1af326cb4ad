"""Which files are counted, and to which folder or layer each of them belongs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PACKAGES: Final = ("ledgerlog_spark", "bookie_server")

GENERATED: Final = ("*_pb2.py", "*_pb2_grpc.py")

LOG_LAYER: Final = (
    "ledgerlog_spark/protocol/log_*",
    "ledgerlog_spark/protocol/leader_*",
    "ledgerlog_spark/log/*",
    "ledgerlog_spark/metadata/log_*",
    # The layout with folders in place of prefixes.
    "ledgerlog_spark/protocol/log/*",
    "ledgerlog_spark/protocol/leader/*",
    "ledgerlog_spark/metadata/log/*",
    "ledgerlog_spark/metadata/logs/*",
    "ledgerlog_spark/metadata/*/log_*",
)
"""Shell patterns of the log layer's files, of every layout so far; `*` also matches slashes."""


STORES: Final = "ledgerlog_spark/metadata/*"


def is_log_layer(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in LOG_LAYER)


def is_log_layer_above_stores(path: str) -> bool:
    """Whether the file is in the log layer above its stores (14,199 lines on commit c5a11d1)."""
    return is_log_layer(path) and not fnmatchcase(path, STORES)


def modules_of(root: Path) -> list[str]:
    """Paths of all Python files of both packages below `root`, without generated ones."""
    return sorted(
        str(path.relative_to(root))
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if not any(fnmatchcase(path.name, pattern) for pattern in GENERATED)
    )


PROSE: Final = (
    "*.md",
    ".github/**/*.md",
    "Makefile",
    "benchmarks/*.md",
    "benchmarks/*.py",
    "docs/**/*.md",
    "docs/**/*.py",
    "notebooks/*.ipynb",
    "pyspark_ledger.py",
)
"""The files with prose outside of the packages. The prose of tests is not checked."""


def prose_of(root: Path) -> list[str]:
    """Paths of all files whose words are checked: the modules, then those of `PROSE`."""
    others = {str(path.relative_to(root)) for pattern in PROSE for path in root.glob(pattern)}
    return [*modules_of(root), *sorted(others)]


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(folder_of(path), []).append(path)
    return dict(sorted(folders.items()))
