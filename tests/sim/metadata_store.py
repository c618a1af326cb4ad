"""The metadata store of the simulator: one record a ledger, versions, and answers that get lost.

A write may be applied although its answer is lost, not be applied, or be applied long after its
sender gave up (the write of a dead session). Reads without `sync` may be stale, listings too.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from tests.sim.faults import Faults

OnWrite = Callable[[str, int, Versioned[LedgerMetadata], Versioned[LedgerMetadata]], None]


class SimMetadataStore:
    """Records by ledger id.

    Attributes:
        on_write: Called with (client, ledger id, before, after) when a write is applied.
        first: Each ledger's record as it was created.
        not_listed: Ledgers that the replica which bookies list from has not heard of yet.
    """

    def __init__(self, faults: Faults) -> None:
        self.records: dict[int, Versioned[LedgerMetadata]] = {}
        self.first: dict[int, Versioned[LedgerMetadata]] = {}
        self.before: dict[int, Versioned[LedgerMetadata]] = {}
        self.not_listed: set[int] = set()
        self.on_write: OnWrite | None = None
        self._faults = faults

    def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        created = Versioned(metadata, Version(1, 0))
        self.first[ledger_id] = self.records[ledger_id] = self.before[ledger_id] = created
        return created

    def delete(self, ledger_id: int) -> None:
        del self.records[ledger_id]

    def listed(self, name: str) -> set[int]:
        """A listing, without the newborn now and then."""
        stale = self.not_listed
        if self._faults.happens(0.5, "stale listing", name):
            stale = set(self.records)
        return self.records.keys() - stale

    def load(
        self, ledger_id: int, *, is_synced: bool, name: str
    ) -> Versioned[LedgerMetadata] | None:
        if ledger_id not in self.records:
            return None
        stale = not is_synced and self._faults.happens(0.3, "stale", name)
        return (self.before if stale else self.records)[ledger_id]

    def write(
        self, client: str, ledger_id: int, metadata: LedgerMetadata, version: Version
    ) -> tuple[MetadataOutcome, Versioned[LedgerMetadata] | None]:
        current = self.records.get(ledger_id)
        if current is None:
            return MetadataOutcome.GONE, None
        if not self.is_at(current, version):
            return MetadataOutcome.CONFLICT, None
        written = Versioned(metadata, Version(1, current.version.number + 1))
        self.before[ledger_id], self.records[ledger_id] = current, written
        if self.on_write is not None:
            self.on_write(client, ledger_id, current, written)
        return MetadataOutcome.OK, written

    @staticmethod
    def is_at(current: Versioned[LedgerMetadata], version: Version) -> bool:
        return current.version == version
