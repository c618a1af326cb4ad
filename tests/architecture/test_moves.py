"""An append moves between files as seldom as `tests/architecture/house/moves.py` allows."""

from __future__ import annotations

from tests.architecture.house.figures import moves_of_an_append
from tests.architecture.trees import ROOT

MOVES_MAX = 60


def test_an_append_moves_between_files_at_most_sixty_times() -> None:
    assert moves_of_an_append(ROOT)["moves"] <= MOVES_MAX
