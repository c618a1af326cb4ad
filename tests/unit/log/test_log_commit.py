"""The commit, step by step: the effect of each answer of the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    CommitUnknownError,
    ConcurrentCommitError,
    LedgerLogError,
    LogKindError,
    LogNotFoundError,
    MetadataFormatError,
    MetadataUnavailableError,
    ProducerFencedError,
)
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome as Outcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log import transaction
from ledgerlog_spark.protocol.log.commit.commit import UNKNOWN_MAX, CommitMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.state.records import LogKind, ProducerRecord, WriteMode
from ledgerlog_spark.protocol.log.transaction import ATTEMPTS_MAX, PAGE_WRITES_UNKNOWN_MAX
from tests.unit.log.log_values import OneLog, staged, token

REQUEST = CommitRequest(app="app", run="run", batch_id=3, ranges=(staged(7), staged(8)))


class Session:
    """A commit against `OneLog` in which one answer after another can be replaced."""

    def __init__(self, request: CommitRequest = REQUEST) -> None:
        self.log = OneLog()
        self.log.producer("app", "run")
        self.log.register("app", 7, 8)
        self.machine = CommitMachine("flights", request, token=token(50))
        (self.effect,) = self.machine.start()

    def until(self, kind: type[Any]) -> Any:
        """Answer requests truthfully until the next request of this kind, which stays pending."""
        while not isinstance(self.effect, kind):
            assert not isinstance(self.effect, (m.Finished, m.Failed)), self.effect
            self.answer(self.log.reply(self.effect))
        return self.effect

    def answer(self, reply: Any) -> None:
        (self.effect,) = self.machine.handle(reply)

    @property
    def request(self) -> int:
        """The number of the pending request."""
        assert not isinstance(self.effect, (m.Finished, m.Failed)), self.effect
        return self.effect.request

    @property
    def failure(self) -> LedgerLogError:
        """The error that ended the commit."""
        assert isinstance(self.effect, m.Failed), self.effect
        return self.effect.error

    def written(self, outcome: Outcome) -> None:
        self.answer(m.Written(self.request, outcome))

    def lose_reply(self) -> None:
        self.log.reply(self.until(m.WriteHead))
        self.written(Outcome.UNKNOWN)

    def lose_request(self) -> None:
        self.until(m.WriteHead)
        self.written(Outcome.UNKNOWN)

    def result(self) -> Any:
        return self.until(m.Finished).result

    def error(self) -> Any:
        return self.until(m.Failed).error


def test_commit_changes_head_and_producer_with_one_token() -> None:
    session = Session()
    write = session.until(m.WriteHead)
    assert write.head.token == write.producer.token == write.token == token(50)
    assert (write.producer.last_batch_id, write.producer.runs) == (3, ("run",))
    assert session.result().status is CommitStatus.COMMITTED
    assert session.machine.has_ended


def test_append_without_rows_sends_no_request() -> None:
    (effect,) = CommitMachine("l", replace(REQUEST, ranges=()), token=token(1)).start()
    assert isinstance(effect, m.Finished)
    assert effect.result.status is CommitStatus.NOTHING_TO_COMMIT


def test_lost_reply_is_settled_by_the_token() -> None:
    session = Session()
    session.lose_reply()
    assert isinstance(session.effect, m.Sync)
    result = session.result()
    assert (result.status, result.version) == (CommitStatus.COMMITTED, 1)
    assert session.log.heads_written == 1


def test_lost_request_is_sent_again_exactly_as_it_was() -> None:
    session = Session()
    first = session.until(m.WriteHead)
    session.lose_request()
    again = session.until(m.WriteHead)
    assert replace(again, request=first.request) == first
    assert session.result().status is CommitStatus.COMMITTED


def test_delayed_write_that_lands_before_its_repetition_is_found_by_the_token() -> None:
    session = Session()
    delayed = session.until(m.WriteHead)
    session.written(Outcome.UNKNOWN)
    session.until(m.WriteHead)
    session.log.reply(delayed)
    session.written(Outcome.CONFLICT)
    assert session.result().status is CommitStatus.COMMITTED
    assert session.log.heads_written == 1


def test_unknown_write_overtaken_by_another_producer_is_committed_under_a_new_token() -> None:
    session = Session()
    session.lose_request()
    head = session.log.head
    other = replace(head.value, token=token(99), version=1, end_offset=0)
    session.log.head = Versioned(other, replace(head.version, number=head.version.number + 1))
    write = session.until(m.WriteHead)
    assert write.token == token(51)
    assert session.result().status is CommitStatus.COMMITTED


def test_unknown_write_of_a_batch_that_the_producer_has_by_now_is_committed() -> None:
    session = Session()
    session.lose_request()
    at = session.log.producers["app"]
    record = replace(at.value, last_batch_id=4, token=token(98))
    session.log.producers["app"] = Versioned(record, replace(at.version, number=9))
    assert session.result().status is CommitStatus.ALREADY_COMMITTED


def test_unknown_write_of_a_run_that_was_replaced_is_definitely_not_committed() -> None:
    session = Session()
    session.lose_request()
    at = session.log.producers["app"]
    record = replace(at.value, runs=("run", "later"), epoch=2)
    session.log.producers["app"] = Versioned(record, replace(at.version, number=9))
    error = session.error()
    assert isinstance(error, ProducerFencedError)
    assert error.definite


def test_unknown_write_whose_producer_record_is_gone_stays_unknown() -> None:
    session = Session()
    session.lose_request()
    del session.log.producers["app"]
    error = session.error()
    assert isinstance(error, CommitUnknownError)
    assert (error.definite, error.retriable, error.batch_id) == (False, True, 3)


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.UNKNOWN])
def test_store_that_stays_away_after_an_unknown_write_leaves_it_unknown(outcome: Outcome) -> None:
    session = Session()
    session.lose_request()
    for _ in range(UNKNOWN_MAX):
        assert isinstance(session.effect, m.Sync)
        session.answer(m.Synced(session.effect.request, outcome))
    assert isinstance(session.failure, CommitUnknownError)


def test_store_that_is_away_before_anything_was_sent_is_a_definite_failure() -> None:
    session = Session()
    session.answer(m.Synced(session.request, Outcome.UNAVAILABLE))
    assert isinstance(session.failure, MetadataUnavailableError)
    assert session.failure.definite
    session = Session()
    session.until(m.WriteHead)
    session.written(Outcome.UNAVAILABLE)
    assert isinstance(session.failure, MetadataUnavailableError)


def test_conflict_reads_and_checks_again_under_a_new_token() -> None:
    session = Session()
    session.until(m.WriteHead)
    session.written(Outcome.CONFLICT)
    session.log.registered["app"] = (7,)
    error = session.error()
    assert isinstance(error, ProducerFencedError)
    assert error.ledger_ids == (8,)
    assert session.log.heads_written == 0


def test_commit_that_is_overtaken_all_the_time_gives_up_definitely() -> None:
    session = Session()
    for _ in range(ATTEMPTS_MAX):
        session.until(m.WriteHead)
        session.written(Outcome.CONFLICT)
    assert isinstance(session.failure, ConcurrentCommitError)
    assert (session.failure.definite, session.failure.retriable) == (True, True)


@pytest.mark.parametrize("attempts_max", [3, 4, 5, 6, 7, 8])
def test_every_attempt_of_a_commit_that_gives_up_has_a_token_of_its_own(
    attempts_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "ATTEMPTS_MAX", attempts_max)
    session, tokens = Session(), []
    while not session.machine.has_ended:
        tokens.append(session.until(m.WriteHead).token)
        found = session.log.head
        moved = replace(found.version, number=found.version.number + 1)
        session.log.head = replace(found, version=moved)
        session.written(Outcome.CONFLICT)
        while not isinstance(session.effect, m.WriteHead | m.Failed):
            session.answer(session.log.reply(session.effect))
    assert isinstance(session.error(), ConcurrentCommitError)
    assert len(set(tokens)) == len(tokens) >= attempts_max


@pytest.mark.parametrize("outcome", [Outcome.CONFLICT, Outcome.UNKNOWN])
def test_pages_that_may_be_there_already_are_written_under_another_token(outcome: Outcome) -> None:
    ranges = tuple(staged(7, statistics=bytes(3)) for _ in range(200))
    session = Session(replace(REQUEST, ranges=ranges))
    first = session.until(m.WritePages)
    session.answer(m.PagesWritten(first.request, outcome))
    second = session.until(m.WritePages)
    assert (first.token, second.token) == (token(50), token(51))
    assert session.result().status is CommitStatus.COMMITTED


def test_pages_that_are_never_confirmed_end_the_commit_with_the_error_of_the_store() -> None:
    ranges = tuple(staged(7, statistics=bytes(3)) for _ in range(200))
    session = Session(replace(REQUEST, ranges=ranges))
    for _ in range(PAGE_WRITES_UNKNOWN_MAX + 1):
        pages = session.until(m.WritePages)
        session.answer(m.PagesWritten(pages.request, Outcome.UNKNOWN))
    error = session.error()
    assert isinstance(error, MetadataUnavailableError)
    assert error.definite
    assert error.retriable
    assert session.log.heads_written == 0


def test_unknown_write_whose_pages_were_swept_is_committed_with_new_pages() -> None:
    ranges = tuple(staged(7, statistics=bytes(3)) for _ in range(200))
    session = Session(replace(REQUEST, ranges=ranges))
    session.lose_request()
    session.until(m.WriteHead)
    session.written(Outcome.CONFLICT)
    write = session.until(m.WriteHead)
    assert write.token == token(51)
    assert write.pages_version == Version(1, 0)
    assert session.result().status is CommitStatus.COMMITTED


def test_batch_that_is_there_is_a_no_op_for_a_zombie_too() -> None:
    session = Session()
    session.log.producers["app"] = Versioned(
        ProducerRecord(epoch=2, runs=("run", "later"), last_batch_id=3), Version(1, 5)
    )
    assert session.result().status is CommitStatus.ALREADY_COMMITTED
    assert session.log.heads_written == 0


def test_log_that_cannot_be_committed_to_is_refused() -> None:
    cases: tuple[tuple[dict[str, Any], type[LedgerLogError]], ...] = (
        ({"kind": LogKind.LEADER}, LogKindError),
        ({"writer_features": ("future",)}, MetadataFormatError),
        ({"reader_features": ("future",)}, MetadataFormatError),
        ({"deleted_ms": 1}, LogNotFoundError),
    )
    for change, error in cases:
        session = Session()
        head = session.log.head
        session.log.head = Versioned(replace(head.value, **change), head.version)
        assert isinstance(session.error(), error)


def test_overwrite_without_rows_needs_no_ledger() -> None:
    session = Session(replace(REQUEST, ranges=(), mode=WriteMode.OVERWRITE))
    assert session.result().status is CommitStatus.COMMITTED
    assert session.log.head.value.version == 1


def test_wrong_or_late_replies_are_our_bug() -> None:
    session = Session()
    with pytest.raises(AssertionError):
        session.machine.handle(m.Synced(7, Outcome.OK))
    assert session.result()
    with pytest.raises(AssertionError):
        session.machine.handle(m.Synced(0, Outcome.OK))
