"""The time for which a source retries (ledgerlog_spark.datasource.stream.watched_logs)."""

from __future__ import annotations

import pytest

from ledgerlog_spark.datasource.stream import watched_logs
from ledgerlog_spark.datasource.stream.watched_logs import PATIENCE, patiently
from ledgerlog_spark.errors import LogNotFoundError, MetadataUnavailableError


class Clock:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(watched_logs, "time", made)
    return made


class Asked:
    def __init__(self, failures: int, error: type[Exception] = MetadataUnavailableError) -> None:
        self.failures = failures
        self.error = error
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        if self.times <= self.failures:
            raise self.error("gone")
        return self.times


def test_a_failure_that_passes_is_not_noticed(clock: Clock) -> None:
    assert patiently(Asked(6)) == 7
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]


def test_a_failure_that_stays_is_raised_within_the_time(clock: Clock) -> None:
    asked = Asked(10**9)
    with pytest.raises(MetadataUnavailableError):
        patiently(asked)
    longest = PATIENCE.time_max_ms / 1e3
    assert longest - 2 <= clock.now - 100 <= longest
    assert asked.times == len(clock.pauses) + 1 < 50


def test_a_failure_that_cannot_pass_is_raised_at_once(clock: Clock) -> None:
    with pytest.raises(LogNotFoundError):
        patiently(Asked(1, LogNotFoundError))
    assert not clock.pauses
