"""Attempts of a leader at one request: the pauses, and the end of the attempts."""

from __future__ import annotations

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.protocol.leader.attempts import Attempts
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy
from tests.fixtures.kinds import now

POLICY = RetryPolicy(first_delay_ms=10, delay_max_ms=40, attempts_max=4)


def failed(attempts: Attempts) -> int:
    """The pause after one more failed attempt."""
    attempts.begin()
    timer = attempts.fail(MetadataUnavailableError("away"))
    assert not attempts.is_idle
    assert attempts.wake(timer.request)
    return timer.delay_ms


def test_pauses_grow_and_attempts_in_a_row_are_counted() -> None:
    attempts = Attempts(POLICY, RequestNumbers())
    assert [failed(attempts) for _ in range(3)] == [10, 20, 40]
    assert not now(attempts.is_hopeless)
    assert failed(attempts) == 40
    assert attempts.is_hopeless
    assert failed(attempts) == 40, "who needs it nevertheless goes on"


def test_an_attempt_that_succeeds_begins_the_count_anew() -> None:
    attempts = Attempts(POLICY, RequestNumbers())
    for _ in range(3):
        failed(attempts)
    attempts.begin()
    attempts.succeed()
    assert attempts.error is None
    assert failed(attempts) == 10
    assert not attempts.is_hopeless
