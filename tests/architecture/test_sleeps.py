"""Tests wait for conditions and on a virtual clock: none sleeps, none asserts how long a call took.

A sleep is too short on a loaded machine, and too long on every other machine.
`tests.fixtures.patience` waits for other processes, and `tests.fixtures.autojump` has a clock that
jumps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from tests.architecture.trees import ROOT, assert_none, name, nodes

LONG_CHECKS = {
    "tests/abuse": "measures how long appends take while peers misbehave at a real pace",
    "tests/bookie_soak": "measures bookies at a real pace for ten minutes",
    "tests/complete_mode": "upkeep runs at its real pace",
    "tests/exactly_once": "kills real processes at random moments",
    "tests/interop": "processes of Apache's, which are asked whether they are up",
    "tests/kill_test": "kills real processes at random moments",
    "tests/heal_test": "prints how long each healing took",
    "tests/limbo_test": "prints how long each repair took",
    "tests/many_ledgers": "measures how long a bookie's event loop is held up",
    "tests/outage_test": "lets a bookie and ZooKeeper be away for a while",
    "tests/mutation": "prints how long each verdict took",
    "tests/tpch": "prints how long each query took",
}
"""Targets of the Makefile with separate processes, for which no test run waits."""

CLOCK_IS_READ = {
    "tests/fixtures/patience.py": "the deadline of the one wait for a condition",
    "tests/sim/__main__.py": "prints how many schedules ran in a second",
    "tests/sim/auditor/__main__.py": "prints how many schedules ran in a second",
    "tests/sim/healing/__main__.py": "prints how many schedules ran in a second",
    "tests/sim/loss/__main__.py": "prints how many schedules ran in a second",
    "tests/sim/release/__main__.py": "prints how many schedules ran in a second",
    "tests/crash/schedules/__main__.py": "begins no schedule after a number of seconds",
    "tests/unit/log/test_store_time.py": "sets the clock wrong",
    "tests/spark/test_leader_logs.py": "appends are dated by this machine's clock",
}
REAL = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
VIRTUAL = {"run_in_virtual_time", "AutojumpLoop"}
"""The functions that run a coroutine on a clock that jumps."""

WORLDS = {
    "ClientWorld", "CommitWorld", "LeaderWorld", "LedWorld", "LogWorld", "VirtualRowsWorld",
}  # fmt: skip
"""Worlds in virtual time: a test with such a world runs in virtual time (tests/fixtures/worlds.py).

Rows are encoded in threads, so a `RowsWorld` is in real time."""

MARKED = "pytestmark = pytest.mark.virtual_time"

GIVEN_TIME = {
    "tests/fixtures/counted_tree.py": "for worlds in virtual time",
    "tests/sim/": "each simulator runs its processes on a clock of its own",
    "tests/unit/datasource/test_faulty_bookies.py": "a `BlockingWorld` has virtual time",
}
"""Modules and folders whose coroutines run in virtual time in other modules."""


def real_clocks(inside: Iterable[ast.AST]) -> Iterator[str]:
    """Uses of this machine's clock, and waits for time alone."""
    for node in inside:
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


def sleeps(inside: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """`asyncio.sleep` for longer than a turn of the loop."""
    for node in inside:
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "sleep":
            continue
        if ast.unparse(node.func) == "asyncio.sleep":
            is_turn = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if not is_turn:
                yield node


def is_marked(inside: tuple[ast.AST, ...]) -> bool:
    """Whether all tests of a module have the mark `virtual_time`."""
    return any(isinstance(node, ast.Assign) and ast.unparse(node) == MARKED for node in inside)


def worlds_of(test: ast.AsyncFunctionDef) -> set[str]:
    """The class of a test's world, or None."""
    annotations = [each.annotation for each in test.args.args if each.arg == "world"]
    return {each.id for each in annotations if isinstance(each, ast.Name)}


def in_real_time(inside: tuple[ast.AST, ...]) -> list[str]:
    """Sleeps on a loop whose clock is this machine's.

    pytest-asyncio runs tests that are coroutines on such a loop, unless they ask for a world in
    virtual time or their module has the mark `virtual_time`. Other code that sleeps must run in
    virtual time.
    """
    if is_marked(inside) or not (all_of_it := list(sleeps(inside))):
        return []
    names = {node.id for node in inside if isinstance(node, ast.Name)}
    tests = [
        node
        for node in inside
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    real = [test for test in tests if not worlds_of(test) & WORLDS]
    found = [call for test in real for call in sleeps(ast.walk(test))]
    if not names & VIRTUAL and (not names & WORLDS or len(real) == len(tests)):
        found = all_of_it
    return [f"{call.lineno}: {ast.unparse(call)}" for call in found]


@cache
def all_nodes() -> dict[str, tuple[ast.AST, ...]]:
    """The nodes of each module of the tests, by its name."""
    return {name(path): nodes(path) for path in sorted((ROOT / "tests").rglob("*.py"))}


@cache
def short() -> dict[str, tuple[ast.AST, ...]]:
    """The modules for which a test run waits."""
    long = tuple(f"{folder}/" for folder in LONG_CHECKS)
    return {path: inside for path, inside in all_nodes().items() if not path.startswith(long)}


def test_no_test_reads_the_clock_or_keeps_its_thread_waiting_for_it() -> None:
    found = {path: list(real_clocks(inside)) for path, inside in short().items()}
    found = {path: uses for path, uses in found.items() if uses}
    assert_none(
        (f"{path}: {use}" for path in found.keys() - CLOCK_IS_READ for use in found[path]),
        "wait with `until`",
    )
    assert_none(CLOCK_IS_READ.keys() - found, "no exception is needed any more")


def test_no_coroutine_sleeps_but_in_virtual_time() -> None:
    found = {path: in_real_time(inside) for path, inside in short().items()}
    given = {path: uses for path, uses in found.items() if path.startswith(tuple(GIVEN_TIME))}
    assert any(given.values())
    assert_none(
        (f"{path}:{use}" for path, uses in found.items() if path not in given for use in uses),
        "use tests.fixtures.autojump",
    )


def test_long_checks_that_may_sleep_do() -> None:
    asleep = {
        folder
        for folder in LONG_CHECKS
        for path, inside in all_nodes().items()
        if path.startswith(f"{folder}/") and any([*real_clocks(inside), *sleeps(inside)])
    }
    assert_none(LONG_CHECKS.keys() - asleep, "no exception is needed any more")


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
        ("async def work():\n    await asyncio.sleep(1)\nrun_in_virtual_time(work())", False),
        ("async def test_it():\n    await asyncio.sleep(1)\nrun_in_virtual_time(work())", True),
        ("async def test_it(world: ClientWorld):\n    await asyncio.sleep(1)", False),
        ("async def test_it(world: RowsWorld):\n    await asyncio.sleep(1)", True),
        (f"{MARKED}\nasync def test_it():\n    await asyncio.sleep(1)", False),
    ],
)
def test_the_rule_tells_real_time_from_virtual_time(code: str, is_found: bool) -> None:
    inside = tuple(ast.walk(ast.parse(code)))
    assert bool([*real_clocks(inside), *in_real_time(inside)]) == is_found


def test_marked_modules_are_in_folders_that_read_the_mark() -> None:
    offenders = [
        path
        for path, inside in all_nodes().items()
        if is_marked(inside)
        and "pytest_asyncio_loop_factories"
        not in (ROOT / path).with_name("conftest.py").read_text()
    ]
    assert_none(offenders, "import pytest_asyncio_loop_factories in the conftest of the folder")
