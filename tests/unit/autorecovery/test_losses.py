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
