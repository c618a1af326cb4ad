"""The bookies that failed a ledger recently, and the effect of a wait."""

from __future__ import annotations

from ledgerlog_spark.model import Code, Quorum
from ledgerlog_spark.protocol.ledger.messages import BookiesListed
from ledgerlog_spark.protocol.ledger.write.ensemble_change import (
    FAILURES_IN_A_ROW_MAX,
    FailedBookies,
)

ENSEMBLE = ("b0", "b1", "b2")
QUORUM = Quorum(3, 3, 2)
LISTED = BookiesListed(1, ("b3",))


def failed_often(bookie_id: str) -> FailedBookies:
    """The bookie took index 0 as often as allowed, and failed each time. Then b0 failed there."""
    bookies = FailedBookies()
    for _ in range(FAILURES_IN_A_ROW_MAX):
        bookies.report(0, bookie_id, Code.UNAVAILABLE)
        bookies.settle(0)
    bookies.report(0, "b0", Code.UNAVAILABLE)
    return bookies


def test_who_failed_too_often_is_tried_again_after_a_wait() -> None:
    bookies = failed_often("b3")
    assert bookies.choose(QUORUM, ENSEMBLE, LISTED).unreplaced == (0,)
    bookies.wait(0)
    bookies.waits_are_over()
    assert bookies.choose(QUORUM, ENSEMBLE, LISTED).ensemble == ("b3", "b1", "b2")


def test_who_failed_too_often_is_tried_again_of_another_ensemble() -> None:
    bookies = failed_often("b3")
    bookies.forget_indexes()
    bookies.report(1, "b1", Code.UNAVAILABLE)
    assert bookies.choose(QUORUM, ENSEMBLE, LISTED).ensemble == ("b0", "b3", "b2")


def test_an_index_that_was_settled_waits_no_longer() -> None:
    bookies = FailedBookies()
    bookies.report(0, "b0", Code.UNAVAILABLE)
    bookies.wait(0)
    bookies.settle(0)
    bookies.waits_are_over()
    assert not bookies.has_waited(0)
    bookies.report(0, "b3", Code.UNAVAILABLE)
    bookies.wait(0)
    assert bookies.rounds == {0: 2}


def test_an_answer_ends_a_reported_failure_and_counts_waits_anew() -> None:
    bookies = FailedBookies()
    bookies.report(0, "b0", Code.UNAVAILABLE)
    bookies.report(1, "b1", Code.TIMEOUT)
    bookies.wait(0)
    bookies.waits_are_over()
    bookies.settle(0)
    bookies.recovered(0, "b0")
    assert bookies.codes == {"b1": Code.TIMEOUT}
    bookies.report(0, "b0", Code.IO_ERROR)
    bookies.wait(0)
    assert bookies.rounds == {0: 1}


def test_the_newest_answer_is_last_and_answers_before_other_entries_are_first() -> None:
    bookies = FailedBookies()
    bookies.report(0, "b0", Code.UNAVAILABLE)
    bookies.report(1, "b1", Code.TIMEOUT)
    bookies.report(2, "b2", Code.IO_ERROR)
    bookies.settle(0)  # b0 is tried again, and has not answered
    bookies.recovered(2, "b2")  # b2 answered for an entry that was sent before
    assert bookies.answers == (
        ("b2", Code.IO_ERROR),
        ("b0", Code.UNAVAILABLE),
        ("b1", Code.TIMEOUT),
    )
