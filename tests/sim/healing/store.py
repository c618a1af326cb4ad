"""The metadata store of the healing simulator: sessions, notes, and identities of bookies."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from tests.sim.faults import Faults
from tests.sim.metadata_store import SimMetadataStore


@dataclass(eq=False)
class Session:
    """The session of a worker. Its requests are applied only while it lives."""

    number: int
    is_alive: bool = True


@dataclass(slots=True)
class Note:
    """A mark or a hole. As in ZooKeeper, the version of a node that is created again begins at
    0."""

    bookies: frozenset[str]
    number: int = 0
    damaged: frozenset[tuple[str, int]] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class IdentityToken:
    """The versions of a cookie and of a bookie's record."""

    cookie: int
    record: int


class HealingStore(SimMetadataStore):
    """Records, marks, holes and identities.

    Attributes:
        marks, holes, moves: The notes of ledgers.
        identities: The identity of each bookie.
        reports: The unreadable entries that workers reported.
    """

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.notes: dict[str, dict[int, Note]] = {"mark": {}, "hole": {}, "move": {}}
        self.identities: dict[str, IdentityToken] = {}
        self.reports: dict[int, tuple[object, ...]] = {}
        self.sessions = 0

    def new_session(self) -> Session:
        self.sessions += 1
        return Session(self.sessions)

    def note(self, kind: str, ledger_id: int, bookies: frozenset[str]) -> None:
        """Create a note, or merge into it. The version always rises."""
        found = self.notes[kind].get(ledger_id)
        if found is None:
            self.notes[kind][ledger_id] = Note(bookies)
        else:
            found.bookies |= bookies
            found.number += 1

    def delete_note(self, kind: str, ledger_id: int, version: Version) -> bool:
        found = self.notes[kind].get(ledger_id)
        if found is None or found.number != version.number:
            return False
        del self.notes[kind][ledger_id]
        return True

    def identity_of(self, bookie: str) -> IdentityToken:
        return self.identities.setdefault(bookie, IdentityToken(0, 0))

    def format_bookie(self, bookie: str, *, is_fix: bool) -> None:
        """The bookie begins with an empty directory: its cookie is set, or deleted and made again.

        Before this, the bookie increases its record.
        """
        before = self.identity_of(bookie)
        cookie = before.cookie + 1 if is_fix else 0
        self.identities[bookie] = IdentityToken(cookie, before.record + 1)

    def replace(
        self,
        client: str,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: Version,
        identity: tuple[str, object],
    ) -> tuple[MetadataOutcome, Versioned[LedgerMetadata] | None]:
        """Write a record if the identity of the bookie has not changed, in one transaction."""
        bookie, token = identity
        if ledger_id not in self.records:
            return MetadataOutcome.GONE, None
        if not self.is_same(bookie, token):
            return MetadataOutcome.CONFLICT, None
        return self.write(client, ledger_id, metadata, version)

    def is_same(self, bookie: str, token: object) -> bool:
        return self.identity_of(bookie) == token
