"""A world of logs for tests of their host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgerlog_spark.log import clock
from tests.fixtures.autojump import run_in_virtual_time
from tests.unit.log.log_world import LogWorld, Work


@pytest.fixture
def in_world(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    def run(work: Work) -> None:
        async def inside() -> None:
            async with LogWorld() as world:
                monkeypatch.setattr(clock, "now_ms", world.tick)
                await work(world)

        run_in_virtual_time(inside())

    return run
