"""The rules of the project that no linter checks: sizes, left-over marks, words, docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture import trees
from tests.architecture.trees import assert_none, name, nodes

ROOT = trees.ROOT
PYTHON = trees.PYTHON
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
LEFT_OVER = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + "X)\\b")
HOSTS = re.compile(r"pypi\.org|pythonhosted|repo1?\.maven|registry\.npmjs|/root/|/work/")
TEXT = {".py", ".md", ".toml", ".lock", ".txt", ".sbt", ".scala", ".proto", ".ipynb", ".json"}


def too_long(path: Path) -> Iterator[str]:
    module_lines = len(trees.text(path).splitlines())
    if module_lines > MODULE_LINES_MAX:
        yield f"{name(path)}: {module_lines} lines"
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{name(path)}:{node.lineno}: {node.name}, {lines} lines"


def test_modules_and_their_functions_are_short() -> None:
    assert_none(
        (found for path in PYTHON for found in too_long(path)),
        f"a module has {MODULE_LINES_MAX} lines at most, a function {FUNCTION_LINES_MAX}",
    )


def swallows(node: ast.AST) -> bool:
    """Whether this catches every error, and ignores it."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    broad = node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
    )
    return broad and all(isinstance(s, ast.Pass | ast.Continue) for s in node.body)


def test_no_module_swallows_an_error() -> None:
    assert_none(
        (
            f"{name(path)}:{getattr(node, 'lineno', 0)}"
            for path in PYTHON
            for node in nodes(path)
            if swallows(node)
        ),
        "name the errors that may be left out, or report them",
    )


GUIDES = {
    path: ast.get_docstring(trees.tree(path)) or ""
    for path in PYTHON
    if path.name == "__init__.py" and path.parent.name != "ledgerlog_spark"
}
"""The docstring of each package. That of `ledgerlog_spark` is for users: the table of layers in
ARCHITECTURE.md has its folders."""

LISTED = re.compile(r"((?:`\w+`(?:,\s+|\s+and\s+)?)+):")
"""Names that a docstring explains, in the form "`one`, `two`: their purpose"."""


def inside(guide: Path) -> set[str]:
    """The modules and the folders of a package."""
    modules = {path.stem for path in PYTHON if path.parent == guide.parent and path != guide}
    return modules | {path.parent.name for path in GUIDES if path.parent.parent == guide.parent}


def listed(docstring: str) -> set[str]:
    return {each for names in LISTED.findall(docstring) for each in re.findall(r"\w+", names)}


def test_guides_of_packages_name_every_module_and_folder() -> None:
    assert_none(
        (
            f"{name(guide)}: {each}"
            for guide, docstring in GUIDES.items()
            for each in inside(guide) - {"errors", "__main__"}
            if f"`{each}`" not in docstring
        ),
        "write in the docstring of the package what these are for",
    )


def test_guides_of_packages_name_nothing_else() -> None:
    assert sum(len(listed(docstring)) for docstring in GUIDES.values()) > len(PYTHON) // 2
    assert_none(
        (
            f"{name(guide)}: {each}"
            for guide, docstring in GUIDES.items()
            for each in listed(docstring) - inside(guide)
        ),
        "the package has no such module or folder",
    )


def marks(path: Path) -> Iterator[str]:
    for number, line in enumerate(trees.text(path).splitlines(), 1):
        if HOSTS.search(line) or (path.suffix == ".py" and LEFT_OVER.search(line)):
            yield f"{name(path)}:{number}: {line.strip()[:80]}"


def test_no_file_has_left_over_marks_or_names_a_machine() -> None:
    looked_at = [p for p in trees.tracked() if p.suffix in TEXT and p != Path(__file__)]
    assert_none((found for path in looked_at for found in marks(path)), "delete them")
