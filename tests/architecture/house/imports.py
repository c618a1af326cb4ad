"""The graph of imports among the modules of both packages."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.architecture.house.syntax import nodes_of, walk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Graph = dict[str, set[str]]


def name_of(path: str) -> str:
    """The dotted name of the module at a path; a package's is that of its folder."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(text: str, known: set[str], *, typing_too: bool = True) -> set[str]:
    """Modules of `known` that a module imports, at the top or where they are used.

    Args:
        text: The text of the module.
        known: The dotted names that count.
        typing_too: Whether imports below `if TYPE_CHECKING` count.
    """
    nodes = nodes_of(text)
    left_out = set[int]()
    if not typing_too:
        left_out = {
            id(node)
            for block in nodes
            if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
            for statement in block.body
            for node in walk(statement)
        }
    found = set[str]()
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known


def graph_of(root: Path, paths: list[str], *, typing_too: bool = True) -> Graph:
    known = {name_of(path) for path in paths}
    return {
        name_of(path): imports_of((root / path).read_text(), known, typing_too=typing_too)
        - {name_of(path)}
        for path in paths
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan), the largest first."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def finish(node: str) -> None:
        if lowest[node] != numbers[node]:
            return
        at = stack.index(node)
        component, stack[at:] = stack[at:], []
        if len(component) > 1:
            found.append(sorted(component))

    for start in sorted(graph):
        if start in numbers:
            continue
        numbers[start] = lowest[start] = len(numbers)
        stack.append(start)
        work = [(start, iter(sorted(graph[start])))]
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in numbers:
                    numbers[other] = lowest[other] = len(numbers)
                    stack.append(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in stack:
                    lowest[node] = min(lowest[node], numbers[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                finish(node)
    return sorted(found, key=lambda each: (-len(each), each))


def edges_within(graph: Mapping[str, set[str]], names: set[str]) -> int:
    return sum(len(graph[name] & names) for name in names)
