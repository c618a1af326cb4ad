"""The tokens of a leader's changes of the list: a range of tokens for each change."""

from __future__ import annotations

_STEP = 1_000
"""Tokens for one change of the list, one for each of its attempts."""
_END = 1 << 128


class LeaderTokens:
    """Counts up from one random token."""

    __slots__ = ("_next",)

    def __init__(self, first: str) -> None:
        self._next = int(first, 16)

    def take(self) -> str:
        """32 hexadecimal digits; the next `_STEP - 1` tokens belong to the same change."""
        token, self._next = self._next, (self._next + _STEP) % _END
        return f"{token:032x}"
