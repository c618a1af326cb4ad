"""Lines of a module by kind."""

from __future__ import annotations

import ast
from dataclasses import dataclass, fields

from tests.architecture.house.syntax import nodes_of


@dataclass(frozen=True)
class Lines:
    """The lines of one or several modules, by kind.

    A docstring is every string that is a whole statement, with its blank lines. An import counts
    with all its lines. A comment is a line without code.
    """

    code: int = 0
    docstring: int = 0
    blank: int = 0
    comment: int = 0
    imports: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, each.name) for each in fields(self))

    def __add__(self, other: Lines) -> Lines:
        return Lines(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        )


def lines_of(text: str) -> Lines:
    docstring, imports = set[int](), set[int]()
    for node in nodes_of(text):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                docstring.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    kinds = {"code": 0, "docstring": 0, "blank": 0, "comment": 0, "imports": 0}
    for number, line in enumerate(text.splitlines(), 1):
        if number in docstring:
            kinds["docstring"] += 1
        elif number in imports:
            kinds["imports"] += 1
        elif not line.strip():
            kinds["blank"] += 1
        elif line.lstrip().startswith("#"):
            kinds["comment"] += 1
        else:
            kinds["code"] += 1
    return Lines(**kinds)


def uses_of_any(text: str) -> int:
    """The number of uses of `typing.Any` in annotations and expressions, without imports."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes_of(text))
