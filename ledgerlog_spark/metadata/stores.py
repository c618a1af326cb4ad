"""All metadata stores of one cluster on one session, and a function that opens these stores."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.metadata.accepted_losses import AcceptedLosses
from ledgerlog_spark.metadata.clusters import Clusters
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.ledgers.layout import read_layout, settled_layout
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.replication.ports import (
    AuditorElection,
    BookieIdentities,
    CheckTimes,
    LedgerLocks,
    LedgerNotes,
    MarkQueue,
    RecoverySwitch,
    VacationStore,
    WorkerReports,
)
from ledgerlog_spark.metadata.replication.stores import ReplicationStores
from ledgerlog_spark.metadata.service_uri import ServiceUri, parse_service_uri
from ledgerlog_spark.metadata.topologies import TopologyStore
from ledgerlog_spark.metadata.tree import ZnodeTree
from ledgerlog_spark.wire.repair_notes import FailedAttempts, Holes, Moves, Unreadable
from ledgerlog_spark.wire.znodes import HIERARCHICAL, Layout

ROOT = "/ledgers"


@dataclass(frozen=True, slots=True)
class MetadataStores:
    """The stores of the cluster at `root`."""

    tree: ZnodeTree
    root: str
    layout: Layout
    ledgers: LedgerStore
    registration: Registration
    leases: Leases
    replication: ReplicationStores

    @classmethod
    def on(cls, tree: ZnodeTree, root: str, layout: Layout = HIERARCHICAL) -> MetadataStores:
        """Return the stores of the cluster at `root` in a tree of any kind.

        The call sends no request.
        """
        return cls(
            tree=tree,
            root=root,
            layout=layout,
            ledgers=LedgerStore(tree, root, layout),
            registration=Registration(tree, root),
            leases=Leases(tree, root),
            replication=ReplicationStores.on(tree, root),
        )

    @property
    def logs(self) -> LogStore:
        """The store of the cluster's logs. The access sends no request."""
        return LogStore(self.tree, self.root, self.ledgers)

    @property
    def clusters(self) -> Clusters:
        """The object that creates and deletes the cluster. The access sends no request."""
        return Clusters(self.tree, self.root)

    @property
    def known_bookies(self) -> KnownBookies:
        """The store of the bookies' records. The access sends no request."""
        return KnownBookies(self.tree, self.root)

    @property
    def accepted_losses(self) -> AcceptedLosses:
        """The store of the losses that operators accepted. The access sends no request."""
        return AcceptedLosses(self.tree, self.root)

    @property
    def replication_locks(self) -> LedgerLocks:
        """The store of the locks of ledgers."""
        return self.replication.locks

    @property
    def marks(self) -> MarkQueue:
        """The store of the queue of ledgers with lost bookies."""
        return self.replication.marks

    @property
    def topologies(self) -> TopologyStore:
        """The store of the cluster's topology. The access sends no request."""
        return TopologyStore(self.tree, self.root)

    @property
    def holes(self) -> LedgerNotes[Holes]:
        """The store of holes: copies of entries that registered bookies lack."""
        return self.replication.holes

    @property
    def moves(self) -> LedgerNotes[Moves]:
        """The store of moves: copies of entries that copies on other bookies must replace."""
        return self.replication.moves

    @property
    def unreadable(self) -> LedgerNotes[Unreadable]:
        """The store of the entries of which no copy was readable."""
        return self.replication.unreadable

    @property
    def attempts(self) -> LedgerNotes[FailedAttempts]:
        """The store of the failed attempts to repair ledgers."""
        return self.replication.attempts

    @property
    def recovery_switch(self) -> RecoverySwitch:
        """The store of the settings of auto-recovery."""
        return self.replication.switch

    @property
    def auditor_election(self) -> AuditorElection:
        """The election of the auditor."""
        return self.replication.election

    @property
    def worker_reports(self) -> WorkerReports:
        """The store of the progress of the replication workers."""
        return self.replication.reports

    @property
    def vacations(self) -> VacationStore:
        """The store of the vacations: bookies that are taken out of service."""
        return self.replication.vacations

    @property
    def check_times(self) -> CheckTimes:
        """The store of the times of the auditor's checks, and of the progress of its walks."""
        return self.replication.check_times

    @property
    def identities(self) -> BookieIdentities:
        """The store of identities: versions that change if a bookie may have lost entries."""
        return self.replication.identities

    async def initialize(self) -> None:
        """Create the missing nodes of the cluster."""
        await self.registration.initialize(self.layout)

    async def close(self) -> None:
        """End the session. Its registrations and leases end with it."""
        try:
            await self.registration.close()
            await self.ledgers.close()
        finally:
            await self.tree.close()


async def open_metadata(
    uri: str | ServiceUri,
    *,
    session_timeout_ms: int = 10_000,
    connect_timeout_ms: int = 15_000,
    request_timeout_ms: int = 15_000,
) -> MetadataStores:
    """Open the stores of the cluster at a metadata service URI. The cluster need not exist yet.

    If the process dies, its ephemeral nodes are deleted `session_timeout_ms` later. The limit
    `request_timeout_ms` of each request includes the wait for a connection.

    Raises:
        ConfigurationError: The URI is wrong, or the cluster has another layout than the URI.
        MetadataUnavailableError: ZooKeeper did not answer.
        MetadataFormatError: The cluster has an unknown layout of ledgers.
    """
    # The import of kazoo takes 60 ms, and programs without ZooKeeper do not need kazoo. Therefore
    # kazoo is imported here.
    from ledgerlog_spark.metadata.zookeeper.session import ZookeeperSession

    parsed = parse_service_uri(uri) if isinstance(uri, str) else uri
    tree = await ZookeeperSession.connect(
        parsed.connect_string,
        session_timeout_ms=session_timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
        request_timeout_ms=request_timeout_ms,
    )
    try:
        stored = await read_layout(tree, parsed.root)
        layout = settled_layout(stored, parsed.layout, parsed.root)
    except BaseException:
        await tree.close()
        raise
    return MetadataStores.on(tree, parsed.root, layout)
