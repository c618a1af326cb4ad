"""The elected auditor, which marks the ledgers of lost bookies (AUTORECOVERY.md#auditor).

After its election, the auditor reads the state of the cluster, and walks over all records to fill
its index. After that, it reads the state of the cluster again after each change of the
registrations. When the wait after a loss is over, it begins a walk that writes marks. When a walk
has ended, the next walk begins after a pause.

The machine ends only when its session ends. It publishes nothing afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.autorecovery.audit.index import LedgerIndex
from ledgerlog_spark.protocol.autorecovery.audit.losses import NO_WAIT, BookieLosses, WaitKind
from ledgerlog_spark.protocol.autorecovery.audit.marking import (
    BEFORE_ALL,
    MarkingLimits,
    MarkingWalk,
)
from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    BookiesLost,
    ClusterChanged,
    ClusterRead,
    NoteWritten,
    ReadCluster,
    RecordsRead,
    SessionEnded,
    SteppedDown,
    StoreResumed,
    StoreSuspended,
    WalkEnded,
)
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.autorecovery.audit.messages import (
        AuditEffect,
        AuditEvent,
        ClusterState,
    )

SESSION_TIMEOUT_MS = 10_000
WALK_PAUSE_MS = 3_600_000
RETRY = RetryPolicy(first_delay_ms=500, delay_max_ms=30_000, attempts_max=NO_LIMIT)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The times and limits of an auditor.

    Attributes:
        session_timeout_ms: The longest time that a bookie needs to register again after it has
            lost its session.
        walk_pause_ms: Time from the end of a walk to the next walk, if no bookie is lost before.
        limits: The limits of a walk.
        retry: The pauses after requests that failed.
    """

    session_timeout_ms: int = SESSION_TIMEOUT_MS
    walk_pause_ms: int = WALK_PAUSE_MS
    limits: MarkingLimits = field(default_factory=MarkingLimits)
    retry: RetryPolicy = RETRY


class Auditor:
    """The decisions of one elected auditor."""

    def __init__(self, settings: AuditSettings | None = None, position: int = BEFORE_ALL) -> None:
        """Create the machine of an auditor that was just elected.

        Args:
            settings: The times and limits of the auditor.
            position: The ledger id up to which the predecessor had walked. Any number is safe.
        """
        self._settings = settings or AuditSettings()
        self._numbers = RequestNumbers()
        self._index = LedgerIndex()
        self._losses = BookieLosses(self._settings.session_timeout_ms)
        self._walk = MarkingWalk(self._settings.limits, self._index, self._numbers, position)
        self._reading: int | None = None
        self._is_changed = False  # the cluster changed while it was being read
        self._wait = NO_WAIT
        self._wait_timer: int | None = None
        self._pause_timer: int | None = None  # after a failed request
        self._walk_timer: int | None = None
        self._failures = 0
        self._ripe: frozenset[str] = frozenset()
        self._is_suspended = False
        self._has_ended = False

    @property
    def lost(self) -> tuple[str, ...]:
        """The bookies that are lost."""
        return self._losses.lost

    def begin(self) -> list[AuditEffect]:
        """Return the first effects."""
        return self._read_cluster()

    def handle(self, event: AuditEvent) -> list[AuditEffect]:  # noqa: PLR0911 - one for each event
        """Handle one event, and return the effects that the host then performs in order."""
        if self._has_ended:
            return []
        match event:
            case SessionEnded():
                self._has_ended = True
                return [SteppedDown()]
            case StoreSuspended():
                self._suspend()
                return []
            case StoreResumed():
                self._is_suspended = False
                return self._read_cluster()
            case ClusterChanged():
                return self._read_cluster()
            case ClusterRead():
                return self._on_cluster(event)
            case TimerFired(request):
                return self._on_timer(request)
            case RecordsRead() if self._walk.awaits(event.request):
                self._walk.records_read(event, self._losses.ripe)
                return self._after_reply(is_answered=event.is_read)
            case NoteWritten() if self._walk.awaits(event.request):
                self._walk.mark_written(event)
                return self._after_reply(is_answered=event.is_written)
        return []  # the reply to a request that was sent before a suspension

    def _suspend(self) -> None:
        """Publish nothing until the store answers.

        After that, hold all losses (AUTORECOVERY.md#N8).
        """
        self._is_suspended, self._is_changed = True, False
        self._reading = self._pause_timer = self._wait_timer = None
        self._wait = NO_WAIT
        self._losses.store_was_away()
        self._walk.abandon()
        self._walk.needs_cluster = True

    def _read_cluster(self) -> list[AuditEffect]:
        if self._is_suspended:
            return []
        if self._reading is not None:
            self._is_changed = True
            return []
        self._is_changed = False
        self._reading = self._numbers.next()
        return [ReadCluster(self._reading)]

    def _on_cluster(self, event: ClusterRead) -> list[AuditEffect]:
        if event.request != self._reading:
            return []
        self._reading = None
        if event.state is None:
            self._walk.needs_cluster = True
            return self._pause()
        self._failures = 0
        effects = self._observe(event.state)
        if self._is_changed:
            return [*effects, *self._read_cluster()]
        return effects

    def _observe(self, state: ClusterState) -> list[AuditEffect]:
        self._losses.observe(state, self._index.named)
        self._walk.cluster_read()
        effects: list[AuditEffect] = []
        if self._losses.wait != self._wait:
            self._wait, self._wait_timer = self._losses.wait, None
            if self._wait.kind is not WaitKind.NONE:
                self._wait_timer = self._numbers.next()
                effects.append(StartTimer(self._wait_timer, self._wait.duration_ms))
        ripe = self._losses.ripe
        found, self._ripe = ripe - self._ripe, ripe
        if found:
            effects.append(BookiesLost(tuple(sorted(found))))
        is_wanted = self._losses.take_wanted_walk() or not self._index.is_whole
        if not self._walk.is_running and (ripe or is_wanted):
            self._begin_walk()
        return [*effects, *self._step()]

    def _begin_walk(self) -> None:
        self._walk_timer = None
        self._walk.begin(self._losses.ripe)

    def _on_timer(self, request: int) -> list[AuditEffect]:
        if request == self._wait_timer:
            self._wait_timer = None
            self._losses.wait_is_over()
            self._wait = NO_WAIT
            return self._read_cluster()
        if request == self._pause_timer:
            self._pause_timer = None
            self._walk.needs_pause = False
            # After a failed request of the walk, read the state of the cluster first, because the
            # store may have been unavailable.
            self._walk.needs_cluster = True
            return self._read_cluster()
        if request == self._walk_timer:
            self._walk_timer = None
            self._losses.mark_again()
            if not self._walk.is_running:
                self._begin_walk()
            self._walk.needs_cluster = True
            return self._read_cluster()
        return []

    def _after_reply(self, *, is_answered: bool) -> list[AuditEffect]:
        if not is_answered:
            return self._pause()
        self._failures = 0
        return self._step()

    def _pause(self) -> list[AuditEffect]:
        if self._pause_timer is not None or self._is_suspended:
            return []
        self._failures += 1
        self._pause_timer = self._numbers.next()
        return [StartTimer(self._pause_timer, self._settings.retry.pause_ms(self._failures))]

    def _step(self) -> list[AuditEffect]:
        """Continue the walk."""
        was_running = self._walk.is_running
        effects = self._walk.step(self._losses.ripe)
        if self._walk.needs_cluster and self._reading is None and self._pause_timer is None:
            return [*effects, *self._read_cluster()]
        if was_running and not self._walk.is_running:
            effects += self._end_walk()
        return effects

    def _end_walk(self) -> list[AuditEffect]:
        """Report the walk. Read the cluster again, because records may name more lost bookies."""
        walk = self._walk
        handled = walk.take_handled()
        self._losses.handled(handled)
        self._ripe = self._losses.ripe
        report = WalkEnded(walk.ledgers, walk.marks, walk.unreadable, tuple(sorted(handled)))
        walk.marks = 0
        self._walk_timer = self._numbers.next()
        timer = StartTimer(self._walk_timer, self._settings.walk_pause_ms)
        return [report, timer, *self._read_cluster()]
