"""A cluster that answers the requests of one replication job from sets of entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerlog_spark.model import (
    Code,
    Fragment,
    LedgerMetadata,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.autorecovery.replicate import messages as r
from ledgerlog_spark.protocol.autorecovery.replicate.job import (
    LedgerReplication,
    ReplicationSettings,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities

NAMES = ("b0", "b1", "b2", "b3", "b4")
OK = m.MetadataOutcome.OK


class Cluster:
    """Answers the requests of a job from sets of entries.

    Attributes:
        held: The entries of each bookie.
        answers: For a type of request, a function that returns another reply, or None.
        sent: All requests.
        together_max: Number of requests that were sent together.
    """

    def __init__(self, last: int = 3, **fields: Any) -> None:
        self.ledger = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, NAMES[:3]),), **fields).closed(
            last_entry_id=last, length=1
        )
        self.version = 0
        self.task = r.Task(r.TaskQueue.MARK, Version(1, 0), lost=frozenset({"b2"}))
        self.held = {name: set(range(last + 1)) for name in NAMES[:3]}
        self.registered = {"b0", "b1", "b3", "b4"}
        self.read_only: set[str] = set()
        self.unlisted: set[str] = set()  # cannot list
        self.in_limbo: set[str] = set()
        self.accepted: set[int] = set()  # given up, so the host lists them for every bookie
        self.payloads: dict[tuple[str, int], bytes] = {}
        self.connections: dict[str, int] = {}
        self.add_codes: dict[str, Code] = {}
        self.last, self.quiet_ms = last, 0
        self.conflicts = 0
        self.busy_reads = 0  # number of reads that are refused from now on
        self.deleted = 0
        self.reports: list[tuple[r.UnreadableEntries, ...]] = []
        self.answers: dict[type, Callable[[Any], Any]] = {}
        self.sent: list[Any] = []
        self.together_max = 0

    def run(self, settings: ReplicationSettings | None = None) -> r.JobEnded:
        machine = LedgerReplication(1, settings)
        effects = machine.begin()
        for _ in range(20_000):
            if isinstance(effects[-1], r.JobEnded):
                return effects[-1]
            self.sent += effects
            self.together_max = max(self.together_max, len(effects))
            for reply in [self.answer(one) for one in effects]:
                effects = machine.handle(reply)
        raise AssertionError("the job does not end")

    def answer(self, effect: Any) -> Any:
        answer = self.answers.get(type(effect))
        other = None if answer is None else answer(effect)
        return self._usual(effect) if other is None else other

    def _usual(self, effect: Any) -> Any:
        n = effect.request
        match effect:
            case r.ReadCopies(name, first, count):
                reply: Any = self.read(n, name, first, count)
            case r.AddCopies(name, copies):
                reply = self.add(n, name, copies)
            case r.ListEntries(name):
                reply = self.listed(n, name)
            case m.CasMetadata(_, metadata):
                reply = self.write(n, metadata)
            case r.ListRegistered():
                writable = tuple(sorted(self.registered - self.read_only))
                reply = r.RegisteredListed(n, OK, writable, frozenset(self.read_only))
            case m.LoadMetadata():
                loaded = Versioned(self.ledger, Version(1, self.version))
                reply = m.MetadataLoaded(n, OK, loaded)
            case r.ReportUnreadable(entries):
                self.reports.append(entries)
                reply = r.Reported(n, OK)
            case _:
                self.deleted += isinstance(effect, r.DeleteTask)
                replies: dict[type, Callable[[], Any]] = {
                    r.LoadTask: lambda: r.TaskLoaded(n, OK, self.task),
                    r.TakeLock: lambda: r.LockTaken(n, OK, is_mine=True),
                    r.ReleaseLock: lambda: r.LockReleased(n),
                    r.ForceEntries: lambda: r.EntriesForced(n, self.forced(effect)),
                    ReadIdentities: lambda: IdentitiesRead(
                        n, tuple(Identity(one, one) for one in effect.bookie_ids)
                    ),
                    m.StartTimer: lambda: m.TimerFired(n),
                    r.MeasureQuiet: lambda: r.QuietMeasured(n, self.quiet_ms),
                    r.ReadFloor: lambda: r.FloorRead(n, OK, -1),
                    r.RecoverForCopies: lambda: self.recovered(n),
                    r.DeleteTask: lambda: r.TaskDeleted(n, OK, is_deleted=True),
                }
                reply = replies[type(effect)]()
        return reply

    def recovered(self, request: int) -> r.LedgerRecovered:
        self.ledger = self.ledger.closed(last_entry_id=self.last, length=1)
        self.version += 1
        return r.LedgerRecovered(request, None)

    @property
    def is_closed(self) -> bool:
        return self.ledger.is_closed

    def forced(self, effect: r.ForceEntries) -> Code:
        """A bookie answers the read that forces as any other one."""
        is_held = effect.entry_id in self.held.get(effect.bookie_id, ())
        return Code.OK if is_held else Code.NO_ENTRY

    def listed(self, n: int, name: str) -> r.EntriesListed:
        if name in self.unlisted:
            return r.EntriesListed(n, Code.BAD_REQUEST, (), self.given_up)
        if name in self.in_limbo:
            return r.EntriesListed(n, Code.IO_ERROR)
        held = sorted(self.accepted.union(self.held.get(name, ())))
        ranges = tuple((one, one) for one in held)
        return r.EntriesListed(n, Code.OK, ranges, self.given_up)

    @property
    def given_up(self) -> tuple[r.EntryRange, ...]:
        return tuple((one, one) for one in sorted(self.accepted))

    def read(self, n: int, name: str, first: int, count: int) -> r.CopiesRead:
        if self.busy_reads:
            self.busy_reads -= 1
            return r.CopiesRead(n, Code.BUSY)
        copies = []
        for entry_id in range(first, first + count):
            if entry_id not in self.held.get(name, ()):
                break
            payload = self.payloads.get((name, entry_id), b"x")
            copies.append(r.Copy(entry_id, entry_id, payload, b"h" + payload))
        code = Code.OK if copies else Code.NO_ENTRY
        return r.CopiesRead(n, code, tuple(copies))

    def add(self, n: int, name: str, copies: tuple[r.Copy, ...]) -> r.CopiesAdded:
        code = self.add_codes.get(name, Code.OK)
        if code is Code.OK:
            self.held.setdefault(name, set()).update(one.entry_id for one in copies)
        connection = self.connections.get(name, 0)
        if connection:
            self.connections[name] += 1
        return r.CopiesAdded(n, code, connection)

    def write(self, n: int, metadata: LedgerMetadata) -> m.MetadataWritten:
        if self.conflicts:
            self.conflicts -= 1
            self.version += 1
            return m.MetadataWritten(n, m.MetadataOutcome.CONFLICT)
        self.ledger, self.version = metadata, self.version + 1
        return m.MetadataWritten(n, OK, Versioned(metadata, Version(1, self.version)))

    def asked(self, kind: type) -> list[Any]:
        return [one for one in self.sent if isinstance(one, kind)]
