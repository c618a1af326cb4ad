"""The byte rate of a worker: a token bucket, which slows down while the worker's targets are slow.

The adds of a worker delay each other, above all the adds to the same target. So the duration of an
add is divided by the number of bytes that were in flight when the add was sent. The host passes the
present time. All times are from the host's monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SLOWER_FACTOR = 2.0
"""Factor by which the newest adds must exceed the usual time, so that targets count as slow."""
STEP_MS = 1_000
"""Minimum time between two changes of the rate, which is halved, or doubled again."""
FACTOR_MIN = 1 / 64
NEWEST_WEIGHT = 0.2
USUAL_WEIGHT = 0.01
GROWTH = 1.02
"""Factor by which the usual time increases each second while targets are slow. If a cluster stays
slower, its new speed therefore counts as usual after some minutes."""
FIRST_ADDS = 32
"""Number of adds whose mean time is the first usual time. Before these adds have ended, no target
counts as slow."""
FIXED_BYTES = 64 << 10
"""Number of bytes that is added to the size of each add, because a part of the add's time does not
depend on the size. So adds of all sizes can be compared."""
UNLIMITED_RATE_MIN = 1 << 20
"""Minimum rate in bytes per second of a worker without a limit, while its targets are slow."""


@dataclass(frozen=True, slots=True)
class AddLoad:
    """The bytes in flight when an add was sent, including the bytes of this add.

    Attributes:
        target_bytes: Bytes in flight to the target of the add.
        total_bytes: Bytes in flight to all targets.
    """

    target_bytes: int
    total_bytes: int


@dataclass(slots=True)
class UsualTime:
    """The usual time and the newest time of adds, both divided by the bytes in flight."""

    _usual_ms: float = 0.0
    _newest_ms: float = 0.0
    _count: int = 0
    _grown_ms: float = 0.0

    def note(self, duration_ms: float, in_flight_bytes: int, now_ms: float) -> None:
        """Include the measured duration of an add.

        The usual time changes slowly, and grows steadily while adds are slow.
        """
        taken_ms = duration_ms * FIXED_BYTES / (FIXED_BYTES + in_flight_bytes)
        self._count += 1
        if self._count <= FIRST_ADDS:
            self._usual_ms += (taken_ms - self._usual_ms) / self._count
            self._newest_ms = self._usual_ms
            return
        self._newest_ms += NEWEST_WEIGHT * (taken_ms - self._newest_ms)
        if not self.is_slow:
            self._usual_ms += USUAL_WEIGHT * (taken_ms - self._usual_ms)
        elif now_ms - self._grown_ms >= STEP_MS:
            self._usual_ms *= GROWTH
            self._grown_ms = now_ms

    @property
    def is_slow(self) -> bool:
        """Whether the newest adds take much longer than usual."""
        return self._newest_ms > SLOWER_FACTOR * self._usual_ms


@dataclass(slots=True)
class CopyPace:
    """Limits the number of bytes that a worker copies per second (AUTORECOVERY.md#X11).

    Attributes:
        bytes_per_second_max: Maximum number of bytes per second; 0 if there is no limit.
        factor: The present part of the maximum rate, or of the measured rate; at most 1.
    """

    bytes_per_second_max: int = 0
    factor: float = 1.0
    _due_ms: float = 0.0
    _by_target: UsualTime = field(default_factory=UsualTime)
    _by_total: UsualTime = field(default_factory=UsualTime)
    _in_flight: Counter[str] = field(default_factory=Counter)  # number of bytes for each target
    _changed_ms: float = 0.0
    _measured: float = 0.0  # measured bytes per second of a worker without a limit
    _measured_from_ms: float = 0.0
    _measured_bytes: int = 0
    _taken_ms: float = 0.0

    def take(self, size_bytes: int, now_ms: float) -> float:
        """Take bytes from the bucket. Return the time to wait before the next copy, in ms."""
        self._measure(size_bytes, now_ms)
        rate = self.rate()
        if not rate:
            return 0.0
        self._due_ms = max(self._due_ms, now_ms) + 1e3 * size_bytes / rate
        return self._due_ms - now_ms

    def rate(self) -> float:
        """Return the number of bytes that may be copied per second now; 0 if there is no limit."""
        if self.bytes_per_second_max:
            return self.bytes_per_second_max * self.factor
        return max(UNLIMITED_RATE_MIN, self._measured * self.factor) if self.factor < 1 else 0.0

    @contextmanager
    def adding(self, target: str, size_bytes: int) -> Iterator[AddLoad]:
        """Count the bytes of an add as in flight while the block runs."""
        self._in_flight[target] += size_bytes
        try:
            yield AddLoad(self._in_flight[target], self._in_flight.total())
        finally:
            self._in_flight[target] -= size_bytes
            if not self._in_flight[target]:
                del self._in_flight[target]

    def add_took(self, duration_ms: float, now_ms: float, load: AddLoad) -> None:
        """Include the measured duration of an add. Then halve the rate if targets are slow.

        Targets are slow if adds are slow in relation both to the bytes in flight to their target
        and to the bytes in flight to all targets. If adds are slow only in relation to the bytes to
        their target, the worker itself may be busy with other targets. If adds are slow only in
        relation to the bytes to all targets, the worker may use fewer targets than before.
        """
        self._by_target.note(duration_ms, load.target_bytes, now_ms)
        self._by_total.note(duration_ms, load.total_bytes, now_ms)
        is_slow = self._by_target.is_slow and self._by_total.is_slow
        if now_ms - self._changed_ms >= STEP_MS:
            before = self.factor
            self.factor = max(FACTOR_MIN, before / 2) if is_slow else min(1.0, 2 * before)
            if self.factor != before:
                self._changed_ms = now_ms
            if before >= 1 and self.factor < 1 and not self._measured:
                elapsed_ms = max(1.0, now_ms - self._measured_from_ms)
                self._measured = 1e3 * self._measured_bytes / elapsed_ms

    def _measure(self, size_bytes: int, now_ms: float) -> None:
        """Measure the rate of a worker without a limit. If targets are slow, this rate is halved.

        The measurement leaves out times in which nothing is copied.
        """
        if now_ms - self._taken_ms >= STEP_MS:
            self._measured_bytes, self._measured_from_ms = 0, now_ms
        self._taken_ms = now_ms
        self._measured_bytes += size_bytes
        elapsed_ms = now_ms - self._measured_from_ms
        if elapsed_ms >= STEP_MS:
            if self.factor >= 1:
                self._measured = 1e3 * self._measured_bytes / elapsed_ms
            self._measured_bytes, self._measured_from_ms = 0, now_ms
