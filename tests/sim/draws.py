"""Random decisions by key: a decision depends only on the seed and its key.

So if one fault is left out, the other decisions stay the same, as shrinking needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """All random decisions of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = seed.to_bytes(8, "big", signed=True)

    def uniform(self, *key: object) -> float:
        """Return a number in [0, 1), which is always the same for the same key."""
        text = "|".join(map(str, key)).encode()
        return int.from_bytes(blake2b(text, digest_size=7, key=self._key).digest(), "big") / 2**56

    def integer(self, low: int, high: int, *key: object) -> int:
        """Return a number from `low` to `high`, both inclusive."""
        return low + int(self.uniform(*key) * (high - low + 1))

    def pick(self, choices: Sequence[T], *key: object) -> T:
        return choices[int(self.uniform(*key) * len(choices))]

    def shuffled(self, items: Sequence[T], *key: object) -> tuple[T, ...]:
        return tuple(sorted(items, key=lambda item: self.uniform(*key, item)))
