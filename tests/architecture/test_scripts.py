"""Scripts in strings import names that exist: mypy sees only the code around them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from textwrap import dedent

import pytest

from tests.architecture.trees import PACKAGES, assert_none, name, nodes, tracked


def unknown_imports(script: str) -> Iterator[str]:
    """Imports of the packages in this text that fail; empty if the text is not Python."""
    try:
        module = ast.parse(dedent(script))
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            for each in node.names:
                if not can_be_imported(node.module or "", each.name):
                    yield f"from {node.module} import {each.name}"


def can_be_imported(module: str, what: str) -> bool:
    try:
        if hasattr(importlib.import_module(module), what):
            return True
        importlib.import_module(f"{module}.{what}")
    except ModuleNotFoundError:
        return False
    return True


def test_scripts_in_strings_import_names_that_exist() -> None:
    assert_none(
        (
            f"{name(path)}:{node.lineno}: {found}"
            for path in tracked()
            if path.suffix == ".py" and path.parent.name != "architecture"
            for node in nodes(path)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if "import" in node.value and any(package in node.value for package in PACKAGES)
            for found in unknown_imports(node.value)
        ),
        "the script fails when it is run",
    )


@pytest.mark.parametrize(
    ("script", "is_found"),
    [
        ("from ledgerlog_spark.model import Nothing", True),
        ("from ledgerlog_spark.nothing import Quorum", True),
        ("\n  import os\n  from bookie_server.core.requests import ReadRequest\n", True),
        ("from ledgerlog_spark.model import Quorum", False),
        ("from ledgerlog_spark import model", False),
        ("what to import from ledgerlog_spark", False),
    ],
)
def test_the_rule_finds_names_that_do_not_exist(script: str, is_found: bool) -> None:
    assert bool(list(unknown_imports(script))) == is_found
