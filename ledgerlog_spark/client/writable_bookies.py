"""Which bookies take new ledgers: asked once, then known until a watch says that it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.metadata.bookies.registration import Registration


class WritableBookies:
    """What one client knows of them; on the thread of its event loop.

    A bookie that comes or goes is heard of a moment later, as it is from a ZooKeeper server that
    lags behind. Whoever cannot do with what is known asks anew.
    """

    def __init__(self, registration: Registration) -> None:
        """Nothing is asked or watched before somebody wants to know."""
        self._registration = registration
        self._names: Sequence[str] | None = None
        self._changes = 0
        self._is_watched = False

    async def known(self) -> Sequence[str]:
        """Bookie ids as last heard, sorted; errors as of `asked`."""
        return await self.asked() if self._names is None else self._names

    async def asked(self) -> Sequence[str]:
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
