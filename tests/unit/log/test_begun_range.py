"""Ranges whose reads begin before they are taken (ledgerlog_spark.log.reading.committed_range)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.log.reading.committed_range import BegunRange

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Source:
    """Batches that record how many were taken, with an optional error after the last."""

    def __init__(self, batches: int, error: Exception | None = None) -> None:
        self.asked = 0
        self.is_closed = False
        self._batches = batches
        self._error = error

    async def read(self) -> AsyncGenerator[tuple[int, ...], None]:
        try:
            for number in range(self._batches):
                self.asked += 1
                yield (number,)
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True


async def test_the_first_batch_is_requested_before_it_is_taken() -> None:
    source = Source(2)
    begun = BegunRange(source.read())
    await asyncio.sleep(0)
    assert source.asked == 1
    assert [await begun.following() for _ in range(3)] == [(0,), (1,), None]
    assert source.is_closed


@pytest.mark.parametrize("batches", [0, 1])
async def test_an_error_comes_when_its_place_is_reached(batches: int) -> None:
    begun = BegunRange(Source(batches, DataLossError("gone", ledger_id=7)).read())
    await asyncio.sleep(0)
    for _ in range(batches):
        assert await begun.following() == (0,)
    with pytest.raises(DataLossError, match="gone"):
        await begun.following()
    await begun.aclose()


@pytest.mark.parametrize("error", [None, DataLossError("gone", ledger_id=7)])
async def test_a_range_that_nobody_takes_is_closed_without_a_word(
    error: DataLossError | None,
) -> None:
    source = Source(0 if error else 3, error)
    begun = BegunRange(source.read())
    await asyncio.sleep(0)
    await begun.aclose()
    await begun.aclose()
    assert source.is_closed


async def test_a_range_closed_before_its_first_batch_came_is_cancelled() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits() -> AsyncGenerator[tuple[int, ...], None]:
        await never
        yield (0,)

    begun = BegunRange(waits())
    await asyncio.sleep(0)
    await begun.aclose()
    assert never.cancelled()
