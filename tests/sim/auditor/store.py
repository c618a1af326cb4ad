"""The store of the simulated cluster: sessions, registrations, records and notes.

The store can be down. While it is down, requests fail. When it returns, sessions whose time is over
have ended. Their owners detect this when they connect again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit.messages import ClusterState, LedgerRecord
from tests.sim.runtime import Scheduler

SESSION_MS = 100
US = 1_000


@dataclass
class Note:
    """A node of a queue: the bookies, and a version that rises with each write."""

    bookie_ids: frozenset[str]
    number: int
    written_us: int


class Queue:
    """A queue of notes, one for each ledger.

    No version number is used twice. The real workers have the lock of a ledger for this: no worker
    deletes a note that was created again.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.notes: dict[int, Note] = {}
        self._numbers = 0

    def add(self, ledger_id: int, bookie_ids: frozenset[str]) -> None:
        """Create a note, or add to it. The version rises in any case (AUTORECOVERY.md#N7)."""
        found = self.notes.get(ledger_id)
        names = bookie_ids if found is None else found.bookie_ids | bookie_ids
        self._numbers += 1
        self.notes[ledger_id] = Note(names, self._numbers, self._scheduler.now_us)

    def delete(self, ledger_id: int, number: int) -> bool:
        found = self.notes.get(ledger_id)
        if found is None or found.number != number:
            return False
        del self.notes[ledger_id]
        return True


class AuditStore:
    """All nodes, and the sessions."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.is_up = True
        self.registered: dict[str, int] = {}  # bookie to its session
        self.known: set[str] = set()
        self.records: dict[int, LedgerRecord] = {}
        self._history: list[tuple[int, int, LedgerRecord | None, LedgerRecord]] = []
        self.marks = Queue(scheduler)
        self.holes = Queue(scheduler)
        self.moves = Queue(scheduler)
        self.is_enabled = True
        self.delay_ms, self.delay_writes = 0, 0
        self.position = -1
        self.candidates: list[tuple[int, Callable[[], None]]] = []
        self._seen_us: dict[int, int] = {}  # session to the last sign of life
        self._numbers = 0
        self._watches: list[Callable[[], None]] = []

    # Sessions.

    def new_session(self) -> int:
        self._numbers += 1
        self._seen_us[self._numbers] = self.scheduler.now_us
        return self._numbers

    def is_live(self, session: int) -> bool:
        return session in self._seen_us

    def end_session(self, session: int) -> None:
        """End a session, and delete its nodes."""
        if self._seen_us.pop(session, None) is None:
            return
        for name in [one for one, owner in self.registered.items() if owner == session]:
            del self.registered[name]
        first = self.candidates[0] if self.candidates else None
        self.candidates = [each for each in self.candidates if each[0] != session]
        if self.candidates and self.candidates[0] is not first:
            self.scheduler.call_later(US, self.candidates[0][1])
        self.changed()

    def end_all_sessions(self) -> None:
        for session in list(self._seen_us):
            self.end_session(session)

    def join(self, session: int, on_elected: Callable[[], None]) -> None:
        """Take part in the election."""
        self.candidates.append((session, on_elected))
        if len(self.candidates) == 1:
            self.scheduler.call_later(US, on_elected)

    # Registrations and settings.

    def register(self, name: str, session: int) -> None:
        self.registered[name] = session
        self.known.add(name)
        self.changed()

    def watch(self, on_change: Callable[[], None]) -> None:
        self._watches.append(on_change)

    def changed(self) -> None:
        for watch in self._watches:
            self.scheduler.call_later(US, watch)

    def state(self) -> ClusterState:
        return ClusterState(
            registered=frozenset(self.registered),
            known=frozenset(self.known),
            is_enabled=self.is_enabled,
            delay_ms=self.delay_ms,
            delay_writes=self.delay_writes,
        )

    def write_delay(self, delay_ms: int) -> None:
        self.delay_ms, self.delay_writes = delay_ms, self.delay_writes + 1
        self.changed()

    # Records.

    def create(self, ledger_id: int, ensemble: tuple[str, ...], *, entries: int = 6) -> None:
        """Create a closed ledger with one fragment."""
        quorum = Quorum(len(ensemble), len(ensemble), max(1, len(ensemble) - 1))
        metadata = LedgerMetadata(
            quorum,
            (Fragment(0, ensemble),),
            state=LedgerState.CLOSED,
            last_entry_id=entries - 1,
            length=entries,
        )
        self._write(LedgerRecord(ledger_id, metadata, Version(ledger_id, 0)))

    def replace(self, record: LedgerRecord, metadata: LedgerMetadata) -> bool:
        """Write a record with a compare-and-swap."""
        if self.records[record.ledger_id].version != record.version:
            return False
        version = replace(record.version, number=record.version.number + 1)
        self._write(LedgerRecord(record.ledger_id, metadata, version))
        return True

    def records_at(self, time_us: int) -> dict[int, LedgerRecord]:
        """All records as they were at a time, for a replica that lags."""
        found = dict(self.records)
        for written_us, ledger_id, before, _ in reversed(self._history):
            if written_us <= time_us:
                break
            if before is None:
                found.pop(ledger_id, None)
            else:
                found[ledger_id] = before
        return found

    def written_us(self, ledger_id: int) -> int:
        """The time at which the record was last written."""
        return next(at for at, one, _, _ in reversed(self._history) if one == ledger_id)

    def _write(self, record: LedgerRecord) -> None:
        before = self.records.get(record.ledger_id)
        self.records[record.ledger_id] = record
        self._history.append((self.scheduler.now_us, record.ledger_id, before, record))
