"""All deviations from a run without faults, by name. They are recorded, and can be left out."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.draws import Draws

JITTER = "jitter"
"""The name of a deviation. If it is suppressed, all ordinary delays are equal."""

FELT_US = 500_000
"""A fault may have effects until this time after its end, because of retries and restarts."""

HARMLESS = frozenset({"duplicate", "late", "refused", "stale", "tail"})
"""Kinds of deviations that stop no client, so the number of deviations is not limited."""


class Faults:
    """Decides about deviations.

    Attributes:
        suppressed: Names of the deviations that must not happen.
        happened: Names of the deviations that happened, in order.
        is_healed: Whether no more faults happen, because the liveness phase has begun.
        left: How many more random faults may happen. The limit lets a schedule make progress.
        now_us: The time.
    """

    def __init__(
        self,
        draws: Draws,
        suppressed: frozenset[str] = frozenset(),
        *,
        budget: int = 1 << 30,
        now_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self.draws = draws
        self.suppressed = suppressed
        self.happened: list[str] = []
        self.is_healed = False
        self.has_jitter = JITTER not in suppressed
        self.left = budget
        self.now_us = now_us
        self._last_us: dict[str, int] = {}

    def happens(self, rate: float, *key: object) -> bool:
        """Decide whether the fault with this key happens, with the probability `rate`."""
        if rate <= 0.0 or self.is_healed or self.draws.uniform(*key) >= rate:
            return False
        counts = key[0] not in HARMLESS
        if counts and self.left <= 0:
            return False
        if not self.take(" ".join(map(str, key))):
            return False
        self.left -= counts
        return True

    def take(self, name: str, *, for_us: int = 0) -> bool:
        """Let a deviation happen unless it is suppressed.

        Args:
            name: The name of the deviation; its first word is the kind.
            for_us: The duration of the deviation.
        """
        if self.is_healed or name in self.suppressed:
            return False
        self.happened.append(name)
        self.lasts(name.partition(" ")[0], for_us)
        return True

    def lasts(self, kind: str, for_us: int = 0) -> None:
        """Record that a deviation of this kind lasts for `for_us`."""
        until = self.now_us() + for_us
        self._last_us[kind] = max(until, self._last_us.get(kind, 0))

    def happened_between(self, kind: str, began_us: int) -> bool:
        """Whether a fault of this kind could have effects between `began_us` and now."""
        return self._last_us.get(kind, -FELT_US - 1) + FELT_US >= began_us
