"""Losses across an outage of the store. tests/properties/test_losses.py has random histories."""

from __future__ import annotations

from ledgerlog_spark.protocol.autorecovery.audit.losses import BookieLosses, WaitKind
from ledgerlog_spark.protocol.autorecovery.audit.messages import ClusterState

KNOWN = frozenset("abcde")
LOST = ClusterState(KNOWN - {"b"}, KNOWN, delay_ms=100)


def held(losses: BookieLosses) -> None:
    losses.observe(LOST, ())
    assert losses.wait.kind is WaitKind.HOLD
    losses.wait_is_over()
    losses.observe(LOST, ())


def test_a_loss_that_was_not_handled_waits_again_after_an_outage() -> None:
    losses = BookieLosses(10)
    held(losses)
    assert losses.wait.kind is WaitKind.DELAY
    losses.wait_is_over()
    losses.observe(LOST, ())
    assert losses.ripe == {"b"}
    losses.store_was_away()
    held(losses)
    assert losses.ripe == frozenset()
    assert losses.wait.kind is WaitKind.DELAY


def test_a_handled_loss_is_marked_again_after_an_outage() -> None:
    losses = BookieLosses(10)
    held(losses)
    losses.wait_is_over()
    losses.observe(LOST, ())
    losses.handled({"b"})
    assert losses.ripe == frozenset()
    losses.store_was_away()
    held(losses)
    assert losses.ripe == {"b"}


def test_each_storm_is_held_once_for_the_same_bookies() -> None:
    storm = ClusterState(frozenset("ab"), KNOWN, delay_ms=100)
    losses = BookieLosses(10)
    losses.observe(storm, ())
    losses.wait_is_over()
    losses.observe(storm, ())
    assert losses.ripe == KNOWN - {"a", "b"}


FOUR = frozenset("abcd")


def lost_of_four(lost: str, writes: int = 0) -> ClusterState:
    return ClusterState(FOUR - set(lost), FOUR, delay_ms=100, delay_writes=writes)


def calm() -> BookieLosses:
    """Return losses of four bookies after the hold that follows the election."""
    losses = BookieLosses(10)
    losses.observe(lost_of_four(""), ())
    losses.wait_is_over()
    losses.observe(lost_of_four(""), ())
    assert losses.wait.kind is WaitKind.NONE
    return losses


def test_a_bookie_that_returned_during_a_hold_is_held_for_its_whole_time() -> None:
    losses = calm()
    for lost in ("ab", "bc", "ab"):
        losses.observe(lost_of_four(lost), ())
        assert losses.wait.kind is WaitKind.HOLD
    losses.wait_is_over()
    losses.observe(lost_of_four("ab"), ())
    assert losses.ripe == frozenset()
    assert losses.wait.kind is WaitKind.HOLD


def test_a_bookie_that_returned_after_a_hold_is_held_again_in_the_next_storm() -> None:
    losses = calm()
    losses.observe(lost_of_four("ab"), ())
    losses.wait_is_over()
    losses.observe(lost_of_four("ab"), ())
    assert losses.ripe == {"a", "b"}
    losses.handled("ab")
    losses.observe(lost_of_four("a"), ())
    losses.observe(lost_of_four("ab"), ())
    assert losses.wait.kind is WaitKind.HOLD


def test_the_request_for_an_audit_ends_only_the_present_delay() -> None:
    losses = calm()
    losses.observe(lost_of_four("b"), ())
    assert losses.wait.kind is WaitKind.DELAY
    losses.observe(lost_of_four("b", writes=1), ())
    assert losses.ripe == {"b"}
    losses.observe(lost_of_four("", writes=1), ())
    losses.observe(lost_of_four("b", writes=1), ())
    assert losses.ripe == frozenset()
    assert losses.wait.kind is WaitKind.DELAY


def test_a_bookie_that_returned_during_its_walk_is_no_loss() -> None:
    losses = calm()
    losses.handled("b")
    assert losses.lost == ()


def test_the_request_for_an_audit_marks_handled_losses_again() -> None:
    losses = calm()
    losses.observe(lost_of_four("b", writes=1), ())
    losses.observe(lost_of_four("b", writes=2), ())
    assert losses.ripe == {"b"}
    losses.handled("b")
    assert losses.ripe == frozenset()
    losses.observe(lost_of_four("b", writes=3), ())
    assert losses.ripe == {"b"}
    assert losses.take_wanted_walk()
