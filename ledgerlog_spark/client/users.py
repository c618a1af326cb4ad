"""Ends objects of a client before the client is closed, while their requests still succeed."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Protocol

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.waits import forever, within

LEAVE_MS_MAX = 5_000
"""Maximum time for which `aclose` waits until leaders have deleted their unlisted ledgers.

Upkeep deletes the ledgers that a leader could not delete in this time."""


class EndsFirst(Protocol):
    """An object of a client that must do some work before the client is closed."""

    async def leave(self) -> None:
        """End the work of this object. Raise nothing."""


class Users:
    """The objects that must be ended before their client is closed.

    The references are weak, because an object that the program no longer uses has no pending work.
    """

    def __init__(self) -> None:
        self._users: weakref.WeakSet[EndsFirst] = weakref.WeakSet()
        self._are_leaving = False
        self._leaving: list[asyncio.Future[None]] = []

    def add(self, user: EndsFirst) -> None:
        """Register an object whose `leave` runs before the client is closed.

        Raise LocalProtocolError if the client is already closed.
        """
        if self._are_leaving:
            raise LocalProtocolError("the client is closed: connect again")
        self._users.add(user)

    async def leave(self, timeout_ms: int) -> None:
        """Call `leave` of all objects at the same time, and wait for their end.

        A second call of this method only waits. The wait ends after `timeout_ms` or `LEAVE_MS_MAX`,
        whichever is shorter. At the end of the wait, or if this call is cancelled, each unfinished
        `leave` is cancelled.
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
