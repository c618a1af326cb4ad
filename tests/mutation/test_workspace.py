"""The copy of the tree in which mutations are judged."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.lists import all_mutations
from tests.mutation.mutation import suite_of
from tests.mutation.run import Workspace


def test_all_tests_that_judge_mutations_can_be_collected(tmp_path: Path) -> None:
    """A test that needs a file outside the copied folders would fail without a mutation."""
    paths = {path for each in all_mutations() for group in suite_of(each).tests for path in group}
    failure = Workspace(tmp_path).failure(
        ("pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *sorted(paths))
    )
    assert failure == ""
