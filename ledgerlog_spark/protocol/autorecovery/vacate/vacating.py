"""Moves the copies of one bookie to other bookies, until no ledger names the bookie.

The machine walks over all ledgers, and queues a move of each ledger that names the bookie. The
replication workers perform these moves. Clients may still use old lists of writable bookies, which
contain this bookie. So the machine waits until all clients have certainly read a newer list. If a
walk that begins after this wait finds no ledger that names the bookie, the machine ends the
vacation (AUTORECOVERY.md#Y6).

If two hosts run this machine for the same vacation, this does no harm, because each write compares
the version, and a move that is queued twice is only one move.
"""

# ruff: noqa: SLF001 (the table below the class holds its methods)

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.autorecovery.vacate import messages as m
from ledgerlog_spark.protocol.autorecovery.vacate.departure import BLOCKED_MAX, Departure
from ledgerlog_spark.protocol.autorecovery.vacate.share import bytes_on, is_named
from ledgerlog_spark.protocol.dispatch import Table, TableMachine, on, row
from ledgerlog_spark.protocol.request_numbers import RequestNumbers


@dataclass(frozen=True, slots=True)
class VacatingSettings:
    """Times of a vacation, in ms.

    Attributes:
        quiet_ms: Duration of the quiet time, which begins when the machine first finds that the
            bookie is not writable. Only a walk that begins after the quiet time may end the
            vacation. No client uses a list of writable bookies that is as old as the quiet time.
        poll_ms: Time between two reads of the bookie's registration and of the number of pending
            moves.
        walk_ms: Time after which the next walk begins even if moves are still pending.
    """

    quiet_ms: int = 60_000
    poll_ms: int = 5_000
    walk_ms: int = 600_000


class VacatingPhase(Enum):
    """State of the machine."""

    NEW = "new"
    LOADING = "reading the vacation"
    LOOKING = "reading the registration of the bookie"
    WALKING = "reading the metadata of all ledgers"
    QUEUEING = "queueing moves"
    WRITING = "writing progress"
    COUNTING = "counting the pending moves"
    RETIRING = "ending the vacation"
    PAUSING = "waiting"
    ENDED = "ended"


@dataclass(slots=True)
class _Walk:
    """One walk over all ledgers, and the numbers of the ledgers that it found so far."""

    is_quiet: bool  # whether the walk began after the quiet time
    returns: int  # number of starts of the bookie before the walk began
    after: int = -1
    ledgers: int = 0
    size_bytes: int = 0
    blocked: list[int] = field(default_factory=list)  # at most `BLOCKED_MAX`
    unreadable: list[int] = field(default_factory=list)  # at most `BLOCKED_MAX`
    blocked_count: int = 0
    is_last: bool = False  # whether the last page of ledgers was read


class Vacating(TableMachine[m.Event, m.Effect]):
    """The machine of the vacation of one bookie."""

    def __init__(self, bookie_id: str, settings: VacatingSettings | None = None) -> None:
        self.phase = VacatingPhase.NEW
        self.bookie_id = bookie_id
        self.settings = settings or VacatingSettings()
        self._numbers = RequestNumbers()
        self._pending = 0  # number of the request whose reply the machine waits for
        # number of the timer of the quiet time, which starts when the machine first finds that the
        # bookie, with its present registration, is not writable
        self._quiet_timer = 0
        self._is_quiet = False
        self._registration: int | None = None
        self._departure: Departure | None = None
        self._version: Version | None = None
        self._walk: _Walk | None = None
        self._polls = 0  # number of reads of the bookie's registration since the last walk
        # numbers of ledgers and bytes that the last complete walk of this machine found
        self._left_at_walk: tuple[int, int] | None = None

    def _begin(self, _event: m.VacationBegun) -> list[m.Effect]:
        return self._load()

    def _load(self) -> list[m.Effect]:
        self.phase = VacatingPhase.LOADING
        return [m.LoadVacation(self._next())]

    def _on_loaded(self, event: m.VacationLoaded) -> list[m.Effect]:
        if event.request != self._pending:
            return []
        if event.found is None:
            return self._end(m.VacationEnd.CANCELLED)
        before, self._version = self._version, event.found.version
        self._departure = event.found.value
        if before is not None and before.incarnation != self._version.incarnation:
            # The former vacation was cancelled, so the bookie may have been writable in between.
            self._forget_quiet()
            self._left_at_walk = None
        if self._departure.is_over:
            return self._end(m.VacationEnd.VACATED)
        self.phase = VacatingPhase.LOOKING
        return [m.LookAtBookie(self._next())]

    def _on_seen(self, event: m.BookieSeen) -> list[m.Effect]:
        if event.request != self._pending:
            return []
        effects: list[m.Effect] = []
        if event.registration != self._registration:
            # The bookie may have been writable between the two registrations.
            self._forget_quiet()
            self._registration = event.registration
        if event.sight is m.BookieSight.WRITABLE:
            self._forget_quiet()
            return self._pause()
        if not self._is_quiet and not self._quiet_timer:
            self._quiet_timer = self._numbers.next()
            effects.append(m.VacationPause(self._quiet_timer, self.settings.quiet_ms))
        return [*effects, *self._after_look()]

    def _forget_quiet(self) -> None:
        self._is_quiet, self._quiet_timer, self._walk = False, 0, None

    def _after_look(self) -> list[m.Effect]:
        """Continue after the bookie was not writable: end the vacation, count moves, or walk."""
        walk, self._walk = self._walk, None
        departure, left = self._departure, self._left_at_walk
        assert departure is not None, "the vacation was loaded before this look"
        if walk is not None and self._may_end(walk) and walk.returns == departure.returns:
            return self._retire()
        is_due = self._polls * self.settings.poll_ms >= self.settings.walk_ms
        if left is None or is_due or (left[0] == 0 and self._is_quiet):
            return self._begin_walk()
        if left[0] == 0:
            return self._pause()  # until the quiet time is over, because no ledger is left
        self.phase = VacatingPhase.COUNTING
        return [m.CountMoves(self._next())]

    @staticmethod
    def _may_end(walk: _Walk) -> bool:
        """Whether a complete walk shows that no ledger names the bookie (AUTORECOVERY.md#Y6)."""
        return walk.ledgers == 0 and walk.is_quiet

    def _begin_walk(self) -> list[m.Effect]:
        assert self._departure is not None, "the vacation was loaded before this walk"
        self._walk, self._polls = _Walk(self._is_quiet, self._departure.returns), 0
        self.phase = VacatingPhase.WALKING
        return [m.WalkLedgers(self._next(), -1, sync_first=True)]

    def _on_walked(self, event: m.LedgersWalked) -> list[m.Effect]:
        if event.request != self._pending:
            return []
        walk = self._walk
        assert walk is not None, "a walk is pending"
        bookie_id = self.bookie_id
        named = {i: metadata for i, metadata in event.ledgers if is_named(metadata, bookie_id)}
        walk.ledgers += len(named)
        walk.size_bytes += sum(bytes_on(metadata, bookie_id) for metadata in named.values())
        for ledger_id, metadata in named.items():
            if not metadata.is_closed and bookie_id in metadata.last_fragment.ensemble:
                walk.blocked_count += 1
                walk.blocked += [ledger_id] if len(walk.blocked) < BLOCKED_MAX else []
        # Ledgers whose metadata cannot be read may name the bookie. So they count as blocked, and
        # each of them gets a move too.
        walk.ledgers += len(event.unreadable)
        walk.blocked_count += len(event.unreadable)
        walk.unreadable = [*walk.unreadable, *event.unreadable][:BLOCKED_MAX]
        last = (walk.after, *(i for i, _ in event.ledgers[-1:]), *event.unreadable[-1:])
        walk.after = max(last)
        walk.is_last = event.is_last
        if named or event.unreadable:
            self.phase = VacatingPhase.QUEUEING
            return [m.QueueMoves(self._next(), (*named, *event.unreadable))]
        return self._walk_on()

    def _on_queued(self, event: m.MovesQueued) -> list[m.Effect]:
        return self._walk_on() if event.request == self._pending else []

    def _walk_on(self) -> list[m.Effect]:
        walk, departure = self._walk, self._departure
        assert walk is not None, "a walk is pending"
        assert departure is not None, "the vacation was loaded before the walk"
        if not walk.is_last:
            self.phase = VacatingPhase.WALKING
            return [m.WalkLedgers(self._next(), walk.after, sync_first=False)]
        self._left_at_walk = walk.ledgers, walk.size_bytes
        is_first = departure.walks == 0
        return self._write(
            replace(
                departure,
                walks=departure.walks + 1,
                ledgers_total=walk.ledgers if is_first else departure.ledgers_total,
                bytes_total=walk.size_bytes if is_first else departure.bytes_total,
                ledgers_left=walk.ledgers,
                bytes_left=walk.size_bytes,
                blocked=tuple(walk.blocked),
                unreadable=tuple(walk.unreadable),
                blocked_count=walk.blocked_count,
            )
        )

    def _on_counted(self, event: m.MovesCounted) -> list[m.Effect]:
        """Store the progress. Begin the next walk if no move is pending (AUTORECOVERY.md#Y5)."""
        if event.request != self._pending:
            return []
        departure = self._departure
        assert departure is not None, "the vacation was loaded before this count"
        assert self._left_at_walk is not None, "moves are counted after a walk"
        ledgers, size_bytes = self._left_at_walk
        left = min(event.count, ledgers)
        if left == 0:
            return self._begin_walk()
        noted = replace(
            departure,
            ledgers_left=left,
            bytes_left=size_bytes * left // ledgers,
        )
        return self._pause() if noted == departure else self._write(noted)

    def _write(self, departure: Departure) -> list[m.Effect]:
        assert self._version is not None, "the vacation was loaded before this write"
        self.phase = VacatingPhase.WRITING
        self._departure = departure
        return [m.WriteVacation(self._next(), departure, self._version)]

    def _retire(self) -> list[m.Effect]:
        """End the vacation at the version that was read before the bookie's registration.

        If the bookie has started since then, the write fails (AUTORECOVERY.md#Y7).
        """
        assert self._departure is not None, "the vacation was loaded before this write"
        assert self._version is not None, "the vacation was loaded before this write"
        over = replace(self._departure, is_over=True, ledgers_left=0, bytes_left=0)
        self.phase = VacatingPhase.RETIRING
        kind = m.Retire if over.deletes_cookie else m.WriteVacation
        return [kind(self._next(), over, self._version)]

    def _on_written(self, event: m.VacationWritten) -> list[m.Effect]:
        if event.request != self._pending:
            return []
        if event.outcome is not m.VacationOutcome.OK:
            # Another process wrote the vacation, or the outcome of this write is unknown.
            self._walk = None
            return self._pause()
        if self._walk is not None and self._may_end(self._walk):
            return self._load()  # read the registration once more, and end the vacation
        self._walk = None
        return self._pause()

    def _on_retired(self, event: m.VacationWritten) -> list[m.Effect]:
        if event.request != self._pending:
            return []
        if event.outcome is m.VacationOutcome.OK:
            return self._end(m.VacationEnd.VACATED)
        return self._pause()

    def _pause(self) -> list[m.Effect]:
        self.phase = VacatingPhase.PAUSING
        self._polls += 1
        return [m.VacationPause(self._next(), self.settings.poll_ms)]

    def _on_pause_over(self, event: m.PauseOver) -> list[m.Effect]:
        return self._note_quiet(event) if event.request != self._pending else self._load()

    def _note_quiet(self, event: m.PauseOver) -> list[m.Effect]:
        if event.request == self._quiet_timer:
            self._is_quiet, self._quiet_timer = True, 0
        return []

    def _on_failed(self, event: m.VacateFailed) -> list[m.Effect]:
        if event.request != self._pending:
            return []
        self._walk = None
        return self._pause()

    def _end(self, end: m.VacationEnd) -> list[m.Effect]:
        self.phase = VacatingPhase.ENDED
        return [m.VacationEnded(end)]

    def _next(self) -> int:
        self._pending = self._numbers.next()
        return self._pending


_ALWAYS = (on(m.PauseOver, Vacating._note_quiet), on(m.VacateFailed, Vacating._on_failed))

VACATING_TABLE: Table[Vacating, m.Effect] = {
    VacatingPhase.NEW: row(on(m.VacationBegun, Vacating._begin)),
    VacatingPhase.LOADING: row(*_ALWAYS, on(m.VacationLoaded, Vacating._on_loaded)),
    VacatingPhase.LOOKING: row(*_ALWAYS, on(m.BookieSeen, Vacating._on_seen)),
    VacatingPhase.WALKING: row(*_ALWAYS, on(m.LedgersWalked, Vacating._on_walked)),
    VacatingPhase.QUEUEING: row(*_ALWAYS, on(m.MovesQueued, Vacating._on_queued)),
    VacatingPhase.COUNTING: row(*_ALWAYS, on(m.MovesCounted, Vacating._on_counted)),
    VacatingPhase.WRITING: row(*_ALWAYS, on(m.VacationWritten, Vacating._on_written)),
    VacatingPhase.RETIRING: row(*_ALWAYS, on(m.VacationWritten, Vacating._on_retired)),
    VacatingPhase.PAUSING: row(on(m.PauseOver, Vacating._on_pause_over)),
    VacatingPhase.ENDED: row(ignored=(m.PauseOver,)),
}
"""The dispatch table of a vacation."""
Vacating.table = VACATING_TABLE
