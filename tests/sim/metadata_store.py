"""The metadata store of the simulator: one versioned record for each ledger, and lost answers.

A write whose answer is lost may be applied or not. A write of a dead session may be applied long
after its sender gave up. Reads without `sync`, and listings, may be old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.ledger.identities import Identity
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from tests.sim.faults import Faults


class Alive(Protocol):
    """The holder of a lock."""

    @property
    def is_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class IdentityToken:
    """The versions of a cookie and of a bookie's record."""

    cookie: int = 0
    record: int = 0


OnWrite = Callable[[str, int, Versioned[LedgerMetadata], Versioned[LedgerMetadata]], None]


class SimMetadataStore:
    """The records of the ledgers.

    Attributes:
        on_write: Called with (client, ledger id, before, after) when a write is applied.
        first: The first record of each ledger.
        not_listed: Ledgers that are missing on the server from which bookies read listings.
        locks: The holder of each lock of re-replication. A lock ends with its holder.
        tokens: The identity of each bookie; None for a bookie without a cookie.
    """

    def __init__(self, faults: Faults) -> None:
        self.records: dict[int, Versioned[LedgerMetadata]] = {}
        self.first: dict[int, Versioned[LedgerMetadata]] = {}
        self.before: dict[int, Versioned[LedgerMetadata]] = {}
        self.not_listed: set[int] = set()
        self.locks: dict[int, Alive] = {}
        self.tokens: dict[str, IdentityToken | None] = {}
        self.on_write: OnWrite | None = None
        self._faults = faults

    def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        created = Versioned(metadata, Version(1, 0))
        self.first[ledger_id] = self.records[ledger_id] = self.before[ledger_id] = created
        return created

    def delete(self, ledger_id: int) -> None:
        del self.records[ledger_id]

    def listed(self, name: str) -> set[int]:
        """Return a listing, sometimes without new ledgers."""
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

    def replace(
        self,
        client: str,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: Version,
        identities: Iterable[Identity],
    ) -> tuple[MetadataOutcome, Versioned[LedgerMetadata] | None]:
        """Write a record if no identity has changed, in one transaction."""
        current = self.records.get(ledger_id)
        is_current = current is not None and self.is_at(current, version)
        if is_current and not all(map(self.is_same, identities)):
            return MetadataOutcome.BOOKIE_CHANGED, None
        return self.write(client, ledger_id, metadata, version)

    def is_same(self, identity: Identity) -> bool:
        return self.token_of(identity.bookie_id) == identity.token

    def token_of(self, bookie: str) -> IdentityToken | None:
        return self.tokens.get(bookie, IdentityToken())

    def identities_of(self, bookies: Iterable[str]) -> tuple[Identity, ...]:
        """The identities of those bookies that have a cookie."""
        tokens = ((name, self.token_of(name)) for name in bookies)
        return tuple(Identity(name, token) for name, token in tokens if token is not None)

    def lock(self, ledger_id: int, holder: Alive) -> bool:
        """Take a lock. Return whether the holder has it now."""
        before = self.locks.get(ledger_id)
        if before is None or not before.is_alive:
            self.locks[ledger_id] = holder
        return self.locks[ledger_id] is holder

    def unlock(self, ledger_id: int, holder: Alive) -> None:
        """Give a lock back, if this holder has it."""
        if self.locks.get(ledger_id) is holder:
            del self.locks[ledger_id]

    @staticmethod
    def is_at(current: Versioned[LedgerMetadata], version: Version) -> bool:
        return current.version == version
