"""The announcement of a read-only bookie while the metadata store does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from bookie_server.service.membership import registration
from bookie_server.service.membership.registration import BookieRegistration
from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.model import BookieInfo

if TYPE_CHECKING:
    import pytest


class Store:
    """A store that fails several times before it accepts an announcement."""

    def __init__(self) -> None:
        self.announced: list[bool] = []
        self.free_bytes: list[int | None] = []
        self.failures = 0
        self.changed = asyncio.Event()

    async def register(self, info: BookieInfo, *, read_only: bool) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise MetadataUnavailableError("not now")
        self.announced.append(read_only)
        self.free_bytes.append(info.free_bytes)
        self.changed.set()

    async def unregister(self, _bookie_id: str) -> None:
        await asyncio.sleep(0)

    async def until(self, *announced: bool) -> None:
        async with asyncio.timeout(20):
            while self.announced != list(announced):
                self.changed.clear()
                await self.changed.wait()


async def test_a_state_that_the_store_did_not_take_is_announced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "RETRY_DELAY_MS", 1)
    store = Store()
    bookie = BookieRegistration(cast("Any", store), BookieInfo("b", "127.0.0.1", 1, 2), lambda: 9)
    await bookie.start(read_only=False)
    store.failures = 3
    bookie.set_read_only(read_only=True)
    await store.until(False, True)
    assert store.failures == 0
    bookie.set_read_only(read_only=True)
    bookie.set_read_only(read_only=False)
    await store.until(False, True, False)
    await bookie.stop()


async def test_free_bytes_are_announced_after_a_change_of_an_eighth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AUTORECOVERY.md#Z5."""
    monkeypatch.setattr(registration, "FREE_BYTES_INTERVAL_MS", 1)
    free = [800]
    measured = asyncio.Event()

    def free_bytes() -> int:
        measured.set()
        return free[0]

    async def measure_twice() -> None:
        for _ in range(2):
            measured.clear()
            await measured.wait()

    store = Store()
    bookie = BookieRegistration(cast("Any", store), BookieInfo("b", "127.0.0.1", 1, 2), free_bytes)
    await bookie.start(read_only=False)
    await measure_twice()
    free[0] = 701
    await measure_twice()
    assert store.free_bytes == [800]
    free[0] = 699
    await store.until(False, False)
    assert store.free_bytes == [800, 699]
    store.failures = 2
    monkeypatch.setattr(registration, "RETRY_DELAY_MS", 1)
    free[0] = 0
    await store.until(False, False, False)
    assert store.free_bytes == [800, 699, 0]
    await bookie.stop()
