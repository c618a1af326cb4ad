"""The absent bookies of a writer's ensemble, and when the writer tries them again.

A bookie is *absent* if a fragment names it and the writer sends it nothing, because it does not
answer and no other bookie can replace it (PROTOCOL.md#B20). A bookie may be registered and still
not answer, for example during a network partition. Each return of a bookie begins a fragment. If
the bookie then stores nothing, the writer doubles the wait before the bookie's next return.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger.quorum import is_acknowledged
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline
from ledgerlog_spark.protocol.ledger.write.ensemble_change import FailedBookies

DOUBLINGS_MAX = 6
"""Maximum number of times that the wait is doubled. After this number of returns without success, a
bookie is tried only at every 64th list of bookies."""


class Absences:
    """The absent bookies, by their indexes in the ensemble. Each absent bookie has failed."""

    def __init__(self, quorum: Quorum, pipeline: AddPipeline, failed: FailedBookies) -> None:
        self._quorum = quorum
        self._pipeline = pipeline
        self._failed = failed
        # index -> number of returns since the bookie last stored an entry
        self.returns: dict[int, int] = {}
        # index -> number of lists with this bookie that are ignored before it is tried again
        self._lists_left: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether at least one bookie is absent."""
        return bool(self._lists_left)

    def __contains__(self, index: int) -> bool:
        """Whether the bookie at `index` is absent."""
        return index in self._lists_left

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of the absent bookies, in ascending order."""
        return tuple(sorted(self._lists_left))

    @property
    def others(self) -> tuple[int, ...]:
        """Indexes of the failed bookies that are not absent, in ascending order."""
        return tuple(index for index in self._failed.indexes if index not in self)

    def leave_out(self, indexes: Iterable[int]) -> bool:
        """Make failed bookies absent if the other bookies are enough for each ack quorum.

        Return whether the other bookies are enough.
        """
        size = self._quorum.ensemble_size
        answering = sum(1 << index for index in range(size) if index not in self._failed.indexes)
        if not is_acknowledged(self._quorum, answering, 0, size):
            return False
        for index in indexes:
            self.begin(index)
        return True

    def make_room(self) -> None:
        """If the window is full, stop keeping entries for bookies without a replacement."""
        if not self._pipeline.can_add:
            self.leave_out([index for index in self._failed.waiting if index not in self])

    def begin(self, index: int) -> None:
        """Make the failed bookie at `index` absent."""
        self._pipeline.leave_out(index)
        returns = self.returns.get(index, 0)
        self._lists_left[index] = (1 << min(returns, DOUBLINGS_MAX)) - 1

    def is_due(self, index: int) -> bool:
        """Count a list of bookies that contains the bookie at `index`.

        Return whether to try this bookie now.
        """
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
        """Forget the bookie at `index`, because the metadata has another bookie at this index."""
        self._lists_left.pop(index, None)
        self.returns.pop(index, None)
