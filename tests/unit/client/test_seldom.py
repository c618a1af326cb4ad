"""The number of log lines about the same situation of many ledgers is bounded."""

from __future__ import annotations

import asyncio

import pytest

from ledgerlog_spark.client.seldom import INTERVAL_SECONDS, KEYS_MAX, Seldom
from tests.fixtures.autojump import run_in_virtual_time
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.records import of_this_thread


def test_one_line_a_minute_is_written_for_each_key() -> None:
    async def run() -> None:
        seldom = Seldom()
        assert seldom.suffix("a") == ""
        assert [seldom.suffix("a") for _ in range(5)] == [None] * 5
        assert seldom.suffix("b") == ""
        await asyncio.sleep(INTERVAL_SECONDS)
        assert seldom.suffix("a") == " (so do 5 other ledgers since the last such line)"
        assert seldom.suffix("a") is None
        assert seldom.suffix("b") == ""

    run_in_virtual_time(run())


def test_the_number_of_keys_is_bounded() -> None:
    async def run() -> None:
        seldom = Seldom()
        for number in range(KEYS_MAX + 1):
            assert seldom.suffix(number) == ""
        assert seldom.suffix(KEYS_MAX) is None
        assert seldom.suffix(0) == "", "the oldest key was removed"

    run_in_virtual_time(run())


async def test_many_ledgers_of_a_dead_bookie_write_few_lines(
    world: ClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client()
    ledgers = [await client.create_ledger() for _ in range(20)]
    await world.kill("bookie-1")
    for one in ledgers:
        await one.append(b"x")
    for _ in range(20):
        await client.create_ledger()
    lines = [one.getMessage() for one in of_this_thread(caplog) if one.levelname == "WARNING"]
    assert sum("continues without" in line for line in lines) <= 2
    assert sum("a new ledger names" in line for line in lines) <= 2
