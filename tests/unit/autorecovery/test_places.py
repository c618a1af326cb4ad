"""The places of the jobs of a worker."""

from __future__ import annotations

import asyncio

import pytest

from ledgerlog_spark.autorecovery.replicate import places as module
from ledgerlog_spark.autorecovery.replicate.places import JobPlace, JobPlaces
from tests.fixtures.autojump import run_in_virtual_time

COUNT = 2


class World:
    """Jobs that work, wait for 30 s, and work again."""

    def __init__(self) -> None:
        self.freed = 0
        self.places = JobPlaces(COUNT, self._free)
        self.working = 0
        self.most = 0
        self.ended: list[float] = []

    def _free(self) -> None:
        self.freed += 1

    async def job(self, place: JobPlace) -> None:
        try:
            await self._work()
            await place.wait(30)
            await self._work()
            self.ended.append(asyncio.get_running_loop().time())
        finally:
            place.give()

    async def _work(self) -> None:
        self.working += 1
        self.most = max(self.most, self.working)
        await asyncio.sleep(1)
        self.working -= 1

    async def begin(self, count: int) -> list[asyncio.Task[None]]:
        tasks = []
        for _ in range(count):
            await self.places.take()
            tasks.append(asyncio.create_task(self.job(JobPlace(self.places))))
        return tasks


def test_jobs_that_wait_hold_up_no_others() -> None:
    async def run() -> World:
        world = World()
        await asyncio.gather(*await world.begin(20))
        return world

    world = run_in_virtual_time(run())
    assert world.most == COUNT
    # Ten turns of two jobs begin, and each waits for 30 s. Without this, it would take 320 s.
    assert max(world.ended) == 1 + 30 + 10
    assert not world.places.are_taken
    assert world.places.waiting == 0


def test_only_a_limited_number_of_jobs_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 3)

    async def run() -> None:
        world = World()
        tasks = await world.begin(5)
        await asyncio.sleep(10)
        assert world.places.waiting == 3
        assert world.places.are_taken
        await asyncio.gather(*tasks)
        assert world.most == COUNT

    run_in_virtual_time(run())


@pytest.mark.parametrize("seconds", [0, 5, 31.5])
def test_a_job_that_is_dropped_leaves_its_place_free(seconds: float) -> None:
    async def run() -> None:
        world = World()
        tasks = await world.begin(4)
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert world.places.waiting == 0
        for _ in range(COUNT):
            assert not world.places.are_taken
            await world.places.take()
        assert world.places.are_taken

    run_in_virtual_time(run())


def test_a_place_that_becomes_free_is_reported_once() -> None:
    async def run() -> None:
        world = World()
        (task,) = await world.begin(1)
        await task
        assert world.freed == 2

    run_in_virtual_time(run())
