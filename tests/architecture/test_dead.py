"""Each declaration of the packages is used in the packages.

If only tests use it, it must be deleted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import pytest

from tests.architecture.public import reachable
from tests.architecture.trees import PYTHON, assert_none, name, tree, walked

FOR_TESTS: Final = "ledgerlog_spark/testing/"
"""Users' tests call the names of this folder, and nothing in the packages does."""

CALLERS: Final = (
    "BaseSettings",
    "BookieServicer",
    "BufferedProtocol",
    "DataSource",
    "Handler",
    "ServerInterceptor",
    "TextIOBase",
    "WSGI",
)
"""Libraries call the methods of a class if the name of its base contains one of these."""

WRAPPERS: Final = {
    "property",
    "cached_property",
    "staticmethod",
    "classmethod",
    "override",
    "cache",
}
"""Decorators that do not register the function."""

NOT_USED_HERE: Final[dict[str, str]] = {
    "raises_doubt": "the model of the simulator uses it; a start finds each loss in its place",
    "held_names": "the crash tests compare the open files with it",
    "unchroot": "kazoo calls it",
}
"""Declarations that only tests or libraries use, with the reason."""


class Declared(NamedTuple):
    """A function, class or constant, and its place."""

    name: str
    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}"


def used(module: ast.Module) -> Iterator[str]:
    """The names that a module mentions without declaring them, including names in strings."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=found, ctx=ast.Load()) | ast.Attribute(attr=found):
                yield found
            case ast.alias(name=found):
                yield found.rpartition(".")[2]
            case ast.keyword(arg=str(found)):
                yield found
            case ast.MatchClass(kwd_attrs=attributes):
                yield from attributes
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text


def declared(module: ast.Module, path: str) -> Iterator[Declared]:
    """Functions, methods and classes, and the constants of the module itself."""
    for node, above in walked(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not re.match(r"__|_repr_", node.name) and not is_called_by_a_library(
                node, above[-1]
            ):
                yield Declared(node.name, path, node.lineno)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and len(above) == 1:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and not target.id.startswith("__"):
                    yield Declared(target.id, path, node.lineno)


def is_called_by_a_library(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, parent: ast.AST
) -> bool:
    """Whether a decorator registers it, or it overrides a method of a class of a library."""
    if isinstance(node, ast.ClassDef):
        return False
    decorators = {re.split(r"[(.]", ast.unparse(each))[0] for each in node.decorator_list}
    bases = [ast.unparse(base) for base in getattr(parent, "bases", ())]
    return bool(decorators - WRAPPERS) or any(
        caller in base for caller in CALLERS for base in bases
    )


def unused(modules: dict[str, ast.Module]) -> list[Declared]:
    """Declarations that no module mentions, by path."""
    mentioned = {found for module in modules.values() for found in used(module)}
    return [
        each
        for path, module in modules.items()
        for each in declared(module, path)
        if each.name not in mentioned
    ]


@cache
def unused_in_packages() -> tuple[Declared, ...]:
    """The result of `unused` for both packages."""
    return tuple(unused({name(path): tree(path) for path in PYTHON}))


@cache
def public_names() -> frozenset[str]:
    """The names of the public API, and of the public methods of its classes."""
    return frozenset(part for full in reachable() for part in full.split(".")) | {
        each for found in reachable().values() for each in dir(found)
    }


def test_each_declaration_is_used() -> None:
    assert_none(
        (
            each
            for each in unused_in_packages()
            if not each.path.startswith(FOR_TESTS)
            and each.name not in public_names()
            and each.name not in NOT_USED_HERE
        ),
        "delete them, with the tests that are their only users",
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("LIMIT = 3", ["LIMIT"]),
        ("LIMIT = 3\nprint(LIMIT)", []),
        ("def work(): ...", ["work"]),
        ("def work(): ...\nwork()", []),
        ("class Part:\n    def work(self): ...\nPart()", ["work"]),
        ("class Part:\n    @property\n    def work(self): ...\nPart()", ["work"]),
        ("class Part:\n    @validator\n    def work(self): ...\nPart()", []),
        ("class Part(asyncio.BufferedProtocol):\n    def work(self): ...\nPart()", []),
        ("class Part:\n    def __len__(self): ...\nPart().work", []),
        ("def work(): ...\ngetattr(part, 'work')", []),
    ],
)
def test_the_rule_finds_names_without_a_user(code: str, found: list[str]) -> None:
    assert [each.name for each in unused({"part.py": ast.parse(code)})] == found


def test_the_list_names_what_is_unused() -> None:
    names = {each.name for each in unused_in_packages()}
    assert_none(NOT_USED_HERE.keys() - names, "used, or deleted: take them off the list")
