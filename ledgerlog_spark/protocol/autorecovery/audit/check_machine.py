"""The base class of the checks, which are machines that read all ledgers repeatedly.

`_run` is a generator, which yields requests and gets their replies. The generator never returns.
The machine ends when the session of its lease ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    CheckEffect,
    CheckEvent,
    ClusterRead,
    ClusterState,
    FoundHole,
    LedgerRecord,
    LoadRecords,
    NoteWritten,
    ReadCluster,
    ReadRecords,
    RecordsRead,
    SessionEnded,
    SteppedDown,
    StoreResumed,
    StoreSuspended,
    WriteHole,
    WriteMove,
)
from ledgerlog_spark.protocol.autorecovery.replicate.messages import WHOLE_LEDGER
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""A generator with a part of a machine's steps. It yields effects, and gets the replies to them."""

PAGE_RECORDS = 256
HOLES_MAX = 64
"""Maximum number of holes of one ledger in one note. More holes are joined into fewer, wider
holes."""
NOTE_ATTEMPTS_MAX = 20
RETRY = RetryPolicy(first_delay_ms=500, delay_max_ms=30_000, attempts_max=NO_LIMIT)


@dataclass(frozen=True, slots=True)
class Indicate:
    """An effect without a reply, wrapped so that a machine's generator can yield it."""

    effect: CheckEffect


class CheckMachine(ABC):
    """A machine that has at most one open request at a time."""

    def __init__(self) -> None:
        self._numbers = RequestNumbers()
        self._running: Steps[None] | None = None
        self._request: int | None = None
        self._is_suspended = False
        self._has_ended = False

    def begin(self) -> list[CheckEffect]:
        """Return the first effects. Call this once."""
        assert self._running is None, "started twice"
        self._running = self._run()
        return self._go_on(None)

    def handle(self, event: CheckEvent) -> list[CheckEffect]:
        """Handle one event, and return the effects that the host then performs in order."""
        if self._has_ended:
            return []
        if isinstance(event, SessionEnded):
            self._has_ended = True
            return [SteppedDown()]
        if isinstance(event, StoreSuspended | StoreResumed):
            self._is_suspended = isinstance(event, StoreSuspended)
            return []
        if event.request != self._request:
            return []
        self._request = None
        return self._go_on(event)

    def _go_on(self, reply: object) -> list[CheckEffect]:
        assert self._running is not None
        effects: list[CheckEffect] = []
        while True:
            request = self._running.send(reply)
            reply = None
            if isinstance(request, Indicate):
                effects.append(request.effect)
            elif self._is_suspended and isinstance(request, WriteHole | WriteMove):
                # Nothing is published without the store (AUTORECOVERY.md#N8).
                reply = NoteWritten(request.request, is_written=False)
            else:
                self._request = self._numbers.next()
                effects.append(replace(request, request=self._request))
                return effects

    @abstractmethod
    def _run(self) -> Steps[None]:
        """Yield the requests of the machine, without an end."""

    # Steps that several checks use.

    def _wait(self, duration_ms: int) -> Steps[None]:
        yield StartTimer(0, duration_ms)

    def _cluster(self) -> Steps[ClusterState]:
        """Read the state of the cluster, and return it."""
        for pause_ms in RETRY.pauses_ms():
            read: ClusterRead = yield ReadCluster(0)
            if read.state is not None:
                return read.state
            yield from self._wait(pause_ms)
        raise AssertionError("the pauses never end")

    def _enabled_cluster(self, poll_ms: int) -> Steps[ClusterState]:
        """Wait until auto-recovery is enabled; return the cluster's state (AUTORECOVERY.md#N4)."""
        while True:
            state = yield from self._cluster()
            if state.is_enabled:
                return state
            yield from self._wait(poll_ms)

    def _page(self, after: int) -> Steps[RecordsRead]:
        """Read the next page of records, and return it."""
        for pause_ms in RETRY.pauses_ms():
            page: RecordsRead = yield ReadRecords(0, after, PAGE_RECORDS)
            if page.is_read:
                return page
            yield from self._wait(pause_ms)
        raise AssertionError("the pauses never end")

    def _load(self, ledger_id: int) -> Steps[LedgerRecord | None]:
        """Read the newest record of a ledger; return None if it is absent or cannot be decoded."""
        for pause_ms in RETRY.pauses_ms():
            loaded: RecordsRead = yield LoadRecords(0, (ledger_id,))
            if loaded.is_read:
                return loaded.records[0] if loaded.records else None
            yield from self._wait(pause_ms)
        raise AssertionError("the pauses never end")

    def _report_holes(self, ledger_id: int, holes: list[FoundHole]) -> Steps[bool]:
        """Write holes to ledgerlog's own queue, not to Apache's (AUTORECOVERY.md#N11)."""
        return (yield from self._write(WriteHole(0, ledger_id, bounded(holes))))

    def _write(self, note: WriteHole | WriteMove) -> Steps[bool]:
        """Write a note. Return False if this fails; the next check then finds the copies again."""
        for attempt, pause_ms in enumerate(RETRY.pauses_ms(), 1):
            written: NoteWritten = yield note
            if written.is_written:
                return True
            if attempt == NOTE_ATTEMPTS_MAX:
                return False
            yield from self._wait(pause_ms)
        raise AssertionError("the pauses never end")


def bounded(holes: list[FoundHole]) -> tuple[FoundHole, ...]:
    """Return these holes, or at most `HOLES_MAX` wider holes that contain them.

    First, holes of the same bookie in the same fragment are joined. If there are still too many,
    all holes of the same bookie are joined. Because holes are joined and not omitted, no damaged
    copy waits for the next check. A joined hole may contain intact copies, which a worker writes
    once more without harm. Holes of missing copies come last, because a worker finds missing copies
    even without a hole, when it compares the lists.
    """
    found = tuple(holes)
    if len(found) > HOLES_MAX:
        found = _joined(found)
    if len(found) > HOLES_MAX:
        found = _joined([replace(one, fragment_id=WHOLE_LEDGER) for one in found])
    return found[:HOLES_MAX]


def _joined(holes: Iterable[FoundHole]) -> tuple[FoundHole, ...]:
    widest: dict[tuple[str, int, bool], FoundHole] = {}
    for hole in holes:
        before = widest.setdefault((hole.bookie_id, hole.fragment_id, hole.is_damaged), hole)
        widest[hole.bookie_id, hole.fragment_id, hole.is_damaged] = replace(
            before,
            first_entry_id=min(before.first_entry_id, hole.first_entry_id),
            last_entry_id=max(before.last_entry_id, hole.last_entry_id),
        )
    return tuple(sorted(widest.values(), key=lambda one: not one.is_damaged))
