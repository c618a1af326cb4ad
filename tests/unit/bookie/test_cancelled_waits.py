"""A task that waits for a bookie may be cancelled, and the other tasks go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bookie_server.storage.device.runtime import OsTasks
from bookie_server.storage.reading.readings import Readings
from bookie_server.storage.wake_ups import resolve, settle

if TYPE_CHECKING:
    from collections.abc import Generator

    from bookie_server.errors import StorageError
    from bookie_server.storage.files.entry_log_file import Need

PORTIONS = 4

pytestmark = pytest.mark.virtual_time


def portions(name: str) -> Generator[Need | None, bytes, str]:
    """A batch read whose bytes are in memory."""
    for _ in range(PORTIONS):
        yield None
    return name


async def test_a_reading_that_is_cancelled_in_line_does_not_stop_the_line() -> None:
    crashes: list[tuple[str, BaseException]] = []
    tasks = OsTasks(lambda name, error: crashes.append((name, error)))
    readings = Readings(tasks)
    ended: list[str] = []

    def failed(error: StorageError) -> None:
        raise error

    def begin(name: str) -> asyncio.Task[None]:
        before = set(tasks._running)
        readings.run(portions(name), ended.append, failed, is_batch=True)
        (task,) = set(tasks._running) - before
        return task

    begin("first")
    cancelled = begin("second")
    begin("third")
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(readings._batches_line._waiting) >= 2
    assert cancelled.cancel()
    await asyncio.sleep(1)
    assert ended == ["first", "third"]
    begin("later")
    await asyncio.sleep(1)
    assert ended == ["first", "third", "later"]
    assert not crashes


async def test_a_value_is_handed_over_once_and_to_nobody_who_is_gone() -> None:
    loop = asyncio.get_running_loop()
    waiting, gone = loop.create_future(), loop.create_future()
    gone.cancel()
    for value in (1, 2):
        resolve(waiting, value)
        resolve(gone, value)
    assert await waiting == 1
    assert gone.cancelled()
    settle([gone])
