"""The limits and ends of the writer that no transcript shows."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Quorum, Version, Versioned
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.ensemble_change import FailedBookies
from ledgerlog_spark.protocol.ledger.write.settings import WriterPhase, WriterSettings
from ledgerlog_spark.protocol.ledger.write.writer import ADDING, LedgerWriter
from ledgerlog_spark.retry import RetryPolicy
from tests.fixtures.kinds import all_of, of, only

ENSEMBLE = ("b0", "b1", "b2")
CREATED = Versioned(LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ENSEMBLE),)), Version(1, 0))


def writer(**settings: Any) -> LedgerWriter:
    return LedgerWriter(ledger_id=1, created=CREATED, settings=WriterSettings(**settings))


def fail_member(one: LedgerWriter, sends: list[m.SendAdd], code: Code) -> list[m.Effect]:
    return one.handle(m.AddReplied(sends[2].request, code))


def test_an_add_beyond_the_window_is_refused_and_changes_nothing() -> None:
    one = writer(window=Window(entries_max=1, size_bytes_max=100))
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    assert not one.can_add
    with pytest.raises(LocalProtocolError, match="window is full"):
        one.handle(m.AddRequested((b"x",)))
    assert one.next_entry_id == 1
    for send in sends:
        one.handle(m.AddReplied(send.request, Code.OK))
    assert one.can_add


@pytest.mark.parametrize("payloads", [(), (b"x",) * 4097, (b"x" * 5_300_000,)])
def test_a_run_that_no_frame_holds_is_refused(payloads: tuple[bytes, ...]) -> None:
    one = writer()
    with pytest.raises(LocalProtocolError, match="split it"):
        one.handle(m.AddRequested(payloads))
    assert one.next_entry_id == 0


def test_a_closed_record_cannot_be_written() -> None:
    closed = Versioned(CREATED.value.closed(last_entry_id=0, length=1), Version(1, 1))
    with pytest.raises(LocalProtocolError, match="create another"):
        LedgerWriter(ledger_id=1, created=closed)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (Code.FENCED, m.Failure.FENCED),
        (Code.UNAUTHORIZED, m.Failure.UNAUTHORIZED),
        (Code.BAD_REQUEST, m.Failure.BAD_REQUEST),
    ],
)
def test_a_fatal_answer_withdraws_everything_as_unknown(code: Code, failure: m.Failure) -> None:
    one = writer()
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    (failed,) = fail_member(one, sends, code)
    assert failed == m.LedgerFailed(
        failure,
        is_definite=False,
        last_add_confirmed=-1,
        first_unknown_entry_id=0,
        bookie_ids=("b2",),
    )
    assert not one.can_add
    assert one.phase not in ADDING


@pytest.mark.parametrize(
    "code",
    [
        c
        for c in Code
        if c not in (Code.OK, Code.FENCED, Code.UNAUTHORIZED, Code.BAD_REQUEST, Code.BUSY)
    ],
)
def test_every_other_answer_fails_only_that_bookie(code: Code) -> None:
    one = writer()
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    assert of(m.ListBookies, fail_member(one, sends, code))
    assert one.phase is WriterPhase.LISTING


def test_the_oldest_run_times_out_and_the_ledger_can_still_be_closed_at_its_end() -> None:
    one = writer(add_quorum_timeout_ms=100)
    effects = one.handle(m.AddRequested((b"x",)))
    (timer,) = of(m.StartTimer, effects)
    sends = of(m.SendAdd, effects)
    for send in sends[:2]:
        one.handle(m.AddReplied(send.request, Code.OK))
    one.handle(m.AddRequested((b"y",)))
    (timer,) = of(m.StartTimer, one.handle(m.TimerFired(timer.request)))
    (failed,) = one.handle(m.TimerFired(timer.request))
    assert isinstance(failed, m.LedgerFailed)
    assert (failed.failure, failed.entry_id) == (m.Failure.ADD_TIMEOUT, 1)
    cas = only(m.CasMetadata, one.handle(m.CloseRequested()))
    assert isinstance(cas, m.CasMetadata)
    assert (cas.metadata.last_entry_id, cas.metadata.length) == (0, 1)


def test_it_gives_up_when_failed_bookies_leave_no_ack_quorum() -> None:
    policy = RetryPolicy(first_delay_ms=10, attempts_max=2)
    one = writer(replacement=policy)
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    listing = only(m.ListBookies, fail_member(one, sends, Code.UNAVAILABLE))
    one.handle(m.AddReplied(sends[1].request, Code.TIMEOUT))
    missing, timer = one.handle(m.BookiesListed(listing.request, ("b0",)))
    assert missing == m.NoReplacement((("b1", Code.TIMEOUT), ("b2", Code.UNAVAILABLE)), 3)
    assert isinstance(timer, m.StartTimer)
    listing = only(m.ListBookies, one.handle(m.TimerFired(timer.request)))
    (failed,) = one.handle(m.BookiesListed(listing.request, ("b0",)))
    assert isinstance(failed, m.LedgerFailed)
    assert failed.failure is m.Failure.NOT_ENOUGH_BOOKIES
    assert (failed.wanted, failed.available, failed.bookie_ids) == (3, 1, ("b1", "b2"))
    assert failed.codes == (("b2", Code.UNAVAILABLE), ("b1", Code.TIMEOUT))


def test_a_failure_names_the_answer_of_a_bookie_that_stored_other_runs_after_it() -> None:
    one = writer(replacement=RetryPolicy(first_delay_ms=10, attempts_max=2))
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    later = all_of(m.SendAdd, one.handle(m.AddRequested((b"y",))))
    listing = only(m.ListBookies, fail_member(one, sends, Code.TIMEOUT))
    one.handle(m.AddReplied(sends[1].request, Code.UNAVAILABLE))
    (late,) = [send for send in later if send.bookie_id == "b2"]
    one.handle(m.AddReplied(late.request, Code.OK))
    missing, timer = one.handle(m.BookiesListed(listing.request, ("b0",)))
    assert missing == m.NoReplacement((("b1", Code.UNAVAILABLE), ("b2", Code.TIMEOUT)), 3)
    assert isinstance(timer, m.StartTimer)
    listing = only(m.ListBookies, one.handle(m.TimerFired(timer.request)))
    (failed,) = one.handle(m.BookiesListed(listing.request, ("b0",)))
    assert isinstance(failed, m.LedgerFailed)
    assert dict(failed.codes) == {"b1": Code.UNAVAILABLE, "b2": Code.TIMEOUT}


@pytest.mark.parametrize(
    ("size", "registered", "dead"),
    [
        (2, ("b0", "b1", "b2"), {"b1", "b2"}),
        (2, ("b0", "b1", "b2"), {"b0", "b1", "b2"}),
        (3, ("b0", "b1", "b2", "b3"), {"b0", "b1", "b2", "b3"}),
        (3, ("b0", "b1", "b2", "b3", "b4"), {"b0", "b1", "b2", "b3", "b4"}),
        (3, ("b0", "b1", "b2", "b3"), {"b1", "b2", "b3"}),
    ],
)
def test_dead_bookies_that_are_still_registered_do_not_use_up_the_changes_of_a_ledger(
    size: int, registered: tuple[str, ...], dead: set[str]
) -> None:
    first = Fragment(0, registered[:size])
    created = LedgerMetadata(Quorum(size, size, min(size, 2)), (first,))
    one = LedgerWriter(ledger_id=1, created=Versioned(created, Version(1, 0)))
    waited_ms = 0
    number = 0
    effects = deque(one.handle(m.AddRequested((b"x",))))
    while not isinstance(effect := effects.popleft(), m.LedgerFailed):
        if isinstance(effect, m.ListBookies):
            reply: m.Event = m.BookiesListed(effect.request, registered)
        elif isinstance(effect, m.CasMetadata):
            number += 1
            stored = Versioned(effect.metadata, Version(1, number))
            reply = m.MetadataWritten(effect.request, m.MetadataOutcome.OK, stored)
        elif isinstance(effect, m.SendAdd):
            code = Code.UNAVAILABLE if effect.bookie_id in dead else Code.OK
            reply = m.AddReplied(effect.request, code)
        elif isinstance(effect, m.StartTimer):
            waited_ms += effect.delay_ms
            reply = m.TimerFired(effect.request)
        else:
            continue
        effects += one.handle(reply)
    assert effect.failure is m.Failure.NOT_ENOUGH_BOOKIES
    assert one.ensemble_changes < 250
    assert {code for bookie, code in effect.codes if bookie in dead} == {Code.UNAVAILABLE}
    assert waited_ms > 5_000  # a bookie that restarts in this time is found


def test_a_failure_names_the_bookies_that_fail_now_in_the_order_of_their_failures() -> None:
    one = writer()
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    listing = only(m.ListBookies, fail_member(one, sends, Code.TIMEOUT))
    cas = only(m.CasMetadata, one.handle(m.BookiesListed(listing.request, (*ENSEMBLE, "b3"))))
    written = Versioned(cas.metadata, Version(1, 1))
    effects = one.handle(m.MetadataWritten(cas.request, m.MetadataOutcome.OK, written))
    assert one.metadata.value.last_fragment.ensemble == ("b0", "b1", "b3")
    resent = [effect for effect in effects if isinstance(effect, m.SendAdd)]
    one.handle(m.AddReplied(resent[0].request, Code.UNAVAILABLE))
    failed = one.handle(m.AddReplied(sends[0].request, Code.UNAUTHORIZED))[-1]
    assert isinstance(failed, m.LedgerFailed)
    assert failed.codes == (("b3", Code.UNAVAILABLE),)  # b2 was replaced, and does not fail now


def test_a_bookie_that_fails_again_is_the_last_one_of_those_that_failed() -> None:
    failed = FailedBookies()
    failed.report(0, "b0", Code.TIMEOUT)
    failed.report(1, "b1", Code.READ_ONLY)
    failed.report(0, "b0", Code.UNAVAILABLE)
    assert list(failed.codes.items()) == [("b1", Code.READ_ONLY), ("b0", Code.UNAVAILABLE)]


def test_it_changes_its_ensemble_at_most_as_often_as_allowed() -> None:
    one = writer(ensemble_changes_max=1)
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    listing = only(m.ListBookies, fail_member(one, sends, Code.TIMEOUT))
    cas = only(m.CasMetadata, one.handle(m.BookiesListed(listing.request, ("b3",))))
    stored = Versioned(cas.metadata, Version(1, 1))
    changed = one.handle(m.MetadataWritten(cas.request, m.MetadataOutcome.OK, stored))
    (again,) = of(m.SendAdd, changed)
    (failed,) = one.handle(m.AddReplied(again.request, Code.READ_ONLY))
    assert isinstance(failed, m.LedgerFailed)
    assert failed.failure is m.Failure.TOO_MANY_CHANGES
    assert failed.codes == (("b3", Code.READ_ONLY),)


def test_where_no_bookie_is_replaced_the_first_one_that_fails_ends_it() -> None:
    one = writer(ensemble_changes_max=0)
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    (failed,) = fail_member(one, sends, Code.TIMEOUT)
    assert isinstance(failed, m.LedgerFailed)
    assert failed.failure is m.Failure.BOOKIE_FAILED
    assert failed.codes == (("b2", Code.TIMEOUT),)


def test_a_failure_reported_after_confirmation_still_replaces_the_bookie() -> None:
    one = writer()
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    for send in sends[:2]:
        one.handle(m.AddReplied(send.request, Code.OK))
    assert one.last_add_confirmed == 0
    listing = only(m.ListBookies, fail_member(one, sends, Code.TIMEOUT))
    cas = only(m.CasMetadata, one.handle(m.BookiesListed(listing.request, ("b3",))))
    assert cas.metadata.fragments == (Fragment(0, ENSEMBLE), Fragment(1, ("b0", "b1", "b3")))


def test_a_close_overtakes_an_ensemble_change_and_stays_at_the_confirmed_end() -> None:
    one = writer()
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    listing = only(m.ListBookies, fail_member(one, sends, Code.TIMEOUT))
    change = only(m.CasMetadata, one.handle(m.BookiesListed(listing.request, ("b3",))))
    close = only(m.CasMetadata, one.handle(m.CloseRequested()))
    assert isinstance(close, m.CasMetadata)
    assert close.version == change.version
    changed = Versioned(change.metadata, Version(1, 1))
    assert one.handle(m.MetadataWritten(change.request, m.MetadataOutcome.OK, changed)) == []
    load = only(
        m.LoadMetadata, one.handle(m.MetadataWritten(close.request, m.MetadataOutcome.CONFLICT))
    )
    again = only(
        m.CasMetadata, one.handle(m.MetadataLoaded(load.request, m.MetadataOutcome.OK, changed))
    )
    assert (again.version, again.metadata.last_entry_id) == (Version(1, 1), -1)
    closed = Versioned(again.metadata, Version(1, 2))
    written = m.MetadataWritten(again.request, m.MetadataOutcome.OK, closed)
    assert one.handle(written) == [m.LedgerClosed(closed)]


@pytest.mark.parametrize(
    ("last_entry_id", "length", "is_same"), [(0, 1, True), (0, 2, False), (1, 1, False)]
)
def test_a_close_that_finds_the_ledger_closed_compares_the_end(
    last_entry_id: int, length: int, is_same: bool
) -> None:
    one = writer()
    for send in all_of(m.SendAdd, one.handle(m.AddRequested((b"x",)))):
        one.handle(m.AddReplied(send.request, Code.OK))
    cas = only(m.CasMetadata, one.handle(m.CloseRequested()))
    load = only(
        m.LoadMetadata, one.handle(m.MetadataWritten(cas.request, m.MetadataOutcome.CONFLICT))
    )
    record = CREATED.value.closed(last_entry_id=last_entry_id, length=length)
    stored = Versioned(record, Version(1, 3))
    (end,) = one.handle(m.MetadataLoaded(load.request, m.MetadataOutcome.OK, stored))
    if is_same:
        assert end == m.LedgerClosed(stored)
    else:
        assert isinstance(end, m.LedgerFailed)
        assert end.failure is m.Failure.CLOSED


def test_a_store_that_stays_away_ends_the_writer_without_sending_to_the_replacement() -> None:
    one = writer(metadata=RetryPolicy(attempts_max=1))
    sends = all_of(m.SendAdd, one.handle(m.AddRequested((b"x",))))
    listing = only(m.ListBookies, fail_member(one, sends, Code.TIMEOUT))
    cas = only(m.CasMetadata, one.handle(m.BookiesListed(listing.request, ("b3",))))
    (failed,) = one.handle(m.MetadataWritten(cas.request, m.MetadataOutcome.UNAVAILABLE))
    assert isinstance(failed, m.LedgerFailed)
    assert failed.failure is m.Failure.METADATA_UNAVAILABLE
    assert failed.is_retriable
