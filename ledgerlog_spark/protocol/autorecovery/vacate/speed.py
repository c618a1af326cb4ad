"""Computes the rate of a vacation, and its remaining time (AUTORECOVERY.md#Y9)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SAMPLES_MAX = 64
WINDOW_SECONDS = 120


@dataclass(frozen=True, slots=True)
class VacatingRate:
    """The rate of the moves of a vacation.

    Attributes:
        ledgers_per_s: Number of ledgers that move in a second.
        bytes_per_s: Number of bytes that move in a second.
        left_s: Estimated remaining time in seconds; None if nothing moved in the last two minutes.
    """

    ledgers_per_s: float
    bytes_per_s: float
    left_s: float | None


class Speed:
    """Measures the progress over the last two minutes, by the monotonic clock of the caller."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=SAMPLES_MAX)

    def note(self, now_s: float, ledgers_left: int, bytes_left: int) -> VacatingRate:
        """Add a measurement, and return the rate.

        If the numbers have increased, because another walk found more ledgers, older measurements
        are dropped.
        """
        last = self._samples[-1] if self._samples else None
        if last is not None and (ledgers_left > last[1] or bytes_left > last[2]):
            self._samples.clear()
        self._samples.append((now_s, ledgers_left, bytes_left))
        while len(self._samples) > 1 and now_s - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()
        first_s, ledgers, size_bytes = self._samples[0]
        seconds = now_s - first_s
        if seconds <= 0:
            return VacatingRate(0.0, 0.0, None)
        ledgers_per_s = (ledgers - ledgers_left) / seconds
        bytes_per_s = (size_bytes - bytes_left) / seconds
        parts = ((bytes_left, bytes_per_s), (ledgers_left, ledgers_per_s))
        times = [left / rate for left, rate in parts if rate > 0]
        return VacatingRate(ledgers_per_s, bytes_per_s, max(times) if times else None)
