"""The table of retries in docs/LIMITS.md has the numbers of the code."""

from __future__ import annotations

import importlib
import re
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ledgerlog_spark.protocol.retry import RetryPolicy
from tests.architecture.trees import ROOT, assert_none, modules, text

SECTION = re.compile(r"## Who retries what\n(.+?)\n## ", re.DOTALL)
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| `(\S+)\.py` `(\w+)` \|$", re.MULTILINE)


def rows() -> list[tuple[str, ...]]:
    section = SECTION.search((ROOT / "docs" / "LIMITS.md").read_text())
    assert section is not None
    return [tuple(row) for row in ROW.findall(section[1])]


def defined(path: str, name: str) -> Any:
    """A constant of a module, or the default of a field of one of its classes."""
    module = importlib.import_module(f"ledgerlog_spark.{path.replace('/', '.')}")
    if hasattr(module, name):
        return getattr(module, name)
    for found in vars(module).values():
        if is_dataclass(found) and found.__module__ == module.__name__:
            for field in fields(found):
                if field.name == name and field.default_factory is not MISSING:
                    return field.default_factory()
    raise AttributeError(name)


def duration(milliseconds: float) -> str:
    if milliseconds < 1_000:
        return f"{milliseconds:g} ms"
    return f"{milliseconds / 1_000:g} s"


def is_right(attempts: str, first: str, longest: str, value: Any) -> bool:
    if value is RetryPolicy:
        value = RetryPolicy()
    if isinstance(value, RetryPolicy):
        pauses = duration(value.first_delay_ms), duration(value.delay_max_ms)
        return (attempts, first, longest) == (str(value.attempts_max), *pauses)
    in_ms = 1_000 * value if isinstance(value, float) else value
    return attempts == str(value) or duration(in_ms) in (first, longest.partition(",")[0])


def test_each_row_has_the_numbers_of_the_code() -> None:
    wrong = [
        f"{path}.py {name}: {value!r}"
        for _, attempts, first, longest, path, name in rows()
        if not is_right(attempts, first, longest, value := defined(path, name))
    ]
    assert_none(wrong, "LIMITS.md#who-retries-what: write what the code does")


def test_each_policy_of_retries_has_a_row() -> None:
    places = {f"ledgerlog_spark/{path}.py" for *_, path, _ in rows()}
    made = [
        name
        for path in modules("ledgerlog_spark")
        if "RetryPolicy(" in text(path) and (name := str(path.relative_to(ROOT))) not in places
    ]
    assert_none(made, "LIMITS.md#who-retries-what: add a row")
