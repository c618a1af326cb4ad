"""The metadata store of the healing simulator: sessions, notes, and identities of bookies."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerlog_spark.model import Version
from tests.sim.faults import Faults
from tests.sim.metadata_store import IdentityToken, SimMetadataStore


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
    incarnation: int = 1

    @property
    def version(self) -> Version:
        """The version of the node."""
        return Version(self.incarnation, self.number)


class HealingStore(SimMetadataStore):
    """Records, marks, holes, and bookies that begin again.

    Attributes:
        marks, holes, moves: The notes of ledgers.
        reports: The unreadable entries that workers reported.
    """

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.notes: dict[str, dict[int, Note]] = {"mark": {}, "hole": {}, "move": {}}
        self.reports: dict[int, tuple[object, ...]] = {}
        self.sessions = self._created = 0

    def new_session(self) -> Session:
        self.sessions += 1
        return Session(self.sessions)

    def note(self, kind: str, ledger_id: int, bookies: frozenset[str]) -> None:
        """Create a note, or merge into it. The version always rises."""
        found = self.notes[kind].get(ledger_id)
        if found is None:
            self.notes[kind][ledger_id] = note = Note(bookies)
            if kind == "move":  # others than workers delete moves, without the lock
                self._created += 1
                note.incarnation = self._created
        else:
            found.bookies |= bookies
            found.number += 1

    def delete_note(self, kind: str, ledger_id: int, version: Version) -> bool:
        found = self.notes[kind].get(ledger_id)
        if found is None or found.version != version:
            return False
        del self.notes[kind][ledger_id]
        return True

    def format_bookie(self, bookie: str, *, is_fix: bool) -> None:
        """The bookie begins with an empty directory: its cookie is set, or deleted and made again.

        Before this, the bookie increases its record.
        """
        before = self.token_of(bookie) or IdentityToken()
        cookie = before.cookie + 1 if is_fix else 0
        self.tokens[bookie] = IdentityToken(cookie, before.record + 1)
