"""Objects that end before their client is closed, while requests still succeed."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Protocol

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.waits import forever, within

LEAVE_MS_MAX = 5_000
"""How long `aclose` waits for leaders with pending requests; upkeep deletes their leftovers."""


class EndsFirst(Protocol):
    """An object of a client that has to end in an orderly way."""

    async def leave(self) -> None:
        """End; raises nothing."""


class Users:
    """Those of one client, held weakly: an object without references has nothing pending."""

    def __init__(self) -> None:
        self._users: weakref.WeakSet[EndsFirst] = weakref.WeakSet()
        self._are_leaving = False
        self._leaving: list[asyncio.Future[None]] = []

    def add(self, user: EndsFirst) -> None:
        """Have an object leave before the client is closed, unless it is closed already."""
        if self._are_leaving:
            raise LocalProtocolError("the client is closed: connect again")
        self._users.add(user)

    async def leave(self, timeout_ms: int) -> None:
        """Have all of them leave at the same time; later calls wait for the same.

        After `timeout_ms` or `LEAVE_MS_MAX` the remaining ones are cut off, also on cancellation.
        """
        if not self._are_leaving:
            self._are_leaving = True
            self._leaving = [asyncio.ensure_future(user.leave()) for user in tuple(self._users)]
        if not self._leaving:
            return
        try:
            with contextlib.suppress(TimeoutError):
                await within(asyncio.wait(self._leaving), min(timeout_ms, LEAVE_MS_MAX) / 1e3)
        finally:
            for leaving in self._leaving:
                leaving.cancel()
            await forever(asyncio.wait(self._leaving), "a cancelled task ends")
