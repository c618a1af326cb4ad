"""Errors of users' callbacks are reported, and stop nothing (ledgerlog_spark.callbacks)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.callbacks import notify
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.port import LacRise, WatchLac
from tests.fixtures.client_world import ClientWorld
from tests.unit.client.test_explicit_lac import VISIBLE_SECONDS
from tests.unit.log.test_open_ends import LedWorld, appended

if TYPE_CHECKING:
    from collections.abc import Callable


def reports() -> list[Any]:
    """The reports to the loop's exception handler from now on."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(context["exception"])
    )
    return reported


def failing(calls: list[int]) -> Callable[[], None]:
    def fail() -> None:
        calls.append(1)
        raise ZeroDivisionError

    return fail


def is_each_reported(calls: list[int], reported: list[Any]) -> bool:
    return len(calls) == len(reported) > 0 and {type(one) for one in reported} == {
        ZeroDivisionError
    }


async def test_an_exception_of_a_callback_is_reported_with_its_name_and_not_raised() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    notify(int, "none")
    assert isinstance(reported[0]["exception"], ValueError)
    assert "class 'int'" in reported[0]["message"]


async def test_a_follower_goes_on_when_its_callback_raises(world: ClientWorld) -> None:
    reported = reports()
    calls: list[int] = []
    ledger = await world.client().create_ledger(explicit_lac=True)
    handle = await world.client().open_ledger(ledger.id)
    handle.follow(failing(calls))
    for entry_id in range(3):
        await ledger.append(b"entry")
        await asyncio.sleep(VISIBLE_SECONDS)
        assert handle.last_add_confirmed == entry_id
    await ledger.close()
    await asyncio.sleep(VISIBLE_SECONDS)
    assert handle.is_closed
    assert is_each_reported(calls, reported)


async def test_a_transport_that_tells_of_a_rise_gets_no_exception_of_a_callback(
    world: ClientWorld,
) -> None:
    rises: list[Callable[[LacRise], None]] = []

    def watch_lac(
        bookie_id: str,
        request: WatchLac,
        on_rise: Callable[[LacRise], None],
        on_end: Callable[[Code], None],
    ) -> Callable[[], None]:
        rises.append(on_rise)
        return lambda: None

    world.transport.watch_lac = watch_lac
    reported = reports()
    calls: list[int] = []
    ledger = await world.client().create_ledger(explicit_lac=True)
    handle = await world.client().open_ledger(ledger.id)
    handle.follow(failing(calls))
    await asyncio.sleep(VISIBLE_SECONDS)
    rises[0](LacRise(5, 0))
    assert handle.last_add_confirmed == 5
    assert is_each_reported(calls, reported)


async def test_a_watch_of_a_logs_end_goes_on_to_new_ledgers_when_its_callback_raises(
    world: LedWorld,
) -> None:
    reported = reports()
    calls: list[int] = []
    cancel = world.log.watch_end(failing(calls))
    ledger = await world.ledger()
    await world.open((ledger, 0))
    await asyncio.sleep(1)
    before = len(calls)
    await appended(ledger, 0, 3)
    await asyncio.sleep(1)
    assert len(calls) > before, "the ledger that the head lists is followed"
    assert is_each_reported(calls, reported)
    cancel()


async def test_a_client_closes_whole_though_a_callback_of_its_close_raises(
    world: ClientWorld,
) -> None:
    reported = reports()
    calls: list[int] = []
    client = world.client()
    ledger = await client.create_ledger()
    handle = await client.open_ledger(ledger.id)
    client.when_closed(failing(calls))
    await client.aclose()
    assert is_each_reported(calls, reported)
    with pytest.raises(LocalProtocolError):
        await handle.read_last_add_confirmed()
    with pytest.raises(LocalProtocolError):
        client.when_closed(failing(calls))
