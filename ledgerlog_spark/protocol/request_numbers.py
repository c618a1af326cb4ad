"""The numbers of requests. A machine and all its parts share one sequence."""

from __future__ import annotations


class RequestNumbers:
    """The numbers 1, 2, 3, ... Each number is used once. So an old reply matches no new request."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """Return a number that no earlier call returned."""
        self.last += 1
        return self.last
