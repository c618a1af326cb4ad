"""Commits that start from the kept state of the last commit, and their requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import ProducerFencedError, StaleCheckpointError
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome as Outcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind, Joined
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.result import CommitResult, CommitStatus, KnownLog
from ledgerlog_spark.protocol.log.state.records import ProducerRecord, WriteMode
from tests.unit.log.log_values import OneLog, staged, token


class CountingLog(OneLog):
    """Records its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.producer("app", "run")
        self.register("app", 7, 8)
        self.asked: list[str] = []

    def reply(self, ask: Any) -> Any:
        self.asked.append(type(ask).__name__)
        return super().reply(ask)

    def refuses_writes_at_old_versions(self, ask: Any) -> bool:
        is_old = ask.head_version != self.head.version
        return is_old or ask.producer_version != self.producers["app"].version

    def commit_known(
        self, batch_id: int, known: KnownLog | None, *ledgers: int, **how: Any
    ) -> tuple[CommitResult, KnownLog | None]:
        request = CommitRequest(
            app="app", run="run", batch_id=batch_id, ranges=tuple(map(staged, ledgers)), **how
        )
        machine = CommitMachine(
            "flights", request, token=token(batch_id << 8), known=known, now_ms=self.now_ms
        )
        self.asked.clear()
        (effect,) = machine.start()
        while not isinstance(effect, (m.Finished, m.Failed)):
            if isinstance(effect, m.WriteHead) and self.refuses_writes_at_old_versions(effect):
                self.asked.append("refused")
                reply: Any = m.Written(effect.request, Outcome.CONFLICT)
            else:
                reply = self.reply(effect)
            (effect,) = machine.handle(reply)
        if isinstance(effect, m.Failed):
            raise effect.error
        return effect.result, machine.known_after


EVERYTHING = ["Sync", "ReadHead", "ReadProducer", "ReadRegistered", "WriteHead"]


def test_the_second_batch_of_the_same_ledgers_is_one_request() -> None:
    log = CountingLog()
    _, known = log.commit_known(1, None, 7, 8)
    assert log.asked == EVERYTHING
    for batch_id in range(2, 12):
        result, known = log.commit_known(batch_id, known, 8, 7)
        assert (log.asked, result.version) == (["WriteHead"], batch_id)
    assert log.producers["app"].value.last_batch_id == 11


def test_a_new_ledger_costs_one_request_more() -> None:
    log = CountingLog()
    _, known = log.commit_known(1, None, 7)
    log.register("app", 9)
    _, known = log.commit_known(2, known, 7, 9)
    assert log.asked == ["ReadRegistered", "WriteHead"]
    log.commit_known(3, known, 9)
    assert log.asked == ["WriteHead"]


def test_of_a_log_that_others_changed_the_head_alone_is_read_again() -> None:
    log = CountingLog()
    _, known = log.commit_known(1, None, 7)
    log.head = Versioned(log.head.value, replace(log.head.version, number=2))
    result, _ = log.commit_known(2, known, 7)
    assert log.asked == ["refused", "ReadHead", "WriteHead"]
    assert result.version == 2


def test_a_producer_record_that_an_own_commit_changed_is_read_again() -> None:
    log = CountingLog()
    _, known = log.commit_known(1, None, 7)
    log.commit_known(2, None, 8)
    result, _ = log.commit_known(3, known, 7)
    assert log.asked == ["refused", "ReadHead", "refused", "ReadHead", *EVERYTHING]
    assert result == CommitResult(CommitStatus.COMMITTED, 3, 300)


def test_a_producer_record_that_the_sweeper_changed_is_read_again() -> None:
    log = CountingLog()
    _, known = log.commit_known(1, None, 7)
    found = log.producers["app"]
    moved = replace(found.version, number=found.version.number + 1)
    log.producers["app"] = Versioned(found.value, moved)
    log.registered["app"] = (8,)
    with pytest.raises(ProducerFencedError, match="expired"):
        log.commit_known(2, known, 7)
    assert log.asked == ["refused", "ReadHead", *EVERYTHING[:-1]]


def test_an_overwrite_that_old_records_refuse_is_looked_at_again() -> None:
    log = CountingLog()
    _, known = log.commit_known(1, None, 7)
    log.commit_known(2, None, 8)
    result, _ = log.commit_known(3, known, 7, mode=WriteMode.OVERWRITE, planned_version=2)
    assert log.asked == EVERYTHING
    assert result.version == 3


@pytest.mark.parametrize(
    "record", [ProducerRecord(2, ("run", "other")), ProducerRecord(1, ("run",), 5)]
)
def test_what_is_known_of_another_run_or_of_this_batch_is_not_started_from(
    record: ProducerRecord,
) -> None:
    log = CountingLog()
    known = KnownLog(log.head, Versioned(record, Version(1, 0)), frozenset({7}))
    log.commit_known(4, known, 7)
    assert log.asked == EVERYTHING


def joined(log: CountingLog, run: str, **how: Any) -> Joined:
    log.asked.clear()
    machine = EpochMachine("flights", app="app", run=run, batch_id=9, kind=JobKind.STREAM, **how)
    result: Joined = log.run(machine)
    return result


def test_a_run_that_expects_to_be_in_its_place_reads_once() -> None:
    log = CountingLog()
    found = joined(log, "run", syncs_first=False)
    assert (log.asked, found.epoch, found.took_over) == (["ReadProducer"], 1, False)


def test_a_run_that_is_not_in_its_place_looks_again_after_a_sync() -> None:
    log = CountingLog()
    found = joined(log, "later", syncs_first=False)
    write = ["WriteProducer", "Sync", "ReadProducer"]
    assert log.asked == ["ReadProducer", "Sync", "ReadProducer", *write]
    assert (found.epoch, found.took_over) == (2, True)


def test_another_query_of_the_same_app_differs_from_a_replay_of_its_last_batch() -> None:
    log = CountingLog()
    log.producers["app"] = Versioned(ProducerRecord(1, ("first/1",), 9), Version(1, 0))
    assert joined(log, "first/2").last_batch_id == 9
    for last_batch_id in (9, 3):  # the query begins with batch 9
        record = ProducerRecord(1, ("first/1", "first/2"), last_batch_id)
        log.producers["app"] = Versioned(record, Version(1, last_batch_id))
        with pytest.raises(StaleCheckpointError, match="belongs to another query"):
            joined(log, "second/1")
    assert log.producers["app"].value.current_run == "first/2"
