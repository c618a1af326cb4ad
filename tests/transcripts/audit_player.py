"""Stories of an elected auditor. The session time is 10 s, and a page has two records.

bookies a b c                  these bookies are registered and known; others stay known
delay 60 again                 the delay in seconds; `again`: it was written once more
ledger 7 a b c                 the record of ledger 7 names these bookies
disabled                       auto-recovery is disabled; `enabled` ends this
elected                        the machine begins
elected at 7                   ... and the walk of its predecessor was at ledger 7
changed                        a registration, the switch or the delay has changed
ok                             the oldest open request is answered; `ok 3` answers three
all                            ... until no request is open
fail                           the oldest open request fails
timer 20                       the newest timer of 20 s fires
suspended, resumed, expired    the session
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor, AuditSettings
from ledgerlog_spark.protocol.autorecovery.audit.marking import BEFORE_ALL, MarkingLimits
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired

SETTINGS = AuditSettings(limits=MarkingLimits(2, 2, 3))
REPLIES_MAX = 100


class AuditPlayer:
    """The state of one story."""

    def __init__(self) -> None:
        self.machine = Auditor(SETTINGS)
        self.registered: frozenset[str] = frozenset()
        self.known: frozenset[str] = frozenset()
        self.delay_ms = self.delay_writes = 0
        self.is_enabled = True
        self.records: dict[int, m.LedgerRecord] = {}
        self.open: deque[Any] = deque()
        self.timers: dict[str, int] = {}  # the newest one of each duration
        self.output: list[str] = []

    def run(self, command: str) -> list[str]:
        """Return the effects of one command, as lines."""
        self.output = []
        verb, *words = command.split()
        getattr(self, f"_do_{verb}")(*words)
        return self.output

    def _do_bookies(self, *names: str) -> None:
        self.registered = frozenset(names)
        self.known |= self.registered

    def _do_delay(self, seconds: str, again: str = "") -> None:
        self.delay_ms = int(seconds) * 1_000
        self.delay_writes += bool(again)

    def _do_ledger(self, number: str, *names: str) -> None:
        ledger_id = int(number)
        before = self.records.get(ledger_id)
        version = Version(ledger_id, 0 if before is None else before.version.number + 1)
        metadata = LedgerMetadata(
            Quorum(len(names), len(names), 1), (Fragment(0, names),), LedgerState.CLOSED, 0, 1
        )
        self.records[ledger_id] = m.LedgerRecord(ledger_id, metadata, version)

    def _do_disabled(self) -> None:
        self.is_enabled = False

    def _do_enabled(self) -> None:
        self.is_enabled = True

    def _do_elected(self, _at: str = "", position: str = str(BEFORE_ALL)) -> None:
        self.machine = Auditor(SETTINGS, int(position))
        self._take(self.machine.begin())

    def _do_changed(self) -> None:
        self._take(self.machine.handle(m.ClusterChanged()))

    def _do_suspended(self) -> None:
        self._take(self.machine.handle(m.StoreSuspended()))

    def _do_resumed(self) -> None:
        self._take(self.machine.handle(m.StoreResumed()))

    def _do_expired(self) -> None:
        self._take(self.machine.handle(m.SessionEnded()))

    def _do_timer(self, seconds: str) -> None:
        self._take(self.machine.handle(TimerFired(self.timers.pop(seconds))))

    def _do_ok(self, count: str = "1") -> None:
        for _ in range(int(count)):
            self._take(self.machine.handle(self._reply(self.open.popleft())))

    def _do_all(self) -> None:
        for _ in range(REPLIES_MAX):
            if not self.open:
                return
            self._do_ok()
        raise AssertionError("the requests do not end")

    def _do_fail(self) -> None:
        effect = self.open.popleft()
        if isinstance(effect, m.ReadCluster):
            reply: Any = m.ClusterRead(effect.request, None)
        elif isinstance(effect, m.WriteMark):
            reply = m.NoteWritten(effect.request, is_written=False)
        else:
            reply = m.RecordsRead(effect.request, is_read=False)
        self._take(self.machine.handle(reply))

    def _reply(self, effect: Any) -> Any:
        match effect:
            case m.ReadCluster(request):
                state = m.ClusterState(
                    self.registered, self.known, self.is_enabled, self.delay_ms, self.delay_writes
                )
                return m.ClusterRead(request, state)
            case m.ReadRecords(request, after, count_max):
                ids = [one for one in sorted(self.records) if one > after]
                page = [self.records[one] for one in ids[:count_max]]
                last = page[-1].ledger_id if page else after
                is_end = len(ids) <= count_max
                return m.RecordsRead(request, True, page, (), last, is_end)
            case m.LoadRecords(request, ledger_ids):
                return m.RecordsRead(request, True, [self.records[one] for one in ledger_ids])
            case m.WriteMark(request):
                return m.NoteWritten(request, is_written=True)
            case _:
                raise AssertionError(effect)

    def _take(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, StartTimer):
                self.timers[seconds_of(effect)] = effect.request
            elif hasattr(effect, "request"):
                self.open.append(effect)
            self.output.append(describe(effect))


def seconds_of(timer: StartTimer) -> str:
    """The duration of a timer, as stories write it."""
    return f"{timer.delay_ms / 1e3:g}"


def describe(effect: Any) -> str:  # noqa: PLR0911 - one line for each effect
    """An effect on one line."""
    match effect:
        case m.ReadCluster():
            return "read cluster"
        case m.ReadRecords():
            return f"read records after {effect.after}"
        case m.LoadRecords():
            return f"load {' '.join(map(str, effect.ledger_ids))}"
        case m.WriteMark():
            return f"mark {effect.ledger_id} {' '.join(effect.bookie_ids)}"
        case m.StorePosition(after):
            return f"store position {after}"
        case StartTimer():
            return f"timer {seconds_of(effect)} s"
        case m.BookiesLost(names):
            return f"lost {' '.join(names)}"
        case m.WalkEnded():
            handled = f" handled {' '.join(effect.handled)}" if effect.handled else ""
            return f"walk ended ledgers={effect.ledgers} marks={effect.marks}{handled}"
        case m.SteppedDown():
            return "stepped down"
        case _:
            raise AssertionError(effect)
