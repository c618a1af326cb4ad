"""Writes the reference of the exceptions from the definitions of their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.generate.docstrings import first_paragraph
from docs.generate.markdown import table
from ledgerlog_spark import errors
from ledgerlog_spark.errors import LedgerLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Errors

All exceptions are classes of `ledgerlog_spark.errors` (`ll.errors`) and subclasses of `LedgerLogError`.
An error has a message, and attributes with the values in the message (`error.ledger_id`).

- **retriable**: the same call may succeed later without a change.
- **definite**: if true, the operation certainly did not happen. If false, the operation may still take effect.

The table shows the values of each class. A single error may have other values, so a program should check
`error.retriable` and `error.definite`.
A command ends with code 1 after a definite error, 4 after a definite error that is retriable, and 3 after an
error that is not definite.

"""


def tree() -> list[tuple[int, type[LedgerLogError]]]:
    """Return the depth and the class of every public exception, each after its base class."""
    return list(_walk(LedgerLogError, 0))


def _walk(
    described: type[LedgerLogError], depth: int
) -> Iterator[tuple[int, type[LedgerLogError]]]:
    yield depth, described
    for each in described.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from _walk(each, depth + 1)


def page() -> str:
    """Return the page about all exceptions."""
    rows = [
        (
            f"{'&nbsp;&nbsp;&nbsp;' * depth}`{each.__name__}`",
            "yes" if each.retriable else "no",
            "yes" if each.definite else "no",
            first_paragraph(each),
        )
        for depth, each in tree()
    ]
    return INTRODUCTION + table(("class", "retriable", "definite", "when"), rows)
