"""What has to end before its client is closed, while requests still get through."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Protocol

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.waits import forever, within

LEAVE_MS_MAX = 5_000
"""What `aclose` waits for leaders whose requests are out; upkeep deletes what they leave."""


class EndsFirst(Protocol):
    """Something of a client that does not end by being cut off."""

    async def leave(self) -> None:
        """End; raises nothing."""


class Users:
    """Those of one client, held weakly: who is not referred to has nothing under way."""

    def __init__(self) -> None:
        self._users: weakref.WeakSet[EndsFirst] = weakref.WeakSet()
        self._are_leaving = False
        self._leaving: list[asyncio.Future[None]] = []

    def add(self, user: EndsFirst) -> None:
        """Have it leave before the client is closed.

        Raises:
            LocalProtocolError: The client is closed, or being closed.
        """
        if self._are_leaving:
            raise LocalProtocolError("the client is closed: connect again")
        self._users.add(user)

    async def leave(self, timeout_ms: int) -> None:
        """Have all of them leave at the same time; later calls wait for the same.

        Args:
            timeout_ms: After which, or after `LEAVE_MS_MAX`, those that are left are cut off, as
                they are when a call is cancelled.
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
