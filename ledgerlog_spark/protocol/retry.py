"""Number of attempts of a machine, and the delays between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Doubling delays with an upper bound.

    Attributes:
        delay_max_ms: No delay is longer (before the host's jitter).
        attempts_max: All attempts, the first included; at least 1.
    """

    first_delay_ms: int = 50
    delay_max_ms: int = 2_000
    attempts_max: int = 20

    def delay_ms(self, attempts: int) -> int | None:
        """How long to wait after `attempts` failed attempts (at least 1); None to give up."""
        if attempts >= self.attempts_max:
            return None
        return min(self.delay_max_ms, self.first_delay_ms << min(attempts - 1, 30))
