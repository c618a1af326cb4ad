"""The reference of all modules, from the docstrings of the packages and of the modules."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from docs.generate.markdown import code, table

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("ledgerlog_spark", "bookie_server")
HEAD: Final = """\
# Modules

This page lists every module of both packages with the first paragraph of its docstring. The text of a folder describes
how its modules belong together. [Architecture](../ARCHITECTURE.md) describes the layers, and names the
modules for frequent changes.

"""


def page() -> str:
    """The page of all folders and modules."""
    folders = sorted(
        init.parent for package in PACKAGES for init in (ROOT / package).rglob("__init__.py")
    )
    return HEAD + "\n".join(map(_of_folder, folders))


def _of_folder(folder: Path) -> str:
    guide = _docstring(folder / "__init__.py")
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    rows = [(code(path.name), _docstring(path).partition("\n\n")[0]) for path in modules]
    listed = table(("module", "content"), rows) if rows else ""
    return f"## {folder.relative_to(ROOT)}\n\n{guide}\n\n{listed}"


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""
