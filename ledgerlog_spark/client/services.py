"""State shared by a client's handles: transport, stores, settings, random numbers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from random import Random

from ledgerlog_spark.client.bookies import BookieChoice, Candidates
from ledgerlog_spark.client.hole_reports import HoleQueue
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataUnavailableError
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.replication.ports import BookieIdentities, LedgerNotes
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.topologies import TopologyStore
from ledgerlog_spark.metadata.tree import Session
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.transport.port import BookieTransport
from ledgerlog_spark.waits import Deadline
from ledgerlog_spark.wire.repair_notes import Holes


@dataclass(slots=True)
class Services:
    """State shared by all handles of one client."""

    transport: BookieTransport
    ledgers: LedgerStore
    registration: Registration
    identities: BookieIdentities
    settings: ClientSettings
    random: Random
    logs: LogStore | None = None
    """Store of logs for the package `log`; None for a client that uses only ledgers."""
    leases: Leases | None = None
    """Store of leases for the package `upkeep`; None for a client that needs no leases."""
    session: Session | None = None
    """Session of the stores; None for stores without a session."""
    topologies: TopologyStore | None = None
    """Store of the places and the policy that an operator set; None for a client that ignores
    them."""
    hole_notes: LedgerNotes[Holes] | None = None
    """Store of the holes that writers and recoveries leave; None for a client that logs them."""
    bookies: BookieChoice = field(init=False)
    holes: HoleQueue = field(init=False)

    def __post_init__(self) -> None:
        self.holes = HoleQueue(self.hole_notes)
        self.bookies = BookieChoice(
            self.registration, self.topologies, self.settings.placement, self.random
        )

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
            identities=stores.identities,
            settings=settings,
            random=random,
            logs=stores.logs,
            leases=stores.leases,
            session=stores.tree,
            topologies=stores.topologies,
            hole_notes=stores.holes,
        )

    async def candidates(self, *, is_fresh: bool = True) -> Candidates:
        """Return the writable bookies in a random order, from the cache if `is_fresh` is false.

        Raise MetadataUnavailableError if the registrations are not read in time.
        """
        timeout_ms = self.settings.metadata_timeout_ms

        def late() -> MetadataUnavailableError:
            return MetadataUnavailableError(
                f"the list of bookies could not be read within {timeout_ms} ms: check that "
                "ZooKeeper runs and can be reached"
            )

        async with Deadline(timeout_ms / 1e3, late):
            return await self.bookies.candidates(is_fresh=is_fresh)

    async def absent_bookies(self) -> tuple[str, ...]:
        """Return the bookies with a cookie that are not registered, in random order.

        Raise MetadataUnavailableError if cookies and registrations are not read in time.
        """
        timeout_ms = self.settings.metadata_timeout_ms

        def late() -> MetadataUnavailableError:
            return MetadataUnavailableError(
                f"the bookies that are away could not be read within {timeout_ms} ms: check that "
                "ZooKeeper runs and can be reached"
            )

        async with Deadline(timeout_ms / 1e3, late):
            known = await self.registration.known()
            registered = {
                *await self.registration.writable(),
                *await self.registration.read_only(),
            }
        absent = [name for name in known if name not in registered]
        self.random.shuffle(absent)
        return tuple(absent)

    async def load_record(
        self, ledger_id: int, *, sync_first: bool = False
    ) -> Versioned[LedgerMetadata]:
        """Return a ledger's metadata, or raise LedgerNotFoundError.

        Before this error, the metadata is read again after a sync, because a replica of the
        metadata store may lag.
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
