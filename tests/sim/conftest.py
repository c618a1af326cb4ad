from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

import pytest

from tests.sim.log.checks import Violation
from tests.sim.log.schedules import use_small_heads
from tests.sim.runtime import Scheduler


@pytest.fixture
def small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of logs so small that most commits write pages."""
    use_small_heads(monkeypatch.setattr)


Mutation = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def catch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Mapping[Mutation, str], Mutation, Callable[[], object]], None]:
    """Requires that schedules end with the violation that a list names for a mutation."""

    def check(
        mutations: Mapping[Mutation, str], mutation: Mutation, run: Callable[[], object]
    ) -> None:
        mutation(monkeypatch)
        with pytest.raises(Violation, match=mutations[mutation]) as caught:
            run()
        with capsys.disabled():
            print(f"\n{mutation.__name__}: {caught.value}")  # noqa: T201 (its seed counts schedules)

    return check


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
