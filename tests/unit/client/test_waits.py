"""Deadlines of hosts distinguish their own time-out from others."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ledgerlog_spark.errors import LedgerLogError, MetadataUnavailableError
from ledgerlog_spark.waits import Deadline

pytestmark = pytest.mark.virtual_time


def late() -> MetadataUnavailableError:
    return MetadataUnavailableError("too late")


async def test_what_ends_in_time_is_let_be() -> None:
    async with Deadline(5, late):
        await asyncio.sleep(4)


async def test_at_the_deadline_its_error_is_raised_with_the_cause_that_it_has() -> None:
    cause = LedgerLogError("the attempt before failed")

    def because() -> MetadataUnavailableError:
        error = late()
        error.__cause__ = cause
        return error

    for make, expected in ((late, None), (because, cause)):
        with pytest.raises(MetadataUnavailableError, match="too late") as failed:
            async with Deadline(5, make):
                await asyncio.Event().wait()
        assert failed.value.__cause__ is expected
        assert failed.value.__suppress_context__


@pytest.mark.parametrize("seconds", [None, 60])
async def test_another_deadline_is_let_through(seconds: float | None) -> None:
    socket_is_late = OSError(errno.ETIMEDOUT, "connection timed out")
    assert isinstance(socket_is_late, TimeoutError)

    with pytest.raises(TimeoutError) as failed:
        async with Deadline(seconds, late):
            raise socket_is_late
    assert failed.value is socket_is_late
    with pytest.raises(TimeoutError):
        async with Deadline(seconds, late), asyncio.timeout(1):
            await asyncio.Event().wait()


async def test_a_call_that_is_cancelled_is_not_late() -> None:
    async def inside() -> None:
        async with Deadline(5, late):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(inside())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_outer_one_of_two_deadlines_ends_the_inner() -> None:
    with pytest.raises(MetadataUnavailableError):
        async with Deadline(1, late), Deadline(5, RuntimeError):
            await asyncio.Event().wait()
