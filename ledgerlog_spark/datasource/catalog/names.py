"""Namespaces of logs: the parts of a name before its last dot.

A namespace exists as long as the name of a log begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SEPARATOR = "."


def tables_in(names: Iterable[str], namespace: Sequence[str]) -> list[str]:
    """Return the last parts of the names of all logs that are directly in a namespace."""
    wanted = list(namespace)
    parts = (name.split(SEPARATOR) for name in names)
    return sorted(each[-1] for each in parts if each[:-1] == wanted)


def namespaces_in(names: Iterable[str], namespace: Sequence[str]) -> list[str]:
    """Return the names of all namespaces that are directly in a namespace."""
    depth = len(namespace)
    parts = (name.split(SEPARATOR)[:-1] for name in names)
    inside = (each for each in parts if each[:depth] == list(namespace))
    return sorted({each[depth] for each in inside if len(each) > depth})


def has_namespace(names: Iterable[str], namespace: Sequence[str]) -> bool:
    """Whether a log is in the namespace or in a namespace below it. The root always exists."""
    depth = len(namespace)
    return not depth or any(name.split(SEPARATOR)[:-1][:depth] == list(namespace) for name in names)
