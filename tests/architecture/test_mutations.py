"""The list of mutations fits the tree as it is."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.architecture.test_style import ROOT
from tests.mutation.lists import all_mutations
from tests.mutation.mutation import SIMULATORS, SUITES, Mutation, suite_of
from tests.mutation.results import Kept, key_of


def fault_of(mutation: Mutation) -> str | None:
    """Why a mutation cannot be run, None when it can."""
    try:
        ast.parse(mutation.applied((ROOT / mutation.file).read_text()))
    except (OSError, ValueError, SyntaxError) as error:
        return f"{mutation.name}: {error}"
    paths = [path for group in suite_of(mutation).tests for path in group]
    missing = [path for path in paths if not (ROOT / path).exists()]
    return f"{mutation.name}: {missing} do not exist" if missing or not mutation.reason else None


def test_every_mutation_can_be_applied() -> None:
    assert [fault for each in all_mutations() if (fault := fault_of(each))] == []


def test_names_of_mutations_are_unique() -> None:
    names = Counter(each.name for each in all_mutations())
    assert [name for name, count in names.items() if count > 1] == []


def test_what_simulators_run_exists() -> None:
    """A path that does not exist would fail the run at its very end."""
    named = [word for command in SIMULATORS.values() for word in command]
    paths = [word for word in named if word.startswith("tests/")]
    modules = [word for word in named if word.startswith("tests.")]
    paths += [f"{module.replace('.', '/')}/__main__.py" for module in modules]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    used = {name for suite in SUITES.values() for name in suite.simulators}
    assert used == set(SIMULATORS)


def test_a_verdict_is_kept_for_its_tree_and_its_mutation(tmp_path: Path) -> None:
    first, second = all_mutations()[:2]
    Kept(tmp_path / "kept", resumes=False).put(key_of(first), by="log", how="why", seconds=1.0)
    again = Kept(tmp_path / "kept", resumes=True)
    assert again.get(key_of(first)) == {"by": "log", "how": "why", "seconds": 1.0}
    assert again.get(key_of(second)) is None
    assert Kept(tmp_path / "kept", resumes=False).get(key_of(first)) is None
