from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import pytest

from tests.sim.log.schedules import use_small_heads
from tests.sim.runtime import Scheduler


@pytest.fixture
def small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of logs so small that most commits write pages."""
    use_small_heads(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def simulated_processes_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A violation leaves processes behind whose coroutines have not begun: they end here."""
    made: WeakSet[Scheduler] = WeakSet()
    init = Scheduler.__init__

    def noted(self: Scheduler, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        made.add(self)

    monkeypatch.setattr(Scheduler, "__init__", noted)
    yield
    for scheduler in made:
        for host in list(scheduler.hosts):
            host.kill()
