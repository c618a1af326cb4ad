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
        self.failures = 0
        self.changed = asyncio.Event()

    async def register(self, _info: BookieInfo, *, read_only: bool) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise MetadataUnavailableError("not now")
        self.announced.append(read_only)
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
