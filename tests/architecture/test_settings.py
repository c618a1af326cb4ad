"""Each setting is documented in its class, and another part of the packages reads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from tests.architecture.trees import PYTHON, assert_none, text, tree

OWNER: Final = re.compile(r"(?:^|_)(?:settings|policy|retry|window|limits|ahead)$")
"""The name of an object with settings: `self._settings`, `settings.window`, `policy`."""

CHECKED_ONLY: Final = {
    "BookieSettings.insecure": "the check of bind_address reads it; servers do not need it"
}
"""Settings that only their own class reads, with the reason."""


class Settings(NamedTuple):
    """A class of settings, with the lines of its module."""

    node: ast.ClassDef
    lines: tuple[str, ...]

    @property
    def fields(self) -> dict[str, ast.AnnAssign]:
        return {
            each.target.id: each
            for each in self.node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }


def classes_of(module: ast.Module, source: str) -> Iterator[Settings]:
    lines = tuple(source.splitlines())
    yield from (Settings(each, lines) for each in module.body if isinstance(each, ast.ClassDef))


def held_by(settings: Settings) -> set[str]:
    """The names of the classes of its fields."""
    annotations = [each.annotation for each in settings.fields.values()]
    return {each.id for each in annotations if isinstance(each, ast.Name)}


@cache
def all_settings() -> dict[str, Settings]:
    """The classes with `Settings` in their name, and the classes of their values."""
    found = {each.node.name: each for path in PYTHON for each in classes_of(tree(path), text(path))}
    chosen = {each for each in found if each.endswith("Settings")}
    held = {each for one in chosen for each in held_by(found[one]) if each in found}
    return {each: found[each] for each in sorted(chosen | held)}


def undocumented(settings: Settings) -> list[str]:
    """Fields that are not below `Attributes:`, and have no comment and no docstring."""
    docstring = ast.get_docstring(settings.node) or ""
    listed = re.findall(r"^ {4}(\w+): \S", docstring.partition("Attributes:\n")[2], re.MULTILINE)
    body = settings.node.body
    explained = {
        id(before)
        for before, after in pairwise(body)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    return [
        each
        for each, node in settings.fields.items()
        if each not in listed
        and id(node) not in explained
        and not settings.lines[node.lineno - 2].lstrip().startswith("#")
        and not any("  # " in line for line in settings.lines[node.lineno - 1 : node.end_lineno])
    ]


def last_name(node: ast.expr) -> str:
    """`window` of `self.settings.window`, and `settings` of `client.settings()`."""
    match node:
        case ast.Name(id=found) | ast.Attribute(attr=found):
            return found
        case ast.Call(func=called):
            return last_name(called)
    return ""


@cache
def reads_in(part: ast.stmt) -> frozenset[str]:
    """The attributes that a statement of a module reads from settings."""
    return frozenset(
        each.attr
        for each in ast.walk(part)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Load)
        and OWNER.search(last_name(each.value))
    )


def unread(settings: Settings, modules: list[ast.Module]) -> list[str]:
    """Fields that are read only in their class, and not in a method that other parts call."""
    parts = [part for module in modules for part in module.body if part is not settings.node]
    outside = {each for part in parts for each in reads_in(part)}
    called = {
        inner.attr
        for each in settings.node.body
        if isinstance(each, ast.FunctionDef) and each.name in outside
        for inner in ast.walk(each)
        if isinstance(inner, ast.Attribute) and last_name(inner.value) == "self"
    }
    return [each for each in settings.fields if each not in outside | called]


def unread_everywhere() -> set[str]:
    modules = [tree(path) for path in PYTHON]
    return {
        f"{each}.{field}"
        for each, settings in all_settings().items()
        for field in unread(settings, modules)
    }


def test_settings_of_users_are_looked_at() -> None:
    wanted = {"BookieSettings", "ClientSettings", "ReadAhead", "RetryPolicy", "Window"}
    assert wanted <= all_settings().keys()


def test_each_setting_is_documented() -> None:
    assert_none(
        (
            f"{each}.{field}"
            for each, settings in all_settings().items()
            for field in undocumented(settings)
        ),
        "describe it below `Attributes:`, or in a comment",
    )


def test_each_setting_is_read_outside_of_its_class() -> None:
    assert_none(unread_everywhere() - CHECKED_ONLY.keys(), "delete it, or use it")


def test_the_list_names_settings_that_only_their_class_reads() -> None:
    assert_none(CHECKED_ONLY.keys() - unread_everywhere(), "take them off the list")


CLASS: Final = '''
class PartSettings:
    """Limits.

    Attributes:
        listed: A number.
    """

    listed: int = 1
    beside: int = 2  # a number
    # a number
    below: int = 3
    followed: int = 4
    """A number."""
    bare: int = 5

    @property
    def double(self) -> int:
        return 2 * self.bare
'''


def settings_of(source: str) -> tuple[Settings, ast.Module]:
    module = ast.parse(source)
    return next(classes_of(module, source)), module


def test_settings_without_a_description_are_found() -> None:
    assert undocumented(settings_of(CLASS)[0]) == ["bare"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("settings.listed + self._settings.beside + client.settings().below", ["followed", "bare"]),
        ("settings.double", ["listed", "beside", "below", "followed"]),
        ("link.listed; settings.listed = 1", ["listed", "beside", "below", "followed", "bare"]),
    ],
)
def test_settings_that_no_other_part_reads_are_found(code: str, found: list[str]) -> None:
    settings, module = settings_of(CLASS)
    assert unread(settings, [module, ast.parse(code)]) == found
