"""How often an operation is attempted, and the pauses between its attempts."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_LIMIT: Final = sys.maxsize
"""Number of attempts of an operation that continues until its caller ends it."""

_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of repeated attempts, and pauses that double up to a limit.

    A caller counts the failures in a row. It also measures the time if there is a time limit.

    Attributes:
        first_delay_ms: Before the second attempt.
        delay_max_ms: No delay is longer (before the host's jitter).
        attempts_max: All attempts, the first included; at least 1.
        time_max_ms: From the first attempt to the beginning of the last one.
    """

    first_delay_ms: int = 50
    delay_max_ms: int = 2_000
    attempts_max: int = 20
    time_max_ms: float = math.inf

    def pause_ms(self, failures: int) -> int:
        """The delay after this number of failures (at least 1), whatever the limits are."""
        return min(self.delay_max_ms, self.first_delay_ms << min(failures - 1, _DOUBLINGS_MAX))

    def delay_ms(self, failures: int, elapsed_ms: float = 0) -> int | None:
        """The delay after this number of failures (at least 1); None to give up."""
        pause_ms = self.pause_ms(failures)
        is_last = failures >= self.attempts_max or elapsed_ms + pause_ms > self.time_max_ms
        return None if is_last else pause_ms

    def spread_ms(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """A random delay between none and the one after this number of failures (at least 1)."""
        return uniform(0, self.pause_ms(failures))

    def pauses_ms(self) -> Iterator[int]:
        """The delay after the first failure, after the second one, and so on without an end."""
        failures = 1
        while True:
            yield self.pause_ms(failures)
            failures += 1


ENDLESS = RetryPolicy(attempts_max=NO_LIMIT)
"""Of a reader that follows a ledger or a log until it is closed."""
