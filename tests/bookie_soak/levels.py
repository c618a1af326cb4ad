"""Decides whether a measured quantity stays level. The functions do no I/O and read no clock.

The quantity is measured at a steady rate. Samples before the end of the warm-up do not count. The
other samples are divided into two halves, whose maxima are compared. So a quantity that rises and
falls is level if its peaks are level. A leak makes the last peak higher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES_MIN = 10
"""Minimum number of samples in a half. With fewer samples, nothing is decided."""


class Sample(NamedTuple):
    """One measurement."""

    seconds: float  # since the start
    value: float


class TooFewSamplesError(ValueError):
    """A half of the time has fewer than `SAMPLES_MIN` samples."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The growth from the first half to the second half that is allowed.

    Attributes:
        part: The growth as a part of the maximum of the first half.
        amount: Additional growth, in the unit of the quantity.
    """

    part: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """The maxima of both halves of the time after the warm-up."""

    first: float
    second: float

    def keeps(self, limit: Limit) -> bool:
        """Whether the second half is above the first half by at most the limit."""
        return self.second <= self.first * (1 + limit.part) + limit.amount

    @property
    def growth_percent(self) -> float:
        """The growth from the first half to the second half, in percent."""
        return 100 * (self.second / self.first - 1) if self.first else 0.0


def level_of(samples: Sequence[Sample], warm_up_seconds: float) -> Level:
    """Compare both halves of the time after the warm-up.

    Raises:
        TooFewSamplesError: There are too few samples for a decision.
    """
    after = [sample for sample in samples if sample.seconds >= warm_up_seconds]
    middle = (after[0].seconds + after[-1].seconds) / 2 if after else 0.0
    halves = (
        [sample.value for sample in after if sample.seconds <= middle],
        [sample.value for sample in after if sample.seconds > middle],
    )
    if min(map(len, halves)) < SAMPLES_MIN:
        raise TooFewSamplesError(
            f"{len(halves[0])} and {len(halves[1])} samples in the halves after {warm_up_seconds} "
            f"s, but each half needs {SAMPLES_MIN}; measure for a longer time"
        )
    return Level(*map(max, halves))
