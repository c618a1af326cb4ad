"""The files that the rules check. Each file is read, parsed and walked only once."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.architecture.house.syntax import nodes_of, parsed

ROOT = Path(__file__).parents[2]
PACKAGES = ("ledgerlog_spark", "bookie_server")
GENERATED = "_pb2"


@cache
def text(path: Path) -> str:
    return path.read_text(errors="replace")


def tree(path: Path) -> ast.Module:
    return parsed(text(path))


def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of `ast.walk`."""
    return nodes_of(text(path))


def walked(
    node: ast.AST, above: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Each node below this node, with its ancestors from the outermost to its parent."""
    yield node, above
    for child in ast.iter_child_nodes(node):
        yield from walked(child, (*above, node))


@cache
def nodes_and_above(path: Path) -> tuple[tuple[ast.AST, tuple[ast.AST, ...]], ...]:
    """The result of `walked` for a file."""
    return tuple(walked(tree(path)))


@cache
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return tuple(ROOT / name for name in listed if name and (ROOT / name).exists())


@cache
def modules(folder: str) -> tuple[Path, ...]:
    """The modules below a folder, without generated ones."""
    found = tuple(p for p in sorted((ROOT / folder).rglob("*.py")) if GENERATED not in p.name)
    assert found, f"{folder} has no module: a rule about it would hold for nothing"
    return found


PYTHON = [
    path
    for path in tracked()
    if path.suffix == ".py"
    and path.relative_to(ROOT).parts[0] in PACKAGES
    and GENERATED not in path.name
]
"""The modules of both packages that are in the repository."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def assert_none(offenders: Iterable[object], advice: str) -> None:
    """Fail with a line for each fault, because pytest shortens the lists that it prints."""
    lines = sorted(str(each) for each in offenders)
    assert not lines, f"{len(lines)} found; {advice}:\n" + "\n".join(f"  {line}" for line in lines)
