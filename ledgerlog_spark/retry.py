"""Limits of the attempts of an operation, and the pauses between these attempts."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_LIMIT: Final = sys.maxsize
"""Value for `attempts_max` if only the caller limits the number of attempts."""

_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of repeated attempts, and the pauses, which double up to a maximum.

    The caller counts successive failures, and measures the time if there is a time limit.

    Attributes:
        first_delay_ms: Delay before the second attempt.
        delay_max_ms: Maximum delay. The host may add jitter to the delay.
        attempts_max: Maximum number of attempts, including the first attempt; at least 1.
        time_max_ms: Maximum time from the first attempt to the beginning of the last attempt.
    """

    first_delay_ms: int = 50
    delay_max_ms: int = 2_000
    attempts_max: int = 20
    time_max_ms: float = math.inf

    def pause_ms(self, failures: int) -> int:
        """Return the delay after `failures` failures. `failures` must be at least 1.

        The limits of attempts and of time are ignored.
        """
        return min(self.delay_max_ms, self.first_delay_ms << min(failures - 1, _DOUBLINGS_MAX))

    def delay_ms(self, failures: int, elapsed_ms: float = 0) -> int | None:
        """Return the delay of `pause_ms`; None if the limit of attempts or of time is reached."""
        pause_ms = self.pause_ms(failures)
        is_last = failures >= self.attempts_max or elapsed_ms + pause_ms > self.time_max_ms
        return None if is_last else pause_ms

    def spread_ms(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """Return a random delay between 0 and `pause_ms(failures)`.

        `failures` must be at least 1.
        """
        return uniform(0, self.pause_ms(failures))

    def pauses_ms(self) -> Iterator[int]:
        """Yield the delay after the first failure, after the second failure, and so on."""
        failures = 1
        while True:
            yield self.pause_ms(failures)
            failures += 1


ENDLESS = RetryPolicy(attempts_max=NO_LIMIT)
"""The policy of a reader that follows a ledger or a log.

The number of its attempts has no limit."""
