"""Users that leave before their client is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LocalProtocolError
from tests.fixtures.client_world import ClientWorld


class Slow:
    """A user that takes a second to leave."""

    def __init__(self, client: LedgerClient) -> None:
        self.has_left = self.was_cut_off = False
        self._client = client
        client.ends_first(self)

    async def leave(self) -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            self.was_cut_off = True
            raise
        self._client.check_open()
        self.has_left = True


@pytest.fixture
async def client(world: ClientWorld) -> AsyncIterator[LedgerClient]:
    client = world.client()
    yield client
    with pytest.raises(LocalProtocolError):
        client.check_open()


@pytest.fixture
def slow(client: LedgerClient) -> Slow:
    return Slow(client)


async def test_all_who_close_a_client_wait_for_the_same(
    world: ClientWorld, client: LedgerClient, slow: Slow
) -> None:
    first = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.5)
    await client.aclose()
    assert slow.has_left
    await first


@pytest.mark.parametrize(("calls", "place"), [(1, 0), (2, 0), (2, 1)])
async def test_a_client_is_closed_when_its_closing_is_cancelled(
    world: ClientWorld, client: LedgerClient, slow: Slow, calls: int, place: int
) -> None:
    closings = [asyncio.create_task(client.aclose()) for _ in range(calls)]
    await asyncio.sleep(0.5)
    cancelled = closings.pop(place)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert (slow.was_cut_off, slow.has_left) == (True, False)
    with pytest.raises(LocalProtocolError):
        client.check_open()
    await asyncio.gather(*closings)
