"""Writes the reference of the constants in the code: limits, times, sizes, numbers of attempts."""

from __future__ import annotations

import ast
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from docs.generate.markdown import code, table
from docs.generate.sources import ROOT, python_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME: Final = re.compile(
    r"(MAX|MIN|MS|SECONDS|BYTES|KIB|AHEAD|AT_ONCE|ATTEMPTS|TRIES|FAILURES|PARTS?|SHARE|LIMIT)$"
)
"""Pattern of the ends of names. Constants with such a name are on the page even without a
docstring."""
HEAD: Final = """\
# Constants

This page lists the limits, times, sizes and numbers of attempts that are constants of the code, with the module that
defines each of them. Some constants are defaults. Other pages list the values that users can change: [settings of a
bookie](settings.md), [settings of a client](client-settings.md), [options](options.md). [Rules](rules.md) names the
modules whose texts cite a rule.

"""


class Constant(NamedTuple):
    """A constant of a module, with a number as its value.

    Attributes:
        value: Source text of the value.
        meaning: The docstring below the constant, or an empty text.
    """

    module: str
    name: str
    value: str
    meaning: str


def page() -> str:
    """Return the page about all constants, with a table for each folder."""
    folders: dict[str, list[Constant]] = {}
    for path in python_files():
        found = list(_constants_of(path))
        if found:
            folders.setdefault(str(path.parent.relative_to(ROOT)), []).extend(found)
    return HEAD + "\n".join(f"## {name}\n\n{_table(folders[name])}" for name in sorted(folders))


def _table(constants: list[Constant]) -> str:
    rows = [
        (code(each.module), code(each.name), code(each.value), each.meaning) for each in constants
    ]
    return table(("module", "constant", "value", "meaning"), rows)


def _constants_of(path: Path) -> Iterator[Constant]:
    body = ast.parse(path.read_text()).body
    for statement, following in zip_longest(body, body[1:]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        meaning = _docstring(following)
        if name.isupper() and _is_number(value) and (meaning or NAME.search(name)):
            yield Constant(path.name, name, ast.unparse(value), meaning)


def _is_number(value: ast.expr) -> bool:
    """Whether a value is a number, or is computed from numbers and other constants."""
    match value:
        case ast.Constant(value=number):
            return type(number) in {int, float}
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
    return False


def _docstring(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""
