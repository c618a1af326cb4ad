"""The gaps of outage-test: a gap that has not ended also counts, from its start."""

from __future__ import annotations

from tests.outage_test.gaps import Gap


class Counted:
    """A counter."""

    value = 0

    def __call__(self) -> int:
        return self.value


def test_the_longest_gap_is_the_longest_time_without_an_increase() -> None:
    counter = Counted()
    gap = Gap(counter, 0.0)
    for now_s in (1.0, 4.0, 5.0):
        counter.value += 1
        gap.look(now_s)
    assert gap.take(5.0) == 3.0
    assert gap.take(5.5) == 0.5


def test_a_gap_that_goes_on_counts_from_its_start() -> None:
    gap = Gap(Counted(), 0.0)
    assert gap.take(2.0) == 2.0
    assert gap.take(7.0) == 7.0
