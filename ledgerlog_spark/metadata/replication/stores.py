"""All stores of auto-recovery of one cluster, in one object."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.metadata.replication.check_times import ReplicationCheckTimes
from ledgerlog_spark.metadata.replication.election import TreeElection
from ledgerlog_spark.metadata.replication.identities import NodeIdentities
from ledgerlog_spark.metadata.replication.locks import ReplicationLocks
from ledgerlog_spark.metadata.replication.marks import ReplicationMarks
from ledgerlog_spark.metadata.replication.notes import NodeNotes
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
from ledgerlog_spark.metadata.replication.reports import NodeReports
from ledgerlog_spark.metadata.replication.switch import ReplicationSwitch
from ledgerlog_spark.metadata.replication.vacations import NodeVacations
from ledgerlog_spark.metadata.tree import ZnodeTree
from ledgerlog_spark.wire.repair_notes import FailedAttempts, Holes, Moves, Unreadable


@dataclass(frozen=True, slots=True)
class ReplicationStores:
    """The stores of auto-recovery of the cluster at one root.

    Attributes:
        locks: The lock of each ledger.
        marks: The queue of ledgers with lost bookies.
        holes: The copies of entries that registered bookies lack.
        moves: The copies of entries that must be replaced by copies on other bookies.
        unreadable: The entries of which no copy was readable.
        attempts: The failed attempts to repair ledgers.
        switch: The settings for the whole cluster.
        election: The election of the auditor.
        reports: The progress of the replication workers.
        vacations: The bookies that are taken out of service.
        check_times: The times of the auditor's checks, and the progress of its walks.
        identities: The versions that show whether a bookie was replaced or may have lost entries.
    """

    locks: LedgerLocks
    marks: MarkQueue
    holes: LedgerNotes[Holes]
    moves: LedgerNotes[Moves]
    unreadable: LedgerNotes[Unreadable]
    attempts: LedgerNotes[FailedAttempts]
    switch: RecoverySwitch
    election: AuditorElection
    reports: WorkerReports
    vacations: VacationStore
    check_times: CheckTimes
    identities: BookieIdentities

    @classmethod
    def on(cls, tree: ZnodeTree, root: str) -> ReplicationStores:
        """Return the stores of the cluster at `root`. The call sends no request."""
        locks = ReplicationLocks(tree, root)
        return cls(
            locks=locks,
            marks=ReplicationMarks(tree, root, locks),
            holes=NodeNotes(tree, root, locks, "holes", Holes),
            moves=NodeNotes(tree, root, locks, "moves", Moves),
            unreadable=NodeNotes(tree, root, locks, "unreadable", Unreadable),
            attempts=NodeNotes(tree, root, locks, "attempts", FailedAttempts),
            switch=ReplicationSwitch(tree, root),
            election=TreeElection(tree, root),
            reports=NodeReports(tree, root),
            vacations=NodeVacations(tree, root),
            check_times=ReplicationCheckTimes(tree, root),
            identities=NodeIdentities(tree, root),
        )
