"""The table of retries in docs/LIMITS.md has the figures of the code."""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest

from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from tests.architecture.trees import (
    PACKAGES,
    ROOT,
    assert_none,
    modules,
    name,
    nodes_and_above,
    text,
    walked,
)

SECTION = re.compile(r"## Who retries what\n(.+?)\n## ", re.DOTALL)
ROW = re.compile(
    r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| `(\S+)\.py` (`\w+`(?: `\w+`)?) \|$", re.MULTILINE
)
MADE = re.compile(r"\bRetryPolicy\(")
DOUBLED = re.compile(
    r"\b2 \* \w*(?:pause|delay|retry)|(?:pause|delay)\w* \*= 2|FIRST\w* (?:<<|\* 2)"
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

NO_RETRIES = {
    "ledgerlog_spark/client/lost_members.py _look_regularly": "the next look; the text has it",
    "bookie_server/service/v2/sweeper.py run": "the exception is the end of its period",
    "ledgerlog_spark/autorecovery/replicate/worker.py _report_for_ever": "the next report",
    "ledgerlog_spark/upkeep/service.py keep_up": "the next pass; the text above the table has it",
}
"""Functions that sleep in a loop with an exception handler, and repeat no failed operation."""

OTHER_ROW = {
    "ledgerlog_spark/client/handles/follower.py _reload": "retry.py ENDLESS",
    "ledgerlog_spark/log/reading/record_reader.py _relisted": "retry.py ENDLESS",
}
"""Functions that retry by a policy of another module, and the row of this policy."""

WITHOUT_FIGURES = {"ledgerlog_spark/log/retries.py"}
"""The first pause is the time of an attempt, so the rows name the constants of this module."""


def rows() -> list[tuple[str, ...]]:
    """Operation, attempts, pauses, module and names of each row."""
    section = SECTION.search((ROOT / "docs" / "LIMITS.md").read_text())
    assert section is not None
    found = [tuple(row) for row in ROW.findall(section[1])]
    assert len(found) == len(re.findall(r"^\| .*\.py`.* \|$", section[1], re.MULTILINE))
    return found


def in_package(path: str) -> str:
    """The module of a row by its whole path, without its suffix."""
    return path if path.startswith("bookie_server/") else f"ledgerlog_spark/{path}"


def defined(path: str, wanted: str) -> Any:
    """A constant of a module (times in ms), or the default of a field of one of its classes."""
    module = importlib.import_module(in_package(path).replace("/", "."))
    if hasattr(module, wanted):
        value = getattr(module, wanted)
        return value * 1_000 if "_SECONDS" in wanted else value
    for found in vars(module).values():
        if is_dataclass(found) and found.__module__ == module.__name__:
            for field in fields(found):
                if field.name == wanted and field.default_factory is not MISSING:
                    return field.default_factory()
                if field.name == wanted and field.default is not MISSING:
                    return field.default
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
    if attempts in {str(value), f"for {duration(value)}"}:
        return True
    return duration(value) in (first, longest.partition(",")[0])


def test_each_row_has_the_figures_of_the_code() -> None:
    wrong = [
        f"{path}.py {wanted}: {value!r}"
        for _, attempts, first, longest, path, names in rows()
        for wanted in re.findall(r"\w+", names)
        if not is_right(attempts, first, longest, value := defined(path, wanted))
    ]
    assert_none(wrong, "LIMITS.md#who-retries-what: write what the code does")


def test_each_policy_of_retries_has_a_row() -> None:
    counts = Counter(f"{in_package(path)}.py" for *_, path, _ in rows())
    missing = [
        found
        for path in modules("ledgerlog_spark")
        if len(MADE.findall(text(path))) > counts[found := name(path)]
        and found not in WITHOUT_FIGURES
    ]
    assert_none(missing, "LIMITS.md#who-retries-what: add a row")


def retrying(nodes: Iterable[tuple[ast.AST, tuple[ast.AST, ...]]]) -> Iterator[str]:
    """Functions that sleep in a loop which handles exceptions."""
    for node, above in nodes:
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(".sleep"):
            continue
        loops = [n for n in above if isinstance(n, ast.While | ast.For | ast.AsyncFor)]
        handles = loops and any(isinstance(n, ast.ExceptHandler) for n in ast.walk(loops[-1]))
        if handles and ast.unparse(node.args[0]) != "0":
            functions = [n.name for n in above if isinstance(n, FUNCTIONS)]
            yield functions[-1]


def test_each_loop_that_retries_has_a_row() -> None:
    listed = {f"{in_package(path)}.py" for *_, path, _ in rows()}
    found = {
        f"{name(path)} {function}"
        for package in PACKAGES
        for path in modules(package)
        for function in retrying(nodes_and_above(path))
    }
    excused = NO_RETRIES.keys() | OTHER_ROW.keys()
    assert_none(
        {each for each in found - excused if each.split()[0] not in listed},
        "LIMITS.md#who-retries-what: add a row",
    )
    assert_none(excused - found, "it is not needed any more")


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ("try:\n   x()\n  except OSError:\n   time.sleep(1)", True),
        ("try:\n   x()\n  except OSError:\n   y()\n  time.sleep(1)", True),
        ("try:\n   x()\n  except OSError:\n   time.sleep(0)", False),
        ("time.sleep(1)", False),
    ],
)
def test_a_loop_that_retries_is_found(body: str, is_found: bool) -> None:
    tree = ast.parse(f"def f():\n while True:\n  {body}\n")
    assert [*retrying(walked(tree))] == (["f"] if is_found else [])


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
