"""Repeats one change of the ledger metadata by compare-and-swap, until its outcome is known.

`MetadataUpdate` is a loop that proposes a change. After a conflict, the loop loads the metadata and
proposes the change again. If the outcome of a write is unknown, the loop loads the metadata after a
sync (PROTOCOL.md#B18). If the loaded metadata is the proposed metadata, the write happened. If the
metadata still has the version that was compared, the outcome stays unknown. The loop then resends
the same write at the same version, so that only one of the two writes can succeed. In all other
cases the loop decides again, from the loaded metadata.

The loop never assumes that a write failed, not even after a conflict. A conflict shows that the
metadata changed. Only the loaded metadata shows whether a write of this loop changed it, because a
request may arrive twice. If the metadata was deleted, the outcome stays unknown.

A write may depend on the identities of bookies. If one of these identities has changed, the loop
ends. Each resent write has the same identities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.protocol.dispatch import TableMachine
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import Identity
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Refusal:
    """The current metadata forbids the change, or makes it unnecessary."""

    failure: m.Failure | None  # None if the metadata already has the change


Decide = Callable[[LedgerMetadata], LedgerMetadata | Refusal]
"""A pure function from the current metadata to the new metadata, or to a refusal.

The loop calls the function again when another write has changed the metadata first.
"""


class UpdatePhase(Enum):
    """State of the loop of an update."""

    WRITING = "writing"
    LOADING = "loading"
    WAITING_TO_WRITE = "waiting to write"
    WAITING_TO_LOAD = "waiting to load"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """How the change ended."""

    failure: m.Failure | None  # None if the metadata has the change
    is_definite: bool  # if False, a write of the loop may have happened
    current: Versioned[LedgerMetadata]  # the newest metadata that the loop has read or written


UpdateEvent = m.MetadataLoaded | m.MetadataWritten | m.TimerFired
UpdateEffects = list[m.CasMetadata | m.LoadMetadata | m.StartTimer]
Step = tuple[UpdateEffects, UpdateResult | None]


_COMPARED = attrgetter("quorum", "fragments", "state", "last_entry_id", "length", "token")
"""Returns the fields that the loop compares. Two records of metadata count as equal if these fields
are equal."""


@dataclass(slots=True, eq=False)
class MetadataUpdate:
    """Repeats one change of the ledger metadata until its outcome is known.

    The owner calls `begin` once, and `handle` for each reply.
    """

    current: Versioned[LedgerMetadata]
    decide: Decide
    numbers: RequestNumbers
    retry: RetryPolicy
    may_be_written: bool = False  # whether an earlier write over `current` has an unknown outcome
    identities: tuple[Identity, ...] = ()  # if one of these bookies has changed, a write fails
    phase: UpdatePhase = UpdatePhase.DONE
    _attempts: int = 0
    _request: int = 0
    _intended: LedgerMetadata | None = None

    def begin(self) -> Step:
        """Compute the new metadata, and write it in place of `current`."""
        return self._propose()

    def awaits(self, event: UpdateEvent) -> bool:
        """Whether `event` answers the pending request of the loop."""
        return self.phase is not UpdatePhase.DONE and event.request == self._request

    def handle(self, event: UpdateEvent) -> Step:
        """Take a reply for which `awaits` is true, and return the next step."""
        assert self.awaits(event), f"{event} was not requested"
        if isinstance(event, m.MetadataWritten):
            return self._on_written(event)
        if isinstance(event, m.MetadataLoaded):
            return self._on_loaded(event)
        return self._write() if self.phase is UpdatePhase.WAITING_TO_WRITE else self._load()

    def _propose(self) -> Step:
        decision = self.decide(self.current.value)
        if isinstance(decision, Refusal):
            return self._finish(decision.failure, is_definite=not self.may_be_written)
        self._intended = decision
        return self._write()

    def _write(self) -> Step:
        assert self._intended is not None
        self.phase = UpdatePhase.WRITING
        self._request = self.numbers.next()
        version = self.current.version
        return [m.CasMetadata(self._request, self._intended, version, self.identities)], None

    def _load(self) -> Step:
        self.phase = UpdatePhase.LOADING
        self._request = self.numbers.next()
        return [m.LoadMetadata(self._request, sync_first=True)], None

    def _on_written(self, event: m.MetadataWritten) -> Step:
        match event.outcome:
            case m.MetadataOutcome.OK:
                assert event.versioned is not None
                self.current = event.versioned
                return self._finish(None)
            case m.MetadataOutcome.CONFLICT:
                self.may_be_written = True
                return self._load()
            case m.MetadataOutcome.UNKNOWN:
                self.may_be_written = True
                return self._wait(UpdatePhase.WAITING_TO_LOAD)
            case m.MetadataOutcome.GONE:
                return self._finish(m.Failure.NOT_FOUND, is_definite=False)
            case m.MetadataOutcome.BOOKIE_CHANGED:
                return self._finish(m.Failure.BOOKIE_CHANGED, is_definite=not self.may_be_written)
            case _:
                return self._wait(UpdatePhase.WAITING_TO_WRITE)

    def _on_loaded(self, event: m.MetadataLoaded) -> Step:
        match event.outcome:
            case m.MetadataOutcome.OK:
                assert event.versioned is not None
                return self._settle(event.versioned)
            case m.MetadataOutcome.GONE:
                return self._finish(m.Failure.NOT_FOUND, is_definite=False)
            case m.MetadataOutcome.UNREADABLE:
                return self._finish(
                    m.Failure.METADATA_UNREADABLE, is_definite=not self.may_be_written
                )
            case _:
                return self._wait(UpdatePhase.WAITING_TO_LOAD)

    def _settle(self, loaded: Versioned[LedgerMetadata]) -> Step:
        assert self._intended is not None
        if loaded.version == self.current.version:
            return self._wait(UpdatePhase.WAITING_TO_WRITE)
        self.current = loaded
        if _COMPARED(loaded.value) == _COMPARED(self._intended):
            return self._finish(None)
        # All writes of the loop compare an older version, and the metadata has changed since then.
        # So no write can still happen, not even a write that has no answer yet.
        self.may_be_written = False
        return self._propose()

    def _wait(self, phase: UpdatePhase) -> Step:
        self._attempts += 1
        delay_ms = self.retry.delay_ms(self._attempts)
        if delay_ms is None:
            return self._finish(m.Failure.METADATA_UNAVAILABLE, is_definite=not self.may_be_written)
        self.phase = phase
        self._request = self.numbers.next()
        return [m.StartTimer(self._request, delay_ms)], None

    def _finish(self, failure: m.Failure | None, *, is_definite: bool = True) -> Step:
        self.phase = UpdatePhase.DONE
        return [], UpdateResult(failure, is_definite, self.current)


class UpdatingMachine(TableMachine[m.Event, m.Effect], ABC):
    """Base class of the machines that change the metadata of a ledger, one update at a time."""

    def __init__(self, *, numbers: RequestNumbers, retry: RetryPolicy) -> None:
        self._numbers = numbers
        self._update: MetadataUpdate | None = None
        self._update_retry = retry

    def _begin_update(
        self,
        record: Versioned[LedgerMetadata],
        decide: Decide,
        *,
        may_be_written: bool = False,
        identities: tuple[Identity, ...] = (),
    ) -> list[m.Effect]:
        self._update = MetadataUpdate(
            current=record,
            decide=decide,
            numbers=self._numbers,
            retry=self._update_retry,
            may_be_written=may_be_written,
            identities=identities,
        )
        return self._take_step(self._update.begin())

    def _on_update_reply(self, event: UpdateEvent) -> list[m.Effect]:
        if self._update is None or not self._update.awaits(event):
            return []
        return self._take_step(self._update.handle(event))

    def _take_step(self, step: Step) -> list[m.Effect]:
        effects, result = step
        if result is None:
            return [*effects]
        self._update = None
        return self._on_updated(result)

    @abstractmethod
    def _on_updated(self, result: UpdateResult) -> list[m.Effect]:
        """Continue after the update has ended with `result`."""
