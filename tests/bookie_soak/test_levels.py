"""The rule for levels: peaks may repeat, but must not rise."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.bookie_soak.__main__ import LIMITS
from tests.bookie_soak.levels import (
    SAMPLES_MIN,
    Level,
    Limit,
    Sample,
    TooFewSamplesError,
    level_of,
)
from tests.fixtures.bookie_process import MEBIBYTE

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS, WARM_UP = 600, 60
RSS, DISK = LIMITS["RSS"], LIMITS["disk"]


def measured(value: Callable[[int], float], seconds: int = SECONDS) -> list[Sample]:
    return [Sample(second, value(second)) for second in range(seconds + 1)]


def is_level(value: Callable[[int], float], limit: Limit) -> bool:
    return level_of(measured(value), WARM_UP).keeps(limit)


def sawtooth(period: int) -> Callable[[int], float]:
    return lambda second: MEBIBYTE * (100.0 + 2 * (second % period))


def test_noise_and_a_steep_start_are_level() -> None:
    dice = random.Random(1)
    assert is_level(lambda _: dice.uniform(97, 103), RSS)
    assert is_level(lambda second: 1_000 if second < WARM_UP else 100, RSS)
    assert is_level(lambda second: min(second, WARM_UP), RSS)


@pytest.mark.parametrize("period", [7, 30, 120])
def test_peaks_that_repeat_are_level_and_a_leak_below_them_is_not(period: int) -> None:
    saw = sawtooth(period)
    assert is_level(saw, DISK)
    assert not is_level(lambda second: saw(second) + second * saw(period - 1) / SECONDS, DISK)


@pytest.mark.parametrize("start", [0, 300, 450])
def test_a_leak_of_a_third_is_seen_whenever_it_begins(start: int) -> None:
    def leaking(second: int) -> float:
        return 100.0 + 33 * max(0, second - start) / (SECONDS - start)

    assert not is_level(leaking, RSS)


def test_a_small_leak_of_descriptors_and_of_files_is_seen() -> None:
    for name in ("descriptors", "files"):
        assert not is_level(lambda second: 60 + second // 20, LIMITS[name]), name
        assert is_level(lambda second: 60 + second % 3, LIMITS[name]), name


def test_a_quantity_that_falls_is_level() -> None:
    assert is_level(lambda second: 1_000 - second, RSS)


def test_limit_is_inclusive_and_adds_both_parts() -> None:
    limit = Limit(part=0.1, amount=5)
    assert Level(100, 115).keeps(limit)
    assert not Level(100, 116).keeps(limit)
    assert Level(100, 115).growth_percent == pytest.approx(15)
    assert Level(0, 5).growth_percent == 0


def test_samples_of_a_part_of_the_time_decide_nothing() -> None:
    enough = WARM_UP + 2 * SAMPLES_MIN - 1
    assert level_of(measured(lambda _: 1, enough), WARM_UP) == Level(1, 1)
    for seconds in (0, WARM_UP - 1, enough - 1):
        with pytest.raises(TooFewSamplesError):
            level_of(measured(lambda _: 1, seconds), WARM_UP)
