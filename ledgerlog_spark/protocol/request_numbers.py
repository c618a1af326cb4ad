"""Numbers of requests: one sequence for a machine and everything it is composed of."""

from __future__ import annotations


class RequestNumbers:
    """1, 2, 3, ... A number is never used twice, so an old reply never passes for a new one."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """A number that was not given out before."""
        self.last += 1
        return self.last
