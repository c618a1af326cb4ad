"""Keeps the announcement of a bookie like its storage: writable, or read-only.

The store's own registration repeats the announcement after a lost session. This module announces
changes between the two states, and retries until the store has accepted them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from bookie_server.service.logging import get_logger
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.bookies.registration import Registration
from ledgerlog_spark.model import BookieInfo

RETRY_DELAY_MS: Final = 1_000

_logger = get_logger("registration")


class BookieRegistration:
    """The announcement of one bookie.

    Until the store has accepted a change, clients may still choose a bookie that is read-only;
    storage refuses their adds.
    """

    def __init__(self, registration: Registration, info: BookieInfo) -> None:
        self._registration = registration
        self._info = info
        self._is_read_only = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, read_only: bool) -> None:
        """Announce the bookie; it is visible on return. Fails if another session holds its id."""
        self._is_read_only = read_only
        await self._registration.register(self._info, read_only=read_only)
        self._task = asyncio.create_task(self._follow(read_only), name="registration")

    def set_read_only(self, *, read_only: bool) -> None:
        """Announce the other state as soon as the store accepts it."""
        self._is_read_only = read_only
        self._changed.set()

    async def stop(self) -> None:
        """Withdraw the announcement; if the store is unreachable, the end of the session does."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        try:
            await self._registration.unregister(self._info.bookie_id)
        except LedgerLogError as error:
            _logger.warning("unregister_failed", reason=str(error))

    async def _follow(self, announced_read_only: bool) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            read_only = self._is_read_only
            if read_only == announced_read_only:
                continue
            try:
                await self._registration.register(self._info, read_only=read_only)
            except LedgerLogError as error:
                _logger.warning("state_not_announced", read_only=read_only, reason=str(error))
                self._changed.set()
                await asyncio.sleep(RETRY_DELAY_MS / 1_000)
            else:
                announced_read_only = read_only
                _logger.info("state_announced", read_only=read_only)
