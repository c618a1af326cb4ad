"""Letting go of what no version names (LOGS.md#W1-W6).

The rule behind every machine here: first change what a commit checks, so that every commit which
could still name the thing fails; then look whether the log names it; only then delete.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.messages import (
    DeletePages,
    DropLedger,
    LogEffects,
    LogReply,
    ProducerRead,
    ReadProducer,
    ReadRegistrations,
    ReadStaged,
    RegistrationsRead,
    StagedRead,
    TouchPages,
    WriteProducer,
    Written,
)
from ledgerlog_spark.protocol.log.read.versions import HeadReader, listed_ledgers, listing_of
from ledgerlog_spark.protocol.log.state.pages import end_key
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgerlog_spark.model import Versioned
    from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord

STEP_LEDGERS_MAX = 1_000
"""Ledgers of one transaction, so that it stays far below the store's 1 MiB."""


class SweepPhase(Enum):
    """What the sweeper does around its look at the head."""

    FIRST_LOOK = "first look"
    BEFORE = "before"
    LOOK = "look"
    AFTER = "after"


class PagesSweep(HeadReader[tuple[str, ...]]):
    """Deletes pages that the head does not name, of tokens that are old enough (LOGS.md#W2).

    Ends with `Finished(tuple[str, ...])`: the tokens of which something was deleted. A touch with
    an unknown outcome leaves that token for another time.
    """

    __slots__ = ("_deleted", "_doing", "_to_delete", "_tokens", "_touched", "sweep_phase")

    def __init__(self, log: str, tokens: tuple[str, ...]) -> None:
        super().__init__(log)
        self.sweep_phase = SweepPhase.BEFORE
        self._tokens = list(tokens)
        self._touched: list[str] = []
        self._to_delete: list[tuple[str, tuple[int, ...]]] = []
        self._doing = ""
        self._deleted: list[str] = []

    def _begin(self) -> LogEffects[tuple[str, ...]]:
        if self.sweep_phase is SweepPhase.BEFORE and self._tokens:
            self._doing = self._tokens.pop(0)
            return self._ask(partial(TouchPages, token=self._doing))
        self.sweep_phase = SweepPhase.LOOK
        return super()._begin()

    def _step(self, reply: LogReply) -> LogEffects[tuple[str, ...]]:
        if self.sweep_phase is SweepPhase.LOOK:
            return super()._step(reply)
        outcome = cast("Written", reply).outcome
        if self.sweep_phase is SweepPhase.BEFORE:
            if outcome is MetadataOutcome.OK:
                self._touched.append(self._doing)
            return self._begin()
        if outcome is MetadataOutcome.OK:
            self._deleted.append(self._doing)
        return self._delete_next()

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [
            Walk(ITEMS, head.items, 0, head.end_offset + 1),
            Walk(HISTORY, head.history, 0, head.version + 1),
            # The current one may be an older one, which an overwrite or a restore took back.
            Walk(SCHEMAS, head.schemas, 0, end_key(SCHEMAS, head.schemas)),
        ]

    def _is_over(self, walk: Walk[Any]) -> bool:
        """Only references are of interest: each walk stops at its pages."""
        return walk.is_indexed

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[tuple[str, ...]]:
        named: dict[str, set[int]] = {}
        for paged in (head.items, head.history, head.schemas):
            for ref in (*paged.index, *paged.pages):
                named.setdefault(ref.token, set()).add(ref.number)
        for walk in walked:
            for ref in walk.refs:
                named.setdefault(ref.token, set()).add(ref.number)
        self._to_delete = [(token, tuple(sorted(named.get(token, ())))) for token in self._touched]
        self.sweep_phase = SweepPhase.AFTER
        return self._delete_next()

    def _delete_next(self) -> LogEffects[tuple[str, ...]]:
        if not self._to_delete:
            return self._finish(tuple(self._deleted))
        self._doing, kept = self._to_delete.pop(0)
        return self._ask(partial(DeletePages, token=self._doing, kept=kept))


@dataclass(frozen=True, slots=True)
class Deregistered:
    """What one step of `StagedSweep` did.

    Attributes:
        unlisted: Ledgers that no commit can name any more and no version names, now marked.
        released: Listed ledgers that no commit can add to any more.
        is_complete: Whether nothing more was due; not so when something else came in between.
    """

    unlisted: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    is_complete: bool = True


class StagedSweep(HeadReader[Deregistered]):
    """Ends registrations of one producer that are too old (LOGS.md#W3).

    A ledger that is not listed gets a mark, and goes; a listed one stays, without its registration:
    so a producer's registrations, which every commit reads, do not grow for ever. Ends with
    `Finished(Deregistered)`. The producer record is read before the head, and replaced at that
    version: a commit in between changes it and makes this sweep fail.
    """

    __slots__ = ("_app", "_done_step", "_due", "_producer", "_staging_ttl_ms", "sweep_phase")

    def __init__(self, log: str, *, app: str, staging_ttl_ms: int) -> None:
        super().__init__(log)
        self.sweep_phase = SweepPhase.BEFORE
        self._app = app
        self._staging_ttl_ms = staging_ttl_ms
        self._producer: Versioned[ProducerRecord] | None = None
        self._due: tuple[int, ...] = ()
        self._done_step = Deregistered()

    def _begin(self) -> LogEffects[Deregistered]:
        if self.sweep_phase is SweepPhase.BEFORE:
            return self._ask(partial(ReadProducer, app=self._app))
        return super()._begin()

    def _step(self, reply: LogReply) -> LogEffects[Deregistered]:
        if self.sweep_phase is SweepPhase.LOOK:
            return super()._step(reply)
        if self.sweep_phase is SweepPhase.AFTER:
            done = reply.outcome is MetadataOutcome.OK
            return self._finish(self._done_step if done else Deregistered(is_complete=False))
        if reply.outcome not in {MetadataOutcome.OK, MetadataOutcome.GONE}:
            raise self._read_error(reply.outcome)
        if isinstance(reply, StagedRead):
            return self._on_staged(reply)
        self._producer = cast("ProducerRead", reply).producer
        if self._producer is None:
            return self._finish(Deregistered())
        return self._ask(partial(ReadStaged, app=self._app))

    def _on_staged(self, reply: StagedRead) -> LogEffects[Deregistered]:
        self._due = tuple(
            staged.ledger_id
            for staged in reply.ledgers
            if reply.now_ms - staged.registered_ms > self._staging_ttl_ms
        )
        if not self._due:
            return self._finish(Deregistered())
        self.sweep_phase = SweepPhase.LOOK
        return self._begin()

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [listing_of(head)]

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[Deregistered]:
        listed = listed_ledgers(head, walked[0].records())
        some = self._due[:STEP_LEDGERS_MAX]
        step = self._done_step = Deregistered(
            unlisted=tuple(ledger for ledger in some if ledger not in listed),
            released=tuple(ledger for ledger in some if ledger in listed),
            is_complete=len(some) == len(self._due),
        )
        assert self._producer is not None
        self.sweep_phase = SweepPhase.AFTER
        return self._ask(
            partial(
                WriteProducer,
                app=self._app,
                producer=self._producer.value,
                version=self._producer.version,
                deregistered=step.unlisted,
                released=step.released,
            )
        )


class LedgerSweep(HeadReader[tuple[int, ...]]):
    """Deletes ledgers that were unlisted long enough ago, if nothing lists them again (LOGS.md#W4).

    What is listed again, because its writer went on with it, is left alone, with its mark and its
    registration: it will be unlisted again one day. The others are deregistered wherever they are
    registered, which bumps those producer records, then looked for in the list once more, sealed
    and deleted. From that last look on nothing can list them, so nothing renews their marks: one
    that was renewed before is found so, and its ledger stays. Ends with
    `Finished(tuple[int, ...])`: the ledgers deleted.

    Attributes:
        is_crossed: A producer changed in between, so that nothing was deleted: run it again.
    """

    __slots__ = (
        "_deleted",
        "_doing",
        "_ledger_ids",
        "_marked_ms",
        "_registrations",
        "_to_drop",
        "is_crossed",
        "sweep_phase",
    )

    def __init__(self, log: str, marked_ms: Mapping[int, int]) -> None:
        """Machine of one step.

        Args:
            log: Name, for messages.
            marked_ms: When each ledger that is due was marked; the first 1,000 are taken.
        """
        super().__init__(log)
        self.sweep_phase = SweepPhase.FIRST_LOOK
        self._marked_ms = marked_ms
        self.is_crossed = False
        self._ledger_ids = tuple(itertools.islice(marked_ms, STEP_LEDGERS_MAX))
        self._registrations: list[tuple[str, Versioned[ProducerRecord], tuple[int, ...]]] = []
        self._doing = -1
        self._to_drop: list[int] = []
        self._deleted: list[int] = []

    def _begin(self) -> LogEffects[tuple[int, ...]]:
        if self.sweep_phase is SweepPhase.BEFORE:
            return self._ask(partial(ReadRegistrations, ledger_ids=self._ledger_ids))
        return super()._begin()

    def _step(self, reply: LogReply) -> LogEffects[tuple[int, ...]]:
        if self.sweep_phase in {SweepPhase.FIRST_LOOK, SweepPhase.LOOK}:
            return super()._step(reply)
        if self.sweep_phase is SweepPhase.AFTER:
            if reply.outcome is MetadataOutcome.OK and self._doing >= 0:
                self._deleted.append(self._doing)
            return self._drop_next()
        if isinstance(reply, RegistrationsRead):
            if reply.outcome is not MetadataOutcome.OK:
                raise self._read_error(reply.outcome)
            self._registrations = list(reply.registrations)
        elif reply.outcome is not MetadataOutcome.OK:
            self.is_crossed = True
            return self._finish(())
        return self._deregister_next()

    def _deregister_next(self) -> LogEffects[tuple[int, ...]]:
        if not self._registrations:
            self.sweep_phase = SweepPhase.LOOK
            return self._begin()
        app, found, ledger_ids = self._registrations.pop(0)
        return self._ask(
            partial(
                WriteProducer,
                app=app,
                producer=found.value,
                version=found.version,
                deregistered=ledger_ids,
            )
        )

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [listing_of(head)]

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[tuple[int, ...]]:
        listed = listed_ledgers(head, walked[0].records())
        self._ledger_ids = tuple(ledger for ledger in self._ledger_ids if ledger not in listed)
        if not self._ledger_ids:
            return self._finish(())
        if self.sweep_phase is SweepPhase.FIRST_LOOK:
            self.sweep_phase = SweepPhase.BEFORE
            return self._begin()
        self._to_drop = list(self._ledger_ids)
        self.sweep_phase = SweepPhase.AFTER
        return self._drop_next()

    def _drop_next(self) -> LogEffects[tuple[int, ...]]:
        self._doing = -1
        if self._to_drop:
            self._doing = self._to_drop.pop(0)
            marked_ms = self._marked_ms[self._doing]
            return self._ask(partial(DropLedger, ledger_id=self._doing, marked_ms=marked_ms))
        return self._finish(tuple(self._deleted))
