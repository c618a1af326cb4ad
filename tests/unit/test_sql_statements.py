"""The alternatives in docs/SPARK.md to SQL statements (tests/spark/sql_statements.py)."""

from __future__ import annotations

import re

import pytest

from tests.spark.sql_statements import STATEMENTS, Statement

LOG_OF = {"t": "a", "u": "b", "v": "a", "w": "b"}
"""The log of each table and view."""

_WRITTEN = re.compile(
    r"""(?: \b(?:INTO|OVERWRITE|TABLE|UPDATE|DELETE\ FROM)\ |
    \b(?:insertInto|mergeInto|save|saveAsTable|start|toTable|writeTo)\(" ) \{(\w)\}""",
    re.VERBOSE,
)
_LOG_OF_NEW = re.compile(r"""(?:\{o\}|log)"?,?\ ['"]\{(\w)\}['"]""", re.VERBOSE)


def written(text: str) -> set[str]:
    """The logs whose rows or tables the statements change."""
    found = set(_WRITTEN.findall(text))
    logs = {LOG_OF.get(name, name) for name in found - {"n"}}
    if "n" in found:
        named = _LOG_OF_NEW.search(text)
        logs.add(named[1] if named else "x")
    return logs


@pytest.mark.parametrize(
    "statement", [each for each in STATEMENTS if each.instead], ids=lambda each: each.text[:60]
)
def test_what_is_offered_instead_writes_the_log_that_was_meant(statement: Statement) -> None:
    assert written(statement.text)
    assert written(statement.instead) == written(statement.text)


REPLACES = re.compile("overwrite|createorreplace|or replace table", re.IGNORECASE)


@pytest.mark.parametrize(
    "statement",
    [each for each in STATEMENTS if each.instead and REPLACES.search(each.text)],
    ids=lambda each: each.text[:60],
)
def test_what_is_offered_instead_of_an_overwrite_is_one(statement: Statement) -> None:
    assert "overwrite" in statement.instead.lower()
