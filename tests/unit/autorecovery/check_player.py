"""A player of the machines of the checks: it answers each request from values that a test sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.check_machine import CheckMachine
from ledgerlog_spark.protocol.autorecovery.audit.digests import DigestCheck, DigestSettings
from ledgerlog_spark.protocol.autorecovery.audit.replicas import ReplicaCheck, ReplicaSettings
from ledgerlog_spark.protocol.autorecovery.audit.unknown import UnknownCopies
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired

NAMES = ("a", "b", "c")
LISTED, UNKNOWN = m.ListOutcome.LISTED, m.ListOutcome.UNKNOWN
STEPS_MAX = 10_000


def record(
    ledger_id: int, *, last: int = 9, version: int = 0, names: Any = NAMES
) -> m.LedgerRecord:
    metadata = LedgerMetadata(
        Quorum(3, 3, 2), (Fragment(0, tuple(names)),), LedgerState.CLOSED, last, last + 1
    )
    return m.LedgerRecord(ledger_id, metadata, Version(ledger_id, version))


class Played:
    """Answers the requests of a machine from values that a test sets."""

    def __init__(self, machine: CheckMachine, *records: m.LedgerRecord) -> None:
        self.machine = machine
        self.records = {one.ledger_id: one for one in records}
        self.registered = frozenset(NAMES)
        self.is_enabled = True
        self.lists: dict[str, Any] = {}  # by bookie; the others hold everything
        self.reads: dict[str, Any] = {}
        self.elapsed_ms: int | None = None
        self.after = -1
        self.notes_fail = False
        self.seen: list[Any] = []
        self.open: Any = None
        self.on_load: Any = None
        self.loads_fail = 0  # number of loads that fail
        self.places: Any = None
        self._take(machine.begin())

    def run(self, until: type, *, times: int = 1) -> Any:
        """Answer up to the next effect of a type, which is not answered yet if it is a request."""
        for _ in range(STEPS_MAX):
            found = [each for each in self.seen if isinstance(each, until)]
            if len(found) >= times:
                return found[-1]
            self._take(self.machine.handle(self._reply(self.open)))
        raise AssertionError(f"no {until.__name__}")

    def seen_of(self, kind: type) -> list[Any]:
        return [each for each in self.seen if isinstance(each, kind)]

    def _take(self, effects: Sequence[Any]) -> None:
        self.seen += effects
        requests = [each for each in effects if hasattr(each, "request")]
        self.open = requests[-1] if requests else None

    def _reply(self, effect: Any) -> Any:  # noqa: PLR0911 - one for each effect
        match effect:
            case StartTimer(request):
                return TimerFired(request)
            case m.ReadCluster(request):
                state = m.ClusterState(self.registered, self.registered, self.is_enabled)
                return m.ClusterRead(request, state)
            case m.ReadRecords(request, after):
                found = [one for key, one in sorted(self.records.items()) if key > after]
                last = found[-1].ledger_id if found else after
                return m.RecordsRead(request, True, found, (), last, is_end=True)
            case m.LoadRecords(request, ledger_ids):
                if self.on_load is not None:
                    self.on_load()
                if self.loads_fail:
                    self.loads_fail -= 1
                    return m.RecordsRead(request, is_read=False)
                found = [self.records[one] for one in ledger_ids if one in self.records]
                return m.RecordsRead(request, True, found)
            case m.ListCopies(request, bookie_id):
                outcome, ranges = self.lists.get(bookie_id, (LISTED, [(0, 9)]))
                return m.CopiesListed(request, outcome, ranges)
            case m.VerifyCopies(request, bookie_id, _, ids):
                answer = self.reads.get(bookie_id)
                if answer is not None:
                    return answer(request, ids)
                return m.CopiesVerified(request, ids[-1], size_bytes=100 * len(ids))
            case m.ReadCheckTime(request):
                return m.CheckTimeRead(request, True, self.elapsed_ms, self.after)
            case m.WriteHole(request) | m.WriteMove(request):
                return m.NoteWritten(request, not self.notes_fail)
            case m.ReadPlaces(request):
                return self.places(request)
            case _:
                raise AssertionError(effect)


def replica_check(unknown: UnknownCopies | None = None, **settings: int) -> ReplicaCheck:
    return ReplicaCheck(
        UnknownCopies() if unknown is None else unknown, ReplicaSettings(**settings)
    )


def digest_check(unknown: UnknownCopies | None = None, **settings: int) -> DigestCheck:
    return DigestCheck(UnknownCopies() if unknown is None else unknown, DigestSettings(**settings))
