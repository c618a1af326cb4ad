"""The metadata store with ids of transactions, and the nodes of the bookies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ledgerlog_spark.model import LedgerMetadata, Versioned
from tests.sim.faults import Faults
from tests.sim.metadata_store import SimMetadataStore


class LossStore(SimMetadataStore):
    """Counts transactions.

    Attributes:
        created: Transaction that created the record of each ledger.
        starts: The counter of starts in each bookie's node. A bookie with a node has a cookie.
        doubts: How often each bookie's node was written for a new epoch of doubt.
        now_ms: The time.
        skew_ms: How far the clock of the creators is ahead.
        created_ms: When each ledger was created, by the clock of its creator.
    """

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.transaction = 0
        self.created: dict[int, int] = {}
        self.starts: dict[str, int] = {}
        self.doubts: dict[str, int] = {}
        self.now_ms: Callable[[], int] = lambda: 0
        self.skew_ms = 0
        self.created_ms: dict[int, int] = {}

    def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        self.transaction += 1
        self.created[ledger_id] = self.transaction
        self.created_ms[ledger_id] = self.now_ms() + self.skew_ms
        return super().create(ledger_id, metadata)

    def write_node(self, bookie: str, starts: int, *, is_doubt: bool = False) -> int:
        """Write the node of a bookie, and return the id of the transaction."""
        self.transaction += 1
        self.doubts[bookie] = self.doubts.get(bookie, 0) + is_doubt
        self.starts[bookie] = max(starts, self.starts.get(bookie, 0))
        return self.transaction

    def recreate(self, ledger_id: int) -> None:
        """Delete the record of a ledger and create it again, as an operator may do."""
        record = self.records[ledger_id]
        self.transaction += 1
        self.created[ledger_id] = self.transaction
        self.records[ledger_id] = self.before[ledger_id] = replace(record)
