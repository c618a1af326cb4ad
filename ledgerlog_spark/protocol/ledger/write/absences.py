"""The absent bookies of a writer's ensemble, and when the writer tries them again.

A bookie is *absent* if a fragment names it and the writer sends it nothing, because it does not
answer and no other bookie can replace it (PROTOCOL.md#B20). It may be registered and still not
answer, for example behind a partition. Each return begins a fragment, so after a return in vain the
writer waits twice as long before the next one.
"""

from __future__ import annotations

DOUBLINGS_MAX = 6
"""A bookie that returned in vain many times is tried at every 64th list of the bookies."""


class Absences:
    """The absent bookies, by their indexes in the ensemble."""

    def __init__(self) -> None:
        self.returns: dict[int, int] = {}  # index -> returns since the bookie last stored an entry
        self._lists_left: dict[int, int] = {}  # index -> lists with the bookie that are passed over

    def __bool__(self) -> bool:
        """Whether a bookie is absent."""
        return bool(self._lists_left)

    def __contains__(self, index: int) -> bool:
        """Whether the bookie at `index` is absent."""
        return index in self._lists_left

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of the absent bookies, in ascending order."""
        return tuple(sorted(self._lists_left))

    def begin(self, index: int) -> None:
        """Record that the bookie at `index` is absent from now on."""
        returns = self.returns.get(index, 0)
        self._lists_left[index] = (1 << min(returns, DOUBLINGS_MAX)) - 1

    def is_due(self, index: int) -> bool:
        """Whether the bookie at `index`, which is listed now, is tried now. Counts the list."""
        left = self._lists_left[index]
        self._lists_left[index] = max(0, left - 1)
        return left == 0

    def end(self, index: int) -> None:
        """Record that the bookie at `index` gets entries again."""
        if self._lists_left.pop(index, None) is not None:
            self.returns[index] = self.returns.get(index, 0) + 1

    def stored(self, index: int) -> None:
        """Record that the bookie at `index` stored an entry."""
        self.returns.pop(index, None)

    def replaced(self, index: int) -> None:
        """Forget the bookie at `index`, because the metadata has another bookie there."""
        self._lists_left.pop(index, None)
        self.returns.pop(index, None)
