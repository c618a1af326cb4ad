"""Numbers of requests: one sequence for a machine and all its parts."""

from __future__ import annotations


class RequestNumbers:
    """The numbers 1, 2, 3, ... Each is used once, so an old reply never matches a new request."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """Return a number that no earlier call returned."""
        self.last += 1
        return self.last
