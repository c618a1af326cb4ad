"""Sweeps with concurrent changes: nodes that may be named now are not deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import ConcurrentCommitError
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.expiry import STEP_ITEMS_MAX, expiry_step
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.properties import PropertiesMachine
from ledgerlog_spark.protocol.log.read.versions import listing_of
from ledgerlog_spark.protocol.log.state.records import Item, Paged, ProducerRecord, VersionInterval
from ledgerlog_spark.protocol.log.sweep import LedgerSweep, PagesSweep
from ledgerlog_spark.protocol.log.transaction import ATTEMPTS_MAX
from tests.unit.log.log_values import OneLog, staged, token

PRODUCER = Versioned(ProducerRecord(epoch=1, runs=("run",)), Version(1, 4))


class Sweep:
    """A sweep of one ledger that is marked and registered, step by step."""

    def __init__(self) -> None:
        self.log = OneLog()
        self.log.commit(staged(7))
        self.machine = LedgerSweep("flights", {8: 100})
        self.asked: list[Any] = []

    def play(self, deregistered: MetadataOutcome) -> tuple[int, ...]:
        """Return its result, and add its requests to `asked`."""
        (ask,) = self.machine.start()
        while not isinstance(ask, m.Finished):
            self.asked.append(ask)
            (ask,) = self.machine.handle(self.reply(ask, deregistered))
        result: tuple[int, ...] = ask.result
        return result

    def reply(self, ask: Any, deregistered: MetadataOutcome) -> Any:
        if isinstance(ask, m.ReadRegistrations):
            registrations = (("stream", PRODUCER, (8,)),)
            return m.RegistrationsRead(ask.request, MetadataOutcome.OK, registrations)
        if isinstance(ask, m.WriteProducer):
            assert (ask.app, ask.version, ask.deregistered) == ("stream", PRODUCER.version, (8,))
            return m.Written(ask.request, deregistered)
        if isinstance(ask, m.DropLedger):
            return m.Written(ask.request, MetadataOutcome.OK)
        return self.log.reply(ask)

    @property
    def dropped(self) -> list[int]:
        return [ask.ledger_id for ask in self.asked if isinstance(ask, m.DropLedger)]


def test_ledger_whose_registration_ended_is_deleted() -> None:
    sweep = Sweep()
    assert sweep.play(MetadataOutcome.OK) == (8,)
    assert sweep.dropped == [8]
    assert not sweep.machine.is_crossed


@pytest.mark.parametrize(
    "outcome", [MetadataOutcome.CONFLICT, MetadataOutcome.UNKNOWN, MetadataOutcome.UNAVAILABLE]
)
def test_ledger_whose_producer_may_commit_it_meanwhile_is_left_for_another_time(
    outcome: MetadataOutcome,
) -> None:
    sweep = Sweep()
    assert sweep.play(outcome) == ()
    assert sweep.dropped == []
    assert sweep.machine.is_crossed


def test_ledger_that_was_listed_before_its_registration_ended_is_left_alone() -> None:
    class Late(Sweep):
        def reply(self, ask: Any, deregistered: MetadataOutcome) -> Any:
            if isinstance(ask, m.WriteProducer):
                self.log.commit(staged(8))
            return super().reply(ask, deregistered)

    sweep = Late()
    assert sweep.play(MetadataOutcome.OK) == ()
    assert sweep.dropped == []


@pytest.mark.parametrize("outcome", [MetadataOutcome.UNKNOWN, MetadataOutcome.UNAVAILABLE])
def test_pages_that_may_not_have_been_touched_are_left_for_another_time(
    outcome: MetadataOutcome,
) -> None:
    """A commit that will name them would not notice their deletion."""
    log, deleted = OneLog(), []
    machine = PagesSweep("flights", (token(7), token(8)))
    (ask,) = machine.start()
    while not isinstance(ask, m.Finished):
        reply: Any
        if isinstance(ask, m.TouchPages):
            is_answered = ask.token == token(8)
            reply = m.Written(ask.request, MetadataOutcome.OK if is_answered else outcome)
        elif isinstance(ask, m.DeletePages):
            deleted.append(ask.token)
            reply = m.Written(ask.request, MetadataOutcome.OK)
        else:
            reply = log.reply(ask)
        (ask,) = machine.handle(reply)
    assert deleted == [token(8)]
    assert ask.result == (token(8),)


@pytest.mark.parametrize("outcome", [MetadataOutcome.CONFLICT, MetadataOutcome.UNKNOWN])
def test_change_that_never_gets_through_ends_and_says_whether_it_may_have_happened(
    outcome: MetadataOutcome,
) -> None:
    log = OneLog()
    machine = PropertiesMachine("flights", {"retentionMs": "5000"}, token=token(1 << 16))
    tried = 0
    (ask,) = machine.start()
    while not isinstance(ask, m.Failed):
        reply: Any
        if isinstance(ask, m.WriteHead):
            tried += 1
            assert tried <= ATTEMPTS_MAX, "it never ends"
            reply = m.Written(ask.request, outcome)
        else:
            reply = log.reply(ask)
        (ask,) = machine.handle(reply)
    assert tried == ATTEMPTS_MAX
    assert isinstance(ask.error, ConcurrentCommitError)
    assert ask.error.definite is (outcome is MetadataOutcome.CONFLICT)


def test_version_of_a_truncation_is_not_older_than_the_one_before_it() -> None:
    """The clock of the store may go back: another server of it answers."""
    log = OneLog()
    log.commit(staged(1))
    before_ms = log.head.value.commit_time_ms
    log.now_ms = before_ms - 1_000
    log.run(TruncateMachine("flights", offset=50, token=token(log.new_number())))
    assert log.head.value.commit_time_ms > before_ms


@pytest.mark.parametrize("before", [2, STEP_ITEMS_MAX - 1, STEP_ITEMS_MAX])
def test_range_that_a_retained_version_begins_within_stays(before: int) -> None:
    """It needs no additional step if a whole step of ranges is before it."""
    items = tuple(Item(n, 1, 5, 5, 10, 1_000, n * 10, 0) for n in range(before + 1))
    head = OneLog().head.value
    head = replace(head, version=2, end_offset=(before + 1) * 10, items=Paged(recent=items))
    oldest = VersionInterval(2, before * 10 + 5, head.end_offset, 1, token(1))
    step = expiry_step(head, oldest, listing_of(head))
    assert step.unlisted == tuple(range(before))
    assert (step.head.oldest_offset, step.is_last) == (oldest.start_offset, True)
