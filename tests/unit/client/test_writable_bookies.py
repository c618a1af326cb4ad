"""Writable bookies: read once, kept until a change, and read again if there are too few."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from ledgerlog_spark.client.bookies import WritableBookies
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.testing.cluster import memory_metadata

PATIENCE_SECONDS = 20


class CountedRegistration:
    """A registration in memory that counts its reads."""

    def __init__(self) -> None:
        self.stores = memory_metadata()
        self.asked = 0
        self.heard = asyncio.Event()

    async def writable(self) -> list[str]:
        self.asked += 1
        return list(await self.stores.registration.writable())

    def watch_writable(self, on_change: OnChange) -> CancelWatch:
        def changed() -> None:
            on_change()
            self.heard.set()

        return self.stores.registration.watch_writable(changed)

    async def start(self, *names: str) -> None:
        for name in names:
            await self.stores.registration.register(BookieInfo(name, "127.0.0.1", 1))


@pytest.fixture
async def registration() -> AsyncIterator[CountedRegistration]:
    """A registration with one bookie."""
    registration = CountedRegistration()
    await registration.stores.initialize()
    await registration.start("a:1")
    yield registration
    await registration.stores.close()


@pytest.fixture
def bookies(registration: CountedRegistration) -> WritableBookies:
    return WritableBookies(cast("Registration", registration))


async def test_what_is_known_is_asked_for_once_until_a_bookie_comes(
    registration: CountedRegistration, bookies: WritableBookies
) -> None:
    assert [list(await bookies.known()) for _ in range(3)] == [["a:1"]] * 3
    assert registration.asked == 1
    await registration.start("b:1")
    await asyncio.wait_for(registration.heard.wait(), PATIENCE_SECONDS)
    assert [list(await bookies.known()) for _ in range(3)] == [["a:1", "b:1"]] * 3
    assert registration.asked == 2


async def test_an_answer_that_may_be_older_than_a_change_is_not_kept(
    registration: CountedRegistration, bookies: WritableBookies
) -> None:
    read = registration.writable

    async def overtaken() -> list[str]:
        found = await read()
        await registration.start("b:1")
        await asyncio.wait_for(registration.heard.wait(), PATIENCE_SECONDS)
        return found

    registration.writable = overtaken
    assert list(await bookies.known()) == ["a:1"]
    registration.writable = read
    assert list(await bookies.known()) == ["a:1", "b:1"]
