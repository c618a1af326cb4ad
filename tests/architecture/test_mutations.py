"""The list of mutations fits the current tree."""

from __future__ import annotations

import ast
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.architecture.house.syntax import large_trees
from tests.architecture.trees import ROOT, assert_none, name, nodes, text
from tests.mutation.design import DESIGNED
from tests.mutation.lists import all_mutations
from tests.mutation.mutation import SIMULATORS, SUITES, Mutation, pytest_of, suite_of
from tests.mutation.noticed import FILE, Guess, Guesses, narrowed
from tests.mutation.results import Kept, key_of


def fault_of(mutation: Mutation) -> str | None:
    """Why a mutation cannot run, or None."""
    try:
        ast.parse(mutation.applied(text(ROOT / mutation.file)))
    except (OSError, ValueError, SyntaxError) as error:
        return f"{mutation.name}: {error}"
    paths = [path for group in suite_of(mutation).tests for path in group]
    missing = [path for path in paths if not (ROOT / path).exists()]
    return f"{mutation.name}: {missing} do not exist" if missing or not mutation.reason else None


def test_every_mutation_can_be_applied() -> None:
    with large_trees():
        faults = [fault for each in all_mutations() if (fault := fault_of(each))]
    assert_none(faults, "adapt the mutation to the code, to the same mistake")


def test_each_script_of_a_danger_and_its_mutation_exist() -> None:
    names = {each.name for each in all_mutations()}
    missing = [
        f"{danger}: {mutation}, {script}"
        for danger, (mutation, script) in DESIGNED.items()
        if mutation not in names or not has_test(script)
    ]
    assert DESIGNED
    assert_none(missing, "name the test as it is called now")


def has_test(node_id: str) -> bool:
    """Whether a test with the id `file::function` exists, perhaps for several parameters."""
    file, _, function = node_id.partition("::")
    path = ROOT / file
    return path.exists() and f"def {function.partition('[')[0]}(" in text(path)


def test_names_of_mutations_are_unique() -> None:
    names = Counter(each.name for each in all_mutations())
    assert [name for name, count in names.items() if count > 1] == []


def test_no_mutation_takes_an_object_for_one_that_was_deleted() -> None:
    """An `id()` is given to another object later, so a schedule would depend on the memory."""
    modules = sorted((ROOT / "tests").rglob("*mutations.py"))
    calls = [
        f"{name(path)}:{node.lineno}"
        for path in modules
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "id"
    ]
    assert modules
    assert_none(calls, "keep the object itself")


def test_what_simulators_run_exists() -> None:
    """A path that does not exist would fail the run at its very end."""
    named = [word for command in SIMULATORS.values() for word in command]
    paths = [word for word in named if word.startswith("tests/")]
    modules = [word for word in named if word.startswith("tests.")]
    paths += [f"{module.replace('.', '/')}/__main__.py" for module in modules]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    used = {name for suite in SUITES.values() for name in suite.simulators}
    assert used == set(SIMULATORS)


def test_each_random_simulator_can_be_narrowed_to_one_schedule() -> None:
    random = [command for command in SIMULATORS.values() if command[0] != "pytest"]
    said = "seed 17: lost"
    assert random
    assert all(narrowed(command, said) != command for command in random)


def test_what_noticed_a_mutation_is_narrowed_to_its_schedule_or_test() -> None:
    sim = ("tests.sim", "--schedules", "600", "--seed", "1", "--no-shrink")
    said = "seed 17: lost\n  replay: python -m tests.sim --seed 17 --replay\n"
    assert narrowed(sim, said) == ("tests.sim", "--schedules", "1", "--seed", "17", "--no-shrink")
    assert narrowed(sim, "Traceback") == sim
    run = pytest_of("tests/unit/log", "tests/unit/leader")
    failed = narrowed(run, "\nFAILED tests/unit/log/test_x.py::test_y[a b] - AssertionError\n")
    assert failed == pytest_of("tests/unit/log/test_x.py::test_y")
    assert narrowed(run, "INTERNALERROR") == run


def test_a_guess_is_kept_for_a_mutation_as_it_is_and_by_a_simulator_first(tmp_path: Path) -> None:
    first, second, third = all_mutations()[:3]
    by_test = Guess("tests", pytest_of("tests/unit/log"))
    by_simulator = Guess("log", ("tests.sim.log", "--schedules", "1", "--seed", "7"))
    one, other = tmp_path / "one", tmp_path / "other"
    Guesses(one).put(first, by_simulator)
    Guesses(other).put(first, by_test)
    Guesses(other).put(second, by_test)
    one.write_text(one.read_text() + other.read_text())  # as two branches are merged
    assert Guesses(one).of(first) == by_simulator
    assert Guesses(one).of(second) == by_test
    assert Guesses(one).of(replace(first, new="other")) is None
    Guesses(one).put(first, None)
    assert Guesses(one).of(first) is None
    begun_before = Guesses(other)
    Guesses(other).put(third, by_simulator)
    begun_before.put(first, None)
    assert Guesses(other).of(third) == by_simulator, "another run learned it meanwhile"


def test_a_verdict_is_kept_for_its_tree_and_its_mutation(tmp_path: Path) -> None:
    first, second = all_mutations()[:2]
    Kept(tmp_path / "kept", resumes=False).put(key_of(first), by="log", how="why", seconds=1.0)
    again = Kept(tmp_path / "kept", resumes=True)
    assert again.get(key_of(first)) == {"by": "log", "how": "why", "seconds": 1.0}
    assert again.get(key_of(second)) is None
    assert Kept(tmp_path / "kept", resumes=False).get(key_of(first)) is None


def test_tests_that_noticed_a_mutation_exist() -> None:
    named = {
        word
        for line in FILE.read_text().splitlines()
        for word in json.loads(line)["command"]
        if word.startswith("tests/")
    }
    missing = []
    for test in sorted(named):
        path, _, function = test.partition("::")
        is_there = (ROOT / path).exists()
        if is_there and function:
            is_there = f"def {function.rpartition('::')[2]}(" in (ROOT / path).read_text()
        if not is_there:
            missing.append(test)
    assert_none(missing, "renamed: correct tests/mutation/noticed.jsonl")
