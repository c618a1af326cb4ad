"""Notifies writers that bookies of their ensembles are lost (PROTOCOL.md#B22).

A busy writer notices a dead bookie when an add fails. An idle writer adds no entry, so the dead
bookie would stay in its last fragment. Therefore the client reads the registrations of bookies
regularly while it has open writers. Times are measured with the local monotonic clock. A wrong
report of a lost bookie only causes an ensemble change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from ledgerlog_spark.errors import LedgerLogError

if TYPE_CHECKING:
    from ledgerlog_spark.client.services import Services

LOOK_SECONDS = 2.0
"""Time between two checks.

While all bookies of the writers are writable, a check reads only the cached list of bookies.
"""

LOST_SECONDS = 10.0
"""Time after which a bookie counts as lost if it is registered neither as writable nor as
read-only."""

CHANGES_PER_SECOND_MAX = 500
"""Maximum number of writers that are notified per second.

Each notified writer may change its ensemble."""

_PAUSE_SECONDS = 0.1

_logger = logging.getLogger(__name__)


class WatchedMember(Protocol):
    """The attributes and methods of a writer that this module uses."""

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The bookies to which the writer sends entries; empty if it sends nothing any more."""
        ...

    def member_lost(self, bookie_id: str) -> None:
        """Notify the writer that a bookie is lost."""
        ...


class LostMembers:
    """Checks for lost bookies while there are writers. All methods run in the event loop."""

    def __init__(
        self, services: Services, writers: Callable[[], Collection[WatchedMember]]
    ) -> None:
        """Create an object that checks nothing before `begin`."""
        self._services = services
        self._writers = writers
        self._since: dict[str, float] = {}  # bookie -> time of the first check without it
        self._quiet_until = 0.0
        # the writable bookies at the newest check that found lost bookies
        self._writable: frozenset[str] = frozenset()
        self._was_connected = True
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Check for lost bookies regularly from now on, until no writer sends entries any more."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_regularly())

    def stop(self) -> None:
        """Stop the checks."""
        if self._task is not None:
            self._task.cancel()

    async def _look_regularly(self) -> None:
        now_s = asyncio.get_running_loop().time
        while any(writer.ensemble for writer in self._writers()):
            await asyncio.sleep(LOOK_SECONDS)
            try:
                async with asyncio.timeout(self._services.settings.metadata_timeout_ms / 1e3):
                    lost = await self.look(now_s())
            except (LedgerLogError, TimeoutError):
                self._store_is_away()
                continue
            for bookie_id in lost:
                await self._notify(bookie_id)

    async def look(self, now_s: float) -> list[str]:
        """Return the lost bookies that other bookies can replace.

        Args:
            now_s: The local monotonic time, in seconds.
        """
        if not self._store_is_back(now_s):
            return []
        members = {name for writer in self._writers() for name in writer.ensemble}
        writable = await self._services.bookies.writable.known()
        missing = members - set(writable)
        if missing:
            missing -= set(await self._services.registration.read_only())
        self._since = {name: self._since.get(name, now_s) for name in sorted(missing)}
        if now_s < self._quiet_until:
            return []
        due = [name for name, since in self._since.items() if now_s - since >= LOST_SECONDS]
        if not due:
            return []
        registration = self._services.registration
        await registration.sync()
        writable = await self._services.bookies.writable.refreshed()
        registered = {*writable, *await registration.read_only()}
        lost = [name for name in due if name not in registered]
        self._since |= dict.fromkeys(lost, now_s)  # so that they are due again after LOST_SECONDS
        self._writable = frozenset(writable)
        return [name for name in lost if self._writers_of(name)]

    def _writers_of(self, bookie_id: str) -> list[WatchedMember]:
        """Return the writers whose ensemble contains a bookie that other bookies can replace.

        A replacement for one writer may be in the ensemble of another writer.
        """
        return [
            one
            for one in self._writers()
            if bookie_id in one.ensemble and self._writable.difference(one.ensemble)
        ]

    def _store_is_back(self, now_s: float) -> bool:
        """Return whether the session is connected.

        After a reconnection, no bookie counts as lost for twice the session's time-out.
        """
        session = self._services.session
        if session is not None and not session.is_connected:
            self._store_is_away()
            return False
        if not self._was_connected:
            self._was_connected = True
            self._quiet_until = now_s + 2 * self._services.settings.session_timeout_ms / 1e3
        return True

    def _store_is_away(self) -> None:
        self._was_connected = False
        self._since.clear()

    async def _notify(self, bookie_id: str) -> None:
        writers = self._writers_of(bookie_id)
        _logger.warning(
            "bookie %s has not been registered for %g s: %d open ledgers replace it",
            bookie_id,
            LOST_SECONDS,
            len(writers),
        )
        some = int(CHANGES_PER_SECOND_MAX * _PAUSE_SECONDS)
        for first in range(0, len(writers), some):
            for writer in writers[first : first + some]:
                writer.member_lost(bookie_id)
            await asyncio.sleep(_PAUSE_SECONDS)
