"""All figures of one checkout."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.architecture.house.areas import (
    by_folder,
    is_log_layer,
    is_log_layer_above_stores,
    modules_of,
    prose_of,
)
from tests.architecture.house.imports import circles, edges_within, graph_of, name_of
from tests.architecture.house.lines import Lines, lines_of, uses_of_any
from tests.architecture.house.tics import TICS, hits

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALL_LINES: Final = 40
FLAT_FILES: Final = 20
PATIENCE_SECONDS: Final = 300
CASES: Final = re.compile(r"(?m)^(?:collected )?(\d+) tests? collected|^collected (\d+) items?")


def line_figures(lines: dict[str, Lines], paths: Iterable[str]) -> dict[str, int]:
    chosen = [lines[path] for path in paths]
    added = sum(chosen, Lines())
    return {"files": len(chosen), "lines": added.total, **asdict(added)}


def tree_figures(root: Path) -> dict[str, Any]:
    """The figures that need only the files of the packages."""
    paths = modules_of(root)
    texts = {path: (root / path).read_text() for path in paths}
    lines = {path: lines_of(text) for path, text in texts.items()}
    graph = graph_of(root, paths)
    folders = {}
    for folder, inside in by_folder(paths).items():
        names = {name_of(path) for path in inside}
        folders[folder] = {
            **line_figures(lines, inside),
            "modules": sum(not path.endswith("/__init__.py") for path in inside),
            "imports_within": edges_within(graph, names),
        }
    small = {path: lines[path].total for path in paths if lines[path].total < SMALL_LINES}
    return {
        "total": line_figures(lines, paths),
        "log_layer": line_figures(lines, filter(is_log_layer, paths)),
        "log_layer_above_stores": line_figures(lines, filter(is_log_layer_above_stores, paths)),
        "folders": folders,
        "modules_of_large_folders": sum(
            each["modules"] for each in folders.values() if each["modules"] > FLAT_FILES
        ),
        "small_files": {
            path: count for path, count in small.items() if not path.endswith("__init__.py")
        },
        "small_packages": sum(path.endswith("__init__.py") for path in small),
        "any": sum(map(uses_of_any, texts.values())),
        "any_words": sum(len(re.findall(r"\bAny\b", text)) for text in texts.values()),
        "circles": circles(graph),
        "circles_at_run_time": circles(graph_of(root, paths, typing_too=False)),
    }


def tic_figures(root: Path) -> dict[str, int]:
    found = Counter(hit.tic for hit in hits(root, prose_of(root)))
    return {name: found[name] for name in TICS}


def moves_of_an_append(root: Path) -> dict[str, Any]:
    """The moves that `moves` prints, or in `error` the reason why the tree cannot be measured."""
    script = Path(__file__).with_name("moves.py")
    ran = subprocess.run(
        [sys.executable, "-I", "-B", str(script), str(root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    if ran.returncode:
        return {"error": ran.stderr.strip().splitlines()[-1]}
    return dict(json.loads(ran.stdout))


def architecture_cases(root: Path) -> int | None:
    """The number of cases that pytest collects in tests/architecture; None if this fails."""
    ran = subprocess.run(
        [
            sys.executable, "-B", "-m", "pytest", "--collect-only", "-q", "-n0",
            "-p", "no:cacheprovider", "tests/architecture",
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    found = CASES.search(ran.stdout)
    return int(found.group(1) or found.group(2)) if found and ran.returncode == 0 else None


def figures_of(root: Path) -> dict[str, Any]:
    return {
        **tree_figures(root),
        "append": moves_of_an_append(root),
        "architecture_cases": architecture_cases(root),
        "tics": tic_figures(root),
    }
