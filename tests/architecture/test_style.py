"""The house rules that no linter knows: sizes, left-over marks, words, docs."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
LEFT_OVER = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + "X)\\b")
HOSTS = re.compile(r"pypi\.org|pythonhosted|repo1?\.maven|registry\.npmjs|/root/|/work/")
TEXT = {".py", ".md", ".toml", ".lock", ".txt", ".sbt", ".scala", ".proto", ".ipynb", ".json"}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).exists()]


PACKAGES = ("ledgerlog_spark", "bookie_server")
PYTHON = [
    p
    for p in tracked()
    if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in PACKAGES and "_pb2" not in p.name
]


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_module_and_its_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name}: {lines} lines"


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_module_swallows_no_error(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = node.type is None or (
            isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
        )
        empty = all(isinstance(s, ast.Pass | ast.Continue) for s in node.body)
        assert not (broad and empty), f"line {node.lineno}"


GUIDES = [p for p in PYTHON if p.name == "__init__.py" and "\n- `" in p.read_text()]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda p: str(p.relative_to(ROOT)))
def test_guide_of_a_package_names_every_module(guide: Path) -> None:
    text = guide.read_text()
    modules = {
        p.stem for p in PYTHON if p.parent == guide.parent and not p.stem.startswith("__")
    } - {"errors"}
    missing = {name for name in modules if f"`{name}`" not in text}
    assert not missing, f"say in the docstring of {guide} what these are for: {sorted(missing)}"


def test_no_file_has_left_over_marks_or_names_a_machine() -> None:
    for path in tracked():
        if path.suffix not in TEXT or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if path.suffix == ".py":
                assert not LEFT_OVER.search(line), f"{path}:{number}"
            assert not HOSTS.search(line), f"{path}:{number}: {line[:80]}"
