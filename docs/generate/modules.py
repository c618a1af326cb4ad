"""Writes the reference of all modules from the docstrings of the packages and of the modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from docs.generate.markdown import code, table
from docs.generate.sources import PACKAGES, ROOT

FOLDERS: Final = (*PACKAGES, "docs/generate")
SCALA: Final = ROOT / "jvm-shim/src/main/scala"
FIRST_COMMENT: Final = re.compile(r"^/\*\*(.*?)(?:\n \*\n|\n \* @|\*/)", re.DOTALL | re.MULTILINE)
"""Pattern of the first paragraph of the comment before the first class of a Scala file."""
HEAD: Final = """\
# Modules

This page lists every module of both packages and of the generators of this site, with the first paragraph of its
docstring. The text of a folder describes how its modules belong together. The files of the JVM engine follow, with the
first paragraph of their comment. [Architecture](../ARCHITECTURE.md) describes the layers, and names the modules for
frequent changes.

"""


def page() -> str:
    """Return the page about all folders, modules and Scala files."""
    folders = sorted(
        init.parent for folder in FOLDERS for init in (ROOT / folder).rglob("__init__.py")
    )
    scala = sorted({path.parent for path in SCALA.rglob("*.scala")})
    return HEAD + "\n".join([*map(_of_folder, folders), *map(_of_scala_folder, scala)])


def _of_folder(folder: Path) -> str:
    guide = _docstring(folder / "__init__.py")
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    rows = [(code(path.name), _docstring(path).partition("\n\n")[0]) for path in modules]
    listed = table(("module", "content"), rows) if rows else ""
    return f"## {folder.relative_to(ROOT)}\n\n{guide}\n\n{listed}"


def _of_scala_folder(folder: Path) -> str:
    rows = [(code(path.name), _comment(path)) for path in sorted(folder.glob("*.scala"))]
    return f"## {folder.relative_to(ROOT)}\n\n{table(('file', 'content'), rows)}"


def _comment(path: Path) -> str:
    found = FIRST_COMMENT.search(path.read_text())
    return "" if found is None else " ".join(found[1].replace("\n  * ", " ").split())


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""
