"""The tokens under which a leader changes the list: a span of its own for each change."""

from __future__ import annotations

_STEP = 1_000
"""Tokens that one change of the list may use up, one for each of its attempts."""
_END = 1 << 128


class LeaderTokens:
    """Counts on from one random token."""

    __slots__ = ("_next",)

    def __init__(self, first: str) -> None:
        self._next = int(first, 16)

    def take(self) -> str:
        """32 hexadecimal digits; the following ones are this change's too."""
        token, self._next = self._next, (self._next + _STEP) % _END
        return f"{token:032x}"
