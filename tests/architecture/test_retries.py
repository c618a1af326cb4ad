"""The table of retries in docs/LIMITS.md has the figures of the code."""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from tests.architecture.trees import PACKAGES, ROOT, assert_none, modules, name, text

SECTION = re.compile(r"## Who retries what\n(.+?)\n## ", re.DOTALL)
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| `(\S+)\.py` `(\w+)` \|$", re.MULTILINE)
MADE = re.compile(r"\bRetryPolicy\(")
DOUBLED = re.compile(
    r"\b2 \* \w*(?:pause|delay|retry)|(?:pause|delay)\w* \*= 2|FIRST\w* (?:<<|\* 2)"
)

WITHOUT_FIGURES = {"ledgerlog_spark/log/retries.py"}
"""The first pause is the time of an attempt, so the rows name the constants of this module."""


def rows() -> list[tuple[str, ...]]:
    section = SECTION.search((ROOT / "docs" / "LIMITS.md").read_text())
    assert section is not None
    return [tuple(row) for row in ROW.findall(section[1])]


def defined(path: str, wanted: str) -> Any:
    """A constant of a module, or the default of a field of one of its classes."""
    module = importlib.import_module(f"ledgerlog_spark.{path.replace('/', '.')}")
    if hasattr(module, wanted):
        return getattr(module, wanted)
    for found in vars(module).values():
        if is_dataclass(found) and found.__module__ == module.__name__:
            for field in fields(found):
                if field.name == wanted and field.default_factory is not MISSING:
                    return field.default_factory()
    raise AttributeError(wanted)


def duration(milliseconds: float) -> str:
    if milliseconds < 1_000:
        return f"{milliseconds:g} ms"
    return f"{milliseconds / 1_000:g} s"


def limit(policy: RetryPolicy) -> str:
    if policy.time_max_ms < math.inf:
        return f"for {duration(policy.time_max_ms)}"
    return str(policy.attempts_max) if policy.attempts_max < NO_LIMIT else "until"


def is_right(attempts: str, first: str, longest: str, value: Any) -> bool:
    if value is RetryPolicy:
        value = RetryPolicy()
    if isinstance(value, RetryPolicy):
        written = "until" if attempts.startswith("until it is ") else attempts
        pauses = duration(value.first_delay_ms), duration(value.delay_max_ms)
        return (written, first, longest) == (limit(value), *pauses)
    return attempts == str(value) or duration(value) in (first, longest.partition(",")[0])


def test_each_row_has_the_figures_of_the_code() -> None:
    wrong = [
        f"{path}.py {wanted}: {value!r}"
        for _, attempts, first, longest, path, wanted in rows()
        if not is_right(attempts, first, longest, value := defined(path, wanted))
    ]
    assert_none(wrong, "LIMITS.md#who-retries-what: write what the code does")


def test_each_policy_of_retries_has_a_row() -> None:
    counts = Counter(f"ledgerlog_spark/{path}.py" for *_, path, _ in rows())
    missing = [
        found
        for path in modules("ledgerlog_spark")
        if len(MADE.findall(text(path))) > counts[found := name(path)]
        and found not in WITHOUT_FIGURES
    ]
    assert_none(missing, "LIMITS.md#who-retries-what: add a row")


def test_pauses_double_in_one_module() -> None:
    assert DOUBLED.search("pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)")
    assert DOUBLED.search("delay_ms = PAUSE_MS_FIRST << rounds")
    doubled = [
        f"{name(path)}: {found[0]}"
        for package in PACKAGES
        for path in modules(package)
        if (found := DOUBLED.search(text(path)))
    ]
    assert_none(doubled, "use a RetryPolicy (ledgerlog_spark/retry.py)")
