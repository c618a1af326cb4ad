"""Limits and pauses of repeated attempts (ledgerlog_spark.retry)."""

from __future__ import annotations

from itertools import islice

import pytest

from ledgerlog_spark.retry import ENDLESS, RetryPolicy

POLICY = RetryPolicy(first_delay_ms=10, delay_max_ms=35, attempts_max=4, time_max_ms=100)


def test_pauses_double_up_to_the_longest_one() -> None:
    assert [POLICY.pause_ms(failures) for failures in (1, 2, 3, 4, 10**6)] == [10, 20, 35, 35, 35]
    assert list(islice(POLICY.pauses_ms(), 5)) == [10, 20, 35, 35, 35]


@pytest.mark.parametrize(
    ("failures", "elapsed_ms", "delay_ms"),
    [
        (1, 0, 10),
        (3, 0, 35),
        (4, 0, None),
        (5, 0, None),
        (1, 90, 10),
        (1, 90.5, None),
        (3, 66, None),
    ],
)
def test_attempts_end_with_their_number_or_their_time(
    failures: int, elapsed_ms: float, delay_ms: int | None
) -> None:
    assert POLICY.delay_ms(failures, elapsed_ms) == delay_ms


def test_endless_attempts_have_no_limit() -> None:
    assert ENDLESS.delay_ms(10**9, 1e12) == ENDLESS.delay_max_ms


def test_a_random_pause_lies_between_none_and_the_whole_one() -> None:
    assert POLICY.spread_ms(2, lambda least, most: 100 * least + most) == 20
