"""Numbers of requests: one sequence for a machine and all its parts."""

from __future__ import annotations


class RequestNumbers:
    """1, 2, 3, ... No number is used twice, so an old reply never matches a new request."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """A number that was not returned before."""
        self.last += 1
        return self.last
