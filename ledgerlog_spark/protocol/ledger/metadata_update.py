"""One change of a ledger's record by compare-and-swap, until it is settled.

Propose, lose, load, propose again. A write whose outcome is not known is settled by a load after a
sync (PROTOCOL.md#B18): the record is what we meant, so it happened; the record is still at the
version we wrote against, so it is still unknown and the same write is sent again at the same
version, where only one of the two can succeed; anything else, and the decision is made anew. The
loop never assumes that a write failed. A conflict is no exception: it shows that the record moved
on, and only the load shows whether our own write moved it (a request may arrive twice). A record
that is gone shows nothing any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.protocol.dispatch import TableMachine
from ledgerlog_spark.protocol.ledger.messages import (
    CasMetadata,
    Effect,
    Event,
    Failure,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    StartTimer,
    TimerFired,
)

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers
    from ledgerlog_spark.protocol.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Refusal:
    """The record as it is forbids the change.

    Attributes:
        failure: Why, or None when there is nothing left to do: the record is as wanted.
    """

    failure: Failure | None


Decide = Callable[[LedgerMetadata], LedgerMetadata | Refusal]
"""Pure: the record to write over the one given, or why not. Called again after each loss."""

RecordKey = tuple[object, ...]


class UpdatePhase(Enum):
    """Where the loop is."""

    WRITING = "writing"
    LOADING = "loading"
    WAITING_TO_WRITE = "waiting to write"
    WAITING_TO_LOAD = "waiting to load"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """How the change ended.

    Attributes:
        failure: None when the record is as wanted, by our write or because it already was.
        is_definite: With a failure: certainly none of our writes happened or will happen.
        current: The newest record seen.
    """

    failure: Failure | None
    is_definite: bool
    current: Versioned[LedgerMetadata]


UpdateEvent = MetadataLoaded | MetadataWritten | TimerFired
UpdateEffects = list[CasMetadata | LoadMetadata | StartTimer]
Step = tuple[UpdateEffects, UpdateResult | None]


def is_same_record(left: LedgerMetadata, right: LedgerMetadata) -> bool:
    """Whether two records say the same, however each was stored."""
    return _key(left) == _key(right)


def _key(metadata: LedgerMetadata) -> RecordKey:
    return (
        metadata.quorum,
        metadata.fragments,
        metadata.state,
        metadata.last_entry_id,
        metadata.length,
        metadata.token,
    )


class MetadataUpdate:
    """The loop for one change. `begin` once, then `handle` every reply that it `awaits`."""

    def __init__(
        self,
        *,
        current: Versioned[LedgerMetadata],
        decide: Decide,
        numbers: RequestNumbers,
        retry: RetryPolicy,
        may_be_written: bool = False,
    ) -> None:
        """A change of the record `current`.

        Args:
            current: The newest record known.
            decide: What to write.
            numbers: Of requests.
            retry: While the store is away.
            may_be_written: The same change was tried over `current` before, and it is not known
                whether that happened.
        """
        self.phase = UpdatePhase.DONE
        self.current = current
        self._decide = decide
        self._numbers = numbers
        self._retry = retry
        self._attempts = 0
        self._request = 0
        self._intended: LedgerMetadata | None = None
        self._may_be_written = may_be_written

    def begin(self) -> Step:
        """Decide on the record as it is known, and write."""
        return self._propose()

    def awaits(self, event: UpdateEvent) -> bool:
        """Whether `event` answers what the loop waits for."""
        return self.phase is not UpdatePhase.DONE and event.request == self._request

    def handle(self, event: UpdateEvent) -> Step:
        """The next step after a reply that the loop `awaits`."""
        assert self.awaits(event), f"{event} was not requested"
        if isinstance(event, MetadataWritten):
            return self._on_written(event)
        if isinstance(event, MetadataLoaded):
            return self._on_loaded(event)
        return self._write() if self.phase is UpdatePhase.WAITING_TO_WRITE else self._load()

    def _propose(self) -> Step:
        decision = self._decide(self.current.value)
        if isinstance(decision, Refusal):
            return self._finish(decision.failure, is_definite=not self._may_be_written)
        self._intended = decision
        return self._write()

    def _write(self) -> Step:
        assert self._intended is not None
        self.phase = UpdatePhase.WRITING
        self._request = self._numbers.next()
        return [CasMetadata(self._request, self._intended, self.current.version)], None

    def _load(self) -> Step:
        self.phase = UpdatePhase.LOADING
        self._request = self._numbers.next()
        return [LoadMetadata(self._request, sync_first=True)], None

    def _on_written(self, event: MetadataWritten) -> Step:
        match event.outcome:
            case MetadataOutcome.OK:
                assert event.versioned is not None
                self.current = event.versioned
                return self._finish(None)
            case MetadataOutcome.CONFLICT:
                self._may_be_written = True
                return self._load()
            case MetadataOutcome.UNKNOWN:
                self._may_be_written = True
                return self._wait(UpdatePhase.WAITING_TO_LOAD)
            case MetadataOutcome.GONE:
                return self._finish(Failure.NOT_FOUND, is_definite=False)
            case _:
                return self._wait(UpdatePhase.WAITING_TO_WRITE)

    def _on_loaded(self, event: MetadataLoaded) -> Step:
        match event.outcome:
            case MetadataOutcome.OK:
                assert event.versioned is not None
                return self._settle(event.versioned)
            case MetadataOutcome.GONE:
                return self._finish(Failure.NOT_FOUND, is_definite=False)
            case MetadataOutcome.UNREADABLE:
                return self._finish(
                    Failure.METADATA_UNREADABLE, is_definite=not self._may_be_written
                )
            case _:
                return self._wait(UpdatePhase.WAITING_TO_LOAD)

    def _settle(self, loaded: Versioned[LedgerMetadata]) -> Step:
        assert self._intended is not None
        if loaded.version == self.current.version:
            return self._wait(UpdatePhase.WAITING_TO_WRITE)
        self.current = loaded
        if is_same_record(loaded.value, self._intended):
            return self._finish(None)
        # Every write of ours named an older version, and the record has moved on: none of them
        # can still happen, whatever became of their answers.
        self._may_be_written = False
        return self._propose()

    def _wait(self, phase: UpdatePhase) -> Step:
        self._attempts += 1
        delay_ms = self._retry.delay_ms(self._attempts)
        if delay_ms is None:
            return self._finish(Failure.METADATA_UNAVAILABLE, is_definite=not self._may_be_written)
        self.phase = phase
        self._request = self._numbers.next()
        return [StartTimer(self._request, delay_ms)], None

    def _finish(self, failure: Failure | None, *, is_definite: bool = True) -> Step:
        self.phase = UpdatePhase.DONE
        return [], UpdateResult(failure, is_definite, self.current)


class UpdatingMachine(TableMachine[Event, Effect], ABC):
    """What the machines of a ledger that change its record share: one update at a time."""

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
    ) -> list[Effect]:
        self._update = MetadataUpdate(
            current=record,
            decide=decide,
            numbers=self._numbers,
            retry=self._update_retry,
            may_be_written=may_be_written,
        )
        return self._take_step(self._update.begin())

    def _on_update_reply(self, event: UpdateEvent) -> list[Effect]:
        if self._update is None or not self._update.awaits(event):
            return []
        return self._take_step(self._update.handle(event))

    def _take_step(self, step: Step) -> list[Effect]:
        effects, result = step
        if result is None:
            return [*effects]
        self._update = None
        return self._on_updated(result)

    @abstractmethod
    def _on_updated(self, result: UpdateResult) -> list[Effect]:
        """The update has ended."""
