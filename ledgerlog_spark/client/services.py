"""State shared by a client's handles: transport, stores, settings, random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataUnavailableError
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import Session
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.transport.port import BookieTransport
from ledgerlog_spark.waits import Deadline


class WritableBookies:
    """The bookies that accept new ledgers, cached until a watch reports a change.

    A change of the bookies appears in the cache a moment later. If there are too few cached
    bookies, the caller reads the list again.
    """

    def __init__(self, registration: Registration) -> None:
        """Create an empty cache, which reads and watches nothing before its first use."""
        self._registration = registration
        self._names: Sequence[str] | None = None
        self._changes = 0
        self._is_watched = False

    async def known(self) -> Sequence[str]:
        """Return the cached bookie ids, sorted. If the cache is empty, read the ids first."""
        return await self.refreshed() if self._names is None else self._names

    async def refreshed(self) -> Sequence[str]:
        """Read the bookie ids from the metadata store, and return them sorted."""
        if not self._is_watched:
            self._is_watched = True
            self._registration.watch_writable(self._on_change)  # until the session is closed
        changes = self._changes
        names = await self._registration.writable()
        if changes == self._changes:  # otherwise these names may be older than the change
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
    """Store of logs for the package `log`; None for a client that uses only ledgers."""
    leases: Leases | None = None
    """Leases for the package `upkeep`; None for a client that needs no leases."""
    session: Session | None = None
    """Session of the stores; None for stores without a session."""
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
        """Create services that use all stores of a cluster."""
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
        """Return the writable bookies in random order, from the cache if `is_fresh` is false.

        Raise MetadataUnavailableError if the registrations are not read in time.
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
        """Return a ledger's metadata. LedgerNotFoundError is raised only after a sync.

        The sync is needed because a replica of the metadata store may lag.
        """
        timeout_ms = self.settings.metadata_timeout_ms

        def late() -> MetadataUnavailableError:
            return MetadataUnavailableError(
                f"the metadata of ledger {ledger_id} could not be read within {timeout_ms} ms: "
                "check that ZooKeeper runs and can be reached",
                ledger_id=ledger_id,
            )

        async with Deadline(timeout_ms / 1e3, late):
            if not sync_first:
                with contextlib.suppress(LedgerNotFoundError):
                    return await self.ledgers.load(ledger_id)
            await self.ledgers.sync()
            return await self.ledgers.load(ledger_id)
