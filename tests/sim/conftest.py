from __future__ import annotations

import pytest

from tests.sim.log.schedules import use_small_heads


@pytest.fixture
def small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of logs so small that most commits write pages."""
    use_small_heads(monkeypatch.setattr)
