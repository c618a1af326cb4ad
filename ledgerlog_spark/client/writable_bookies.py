"""The bookies that accept new ledgers: read once, then cached until a watch reports a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.metadata.bookies.registration import Registration


class WritableBookies:
    """One client's cache of them; on the thread of its event loop.

    The cache learns of a new or removed bookie a moment later, as from a ZooKeeper server that
    lags. A caller for which the cached bookies are not enough reads them again.
    """

    def __init__(self, registration: Registration) -> None:
        """Nothing is read or watched before the first call."""
        self._registration = registration
        self._names: Sequence[str] | None = None
        self._changes = 0
        self._is_watched = False

    async def known(self) -> Sequence[str]:
        """Bookie ids as last read, sorted; errors as of `refreshed`."""
        return await self.refreshed() if self._names is None else self._names

    async def refreshed(self) -> Sequence[str]:
        """Bookie ids, sorted, as the metadata store has them.

        Raises:
            MetadataUnavailableError: The registration cannot be read.
        """
        if not self._is_watched:
            self._is_watched = True
            self._registration.watch_writable(self._on_change)  # until the session is closed
        changes = self._changes
        names = await self._registration.writable()
        if changes == self._changes:  # else this answer may be older than the change
            self._names = names
        return names

    def _on_change(self) -> None:
        self._changes += 1
        self._names = None
