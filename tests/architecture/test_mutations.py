"""The list of mutations fits the tree as it is."""

from __future__ import annotations

import ast
from collections import Counter

from tests.architecture.test_style import ROOT
from tests.mutation.lists import all_mutations
from tests.mutation.mutation import Mutation, suite_of


def fault_of(mutation: Mutation) -> str | None:
    """Why a mutation cannot be run, None when it can."""
    try:
        ast.parse(mutation.applied((ROOT / mutation.file).read_text()))
    except (OSError, ValueError, SyntaxError) as error:
        return f"{mutation.name}: {error}"
    suite = suite_of(mutation)
    missing = [path for path in suite.tests if not (ROOT / path).exists()]
    return f"{mutation.name}: {missing} do not exist" if missing or not mutation.reason else None


def test_every_mutation_can_be_applied() -> None:
    assert [fault for each in all_mutations() if (fault := fault_of(each))] == []


def test_names_of_mutations_are_unique() -> None:
    names = Counter(each.name for each in all_mutations())
    assert [name for name, count in names.items() if count > 1] == []
