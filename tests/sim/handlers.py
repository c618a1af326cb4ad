"""Replaces methods of shipped classes, in the class and in the dispatch tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from ledgerlog_spark.protocol.dispatch import TableMachine


def replace(undo: ExitStack, owner: Any, name: str, replacement: Any) -> None:
    """Set an attribute of a class or module until `undo` ends.

    A dispatch table refers to the function itself, so the row of the table is replaced too.
    """
    missing = object()
    original = vars(owner).get(name, missing)
    if original is missing:
        undo.callback(delattr, owner, name)
    else:
        undo.callback(setattr, owner, name, original)
    setattr(owner, name, replacement)
    for table in _tables(TableMachine):
        for row in table.values():
            for event in [event for event, handler in row.items() if handler is original]:
                row[event] = replacement
                undo.callback(row.__setitem__, event, original)


def _tables(machine: type[Any]) -> Iterator[Any]:
    """The dispatch tables of all classes of machines."""
    for each in machine.__subclasses__():
        if "table" in vars(each):
            yield each.table
        yield from _tables(each)
