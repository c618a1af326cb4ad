"""Every departure from an ordinary run, by name: recorded, and left out when shrinking says so."""

from __future__ import annotations

from tests.sim.draws import Draws

JITTER = "jitter"
"""Taking this deviation away makes all ordinary delays equal."""


class Faults:
    """Decides about deviations.

    Attributes:
        suppressed: Names of deviations that must not happen.
        happened: Names of those that did, in order.
        is_healed: No more faults: the liveness phase.
    """

    def __init__(self, draws: Draws, suppressed: frozenset[str] = frozenset()) -> None:
        self.draws = draws
        self.suppressed = suppressed
        self.happened: list[str] = []
        self.is_healed = False
        self.has_jitter = JITTER not in suppressed

    def happens(self, rate: float, *key: object) -> bool:
        """Whether a fault with this chance happens to what the key names."""
        if rate <= 0.0 or self.is_healed or self.draws.uniform(*key) >= rate:
            return False
        return self.take(" ".join(map(str, key)))

    def take(self, name: str) -> bool:
        """Let a deviation happen unless it is suppressed."""
        if self.is_healed or name in self.suppressed:
            return False
        self.happened.append(name)
        return True
