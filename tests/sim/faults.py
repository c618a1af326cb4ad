"""Every departure from an ordinary run, by name: recorded, and left out when shrinking says so."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.draws import Draws

JITTER = "jitter"
"""Taking this deviation away makes all ordinary delays equal."""

FELT_US = 500_000
"""A fault may be felt so long after it is over: retries wait, bookies come back."""

HARMLESS = frozenset({"duplicate", "late", "refused", "stale", "tail"})
"""Kinds that stop nobody, so no budget limits them."""


class Faults:
    """Decides about deviations.

    Attributes:
        suppressed: Names of deviations that must not happen.
        happened: Names of those that did, in order.
        is_healed: No more faults: the liveness phase.
        left: How many more may happen by chance, so that a schedule still gets somewhere.
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
        """Whether a fault with this chance happens to what the key names."""
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
            name: Its first word is its kind.
            for_us: How long it lasts.
        """
        if self.is_healed or name in self.suppressed:
            return False
        self.happened.append(name)
        self.lasts(name.partition(" ")[0], for_us)
        return True

    def lasts(self, kind: str, for_us: int = 0) -> None:
        """Note that something of a kind goes on until so much later."""
        until = self.now_us() + for_us
        self._last_us[kind] = max(until, self._last_us.get(kind, 0))

    def happened_between(self, kind: str, began_us: int) -> bool:
        """Whether a fault of a kind was felt between `began_us` and now."""
        return self._last_us.get(kind, -FELT_US - 1) + FELT_US >= began_us
