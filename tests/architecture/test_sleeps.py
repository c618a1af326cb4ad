"""Tests wait for conditions and on a virtual clock: none sleeps, none asserts how long a call took.

A sleep is too short on a loaded machine and too long on every other one. `tests.fixtures.patience`
waits for what other processes do, `tests.fixtures.autojump` has a clock that jumps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "tests").rglob("*.py"))

LONG_CHECKS = {
    "tests/abuse": "measures how long appends take while peers misbehave at a real pace",
    "tests/complete_mode": "upkeep runs at its real pace",
    "tests/exactly_once": "kills real processes at random moments",
    "tests/interop": "processes of Apache's, which are asked whether they are up",
    "tests/many_ledgers": "measures how long a bookie's event loop is held up",
    "tests/mutation": "prints how long each verdict took",
}
"""Targets of the Makefile with processes of their own, which no test run waits for."""

CLOCK_IS_READ = {
    "tests/fixtures/patience.py": "the deadline of the one wait for a condition",
    "tests/sim/__main__.py": "prints how many schedules ran in a second",
    "tests/unit/log/test_store_time.py": "sets the clock wrong",
    "tests/spark/test_leader_logs.py": "appends are dated by this machine's clock",
}
REAL = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
VIRTUAL = {"run_in_virtual_time", "AutojumpLoop", "in_world", "in_virtual_world"}
"""What runs a coroutine on a clock that jumps."""

IN_THREADS = "tests/unit/upkeep/"
"""Rows are encoded in threads there, so its `in_world` has a loop in real time; a module without
rows takes `in_virtual_world`."""

GIVEN_TIME = {
    "tests/fixtures/counted_tree.py": "for worlds in virtual time",
    "tests/sim/": "each simulator runs its processes on a clock of its own",
}
"""Whose coroutines others run in virtual time: modules, and folders."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def real_clocks(tree: ast.AST) -> Iterator[str]:
    """Uses of this machine's clock, and waits for nothing but time."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in REAL:
            text = ast.unparse(node)
            if text == f"time.{node.attr}":
                yield text
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"now", "select"}:
            text = ast.unparse(node)
            if text.startswith(
                ("datetime.now(", "datetime.datetime.now(", "select.select([], [],")
            ):
                yield text


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    """`asyncio.sleep` for longer than a turn of the loop."""
    for node in ast.walk(tree):
        is_sleep = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "sleep"
        if is_sleep and ast.unparse(node.func) == "asyncio.sleep":
            is_turn = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if not is_turn:
                yield node


def in_real_time(tree: ast.Module, path: str = "") -> list[str]:
    """Sleeps on a loop whose clock is this machine's.

    pytest-asyncio runs tests that are coroutines on such a loop; whatever else sleeps has to be
    run in virtual time by its module.
    """
    if not (all_of_it := list(sleeps(tree))):
        return []
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    tests = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    found = [call for test in tests for call in sleeps(test)]
    if not names & VIRTUAL or (path.startswith(IN_THREADS) and "in_world" in names):
        found = all_of_it
    return [f"line {call.lineno}: {ast.unparse(call)}" for call in found]


TREES = {name(path): ast.parse(path.read_text()) for path in MODULES}
SHORT = {
    path: tree
    for path, tree in TREES.items()
    if not path.startswith(tuple(f"{folder}/" for folder in LONG_CHECKS))
}


def test_no_test_reads_the_clock_or_keeps_its_thread_waiting_for_it() -> None:
    found = {path: list(real_clocks(tree)) for path, tree in SHORT.items()}
    found = {path: uses for path, uses in found.items() if uses}
    assert {path: found[path] for path in found.keys() - CLOCK_IS_READ} == {}, "wait with `until`"
    assert found.keys() == CLOCK_IS_READ.keys(), "no exception is needed any more"


def test_no_coroutine_sleeps_but_in_virtual_time() -> None:
    found = {path: in_real_time(tree, path) for path, tree in SHORT.items()}
    given = {path: uses for path, uses in found.items() if path.startswith(tuple(GIVEN_TIME))}
    assert any(given.values())
    asleep = {path: uses for path, uses in found.items() if uses and path not in given}
    assert asleep == {}, "use tests.fixtures.autojump"


@pytest.mark.parametrize("folder", LONG_CHECKS)
def test_long_check_that_may_sleep_does(folder: str) -> None:
    inside = [tree for path, tree in TREES.items() if path.startswith(f"{folder}/")]
    assert any([*real_clocks(tree), *sleeps(tree)] for tree in inside)


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("time.sleep(0.1)", True),
        ("assert time.monotonic() - begun < 3", True),
        ("from time import sleep", True),
        ("select.select([], [], [], 0.1)", True),
        ("select.select([pipe], [], [], 20)", False),
        ("async def test_it():\n    await asyncio.sleep(1)", True),
        ("async def test_it():\n    await asyncio.sleep(0)", False),
        ("async def work():\n    await asyncio.sleep(1)", True),
        ("async def work():\n    await asyncio.sleep(1)\nin_world(work)", False),
        ("async def test_it():\n    await asyncio.sleep(1)\nin_world(work)", True),
    ],
)
def test_the_rule_tells_real_time_from_virtual_time(code: str, is_found: bool) -> None:
    tree = ast.parse(code)
    assert bool([*real_clocks(tree), *in_real_time(tree)]) == is_found
