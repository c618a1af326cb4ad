"""State shared by a client's handles: transport, stores, settings, random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataUnavailableError
from ledgerlog_spark.metadata.bookies.registration import Registration
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.ports import Session
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.transport.port import BookieTransport
from ledgerlog_spark.waits import Deadline


class WritableBookies:
    """The bookies that accept new ledgers: read once, then cached until a watch reports a change.

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
        """Bookie ids as last read, sorted."""
        return await self.refreshed() if self._names is None else self._names

    async def refreshed(self) -> Sequence[str]:
        """Bookie ids, sorted, as the metadata store has them."""
        if not self._is_watched:
            self._is_watched = True
            self._registration.watch_writable(self._on_change)  # until the session is closed
        changes = self._changes
        names = await self._registration.writable()
        if changes == self._changes:  # otherwise this may be older than the change
            self._names = names
        return names

    def _on_change(self) -> None:
        self._changes += 1
        self._names = None


@dataclass(slots=True)
class Services:
    """State shared by all handles of one client."""

    transport: BookieTransport
    ledgers: LedgerStore
    registration: Registration
    settings: ClientSettings
    random: Random
    logs: LogStore | None = None
    """For `log/`; None where there are only ledgers."""
    leases: Leases | None = None
    """For `upkeep/`; None where they are not needed."""
    session: Session | None = None
    """Session of the stores; None where it cannot be lost."""
    bookies: WritableBookies = field(init=False)

    def __post_init__(self) -> None:
        self.bookies = WritableBookies(self.registration)

    @classmethod
    def on(
        cls,
        stores: MetadataStores,
        transport: BookieTransport,
        settings: ClientSettings,
        random: Random,
    ) -> Services:
        """Services on all stores of a cluster."""
        return cls(
            transport=transport,
            ledgers=stores.ledgers,
            registration=stores.registration,
            settings=settings,
            random=random,
            logs=stores.logs,
            leases=stores.leases,
            session=stores.tree,
        )

    async def candidates(self, *, is_fresh: bool = True) -> tuple[str, ...]:
        """Writable bookies in random order; unless `is_fresh`, as last read.

        Raises MetadataUnavailableError when the registration is not read in time.
        """
        timeout_ms = self.settings.metadata_timeout_ms

        def late() -> MetadataUnavailableError:
            return MetadataUnavailableError(
                f"the list of bookies could not be read within {timeout_ms} ms: check that "
                "ZooKeeper runs and can be reached"
            )

        async with Deadline(timeout_ms / 1e3, late):
            names = list(await (self.bookies.refreshed() if is_fresh else self.bookies.known()))
        self.random.shuffle(names)
        return tuple(names)

    async def load_record(
        self, ledger_id: int, *, sync_first: bool = False
    ) -> Versioned[LedgerMetadata]:
        """A ledger's metadata; "not found" only after a sync, because any replica may lag."""
        timeout_ms = self.settings.metadata_timeout_ms

        def late() -> MetadataUnavailableError:
            return MetadataUnavailableError(
                f"the record of ledger {ledger_id} could not be read within {timeout_ms} ms: check "
                "that ZooKeeper runs and can be reached",
                ledger_id=ledger_id,
            )

        async with Deadline(timeout_ms / 1e3, late):
            if not sync_first:
                with contextlib.suppress(LedgerNotFoundError):
                    return await self.ledgers.load(ledger_id)
            await self.ledgers.sync()
            return await self.ledgers.load(ledger_id)
