from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

import pytest

from tests.sim.caught import caught
from tests.sim.log.schedules import use_small_heads
from tests.sim.runtime import Scheduler


@pytest.fixture
def small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the heads of logs so small that most commits write pages."""
    use_small_heads(monkeypatch.setattr)


Mutation = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[object], None]:
    """Returns a function that prints a line, such as what schedules reached and noticed."""

    def say(line: object) -> None:
        with capsys.disabled():
            print(f"\n{line}")  # noqa: T201

    return say


@pytest.fixture
def catch(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    show: Callable[[object], None],
) -> Callable[[Mapping[Mutation, str], Mutation, Callable[[Iterable[int]], object], int], None]:
    """Returns a check that schedules end with the violation that is listed for a mutation."""

    def check(
        mutations: Mapping[Mutation, str],
        mutation: Mutation,
        play: Callable[[Iterable[int]], object],
        schedules_max: int,
    ) -> None:
        mutation(monkeypatch)
        name = f"{request.path.parent.name} {mutation.__name__}"
        said = caught(name, mutations[mutation], play, schedules_max)
        show(f"{name}: {said}")

    return check


@pytest.fixture(autouse=True)
def simulated_processes_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the processes that a violation leaves behind, whose coroutines may not have begun."""
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
