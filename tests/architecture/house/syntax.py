"""Syntax trees of texts. A text is parsed and walked once for all rules of a process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_NO_NODES: Final = frozenset({"ctx", "op", "ops"})
"""The fields whose nodes have no content, as `Load`, `Add` or `Lt`."""


@contextmanager
def large_trees() -> Iterator[None]:
    """Search for no garbage while trees are built.

    A search in the millions of their nodes would take longer than the rules.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a module, which is kept until the process ends."""
    with large_trees():
        module = ast.parse(text)
        gc.freeze()  # no later search for garbage looks at its nodes
    return module


@cache
def _content(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(field for field in fields if field not in _NO_NODES)


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all nodes below it in the order of `ast.walk`, without contexts and operators."""
    found = [node]
    for each in found:  # grows meanwhile
        for field in _content(each._fields):
            value = getattr(each, field, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
    return found


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """All nodes of a module, as `walk` returns them."""
    return tuple(walk(parsed(text)))
