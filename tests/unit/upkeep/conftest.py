"""A world of rows for tests of upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ledgerlog_spark.log import clock
from tests.fixtures.autojump import run_in_virtual_time
from tests.unit.upkeep.upkeep_world import RowsWorld

Work = Callable[[RowsWorld], Awaitable[None]]


@pytest.fixture
def in_world(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    def run(work: Work) -> None:
        async def inside() -> None:
            async with RowsWorld() as world:
                monkeypatch.setattr(clock, "now_ms", world.tick)
                await work(world)

        asyncio.run(inside())

    return run


@pytest.fixture
def in_virtual_world(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """For tests without rows, whose threads the clock would not wait for."""

    def run(work: Work) -> None:
        async def inside() -> None:
            async with RowsWorld() as world:
                monkeypatch.setattr(clock, "now_ms", world.tick)
                await work(world)

        run_in_virtual_time(inside())

    return run
