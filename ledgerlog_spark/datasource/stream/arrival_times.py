"""When the records of a leader log came, as far as a stream has seen the log grow.

Pure. A leader log has no commits, and its list says of a ledger only when the youngest record came.
So each look at the log adds how far it went by then, and when its last record had come.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log.state.records import Item

LOOKS_MAX = 4096
"""With more of them every second one is forgotten: older times become less exact."""


class ArrivalTimes:
    """Ends that a log was seen to have, rising, and when the record before each came."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times_ms: list[int] = []

    def note(self, items: Sequence[Item]) -> None:
        """Take along what is new in a look at the log."""
        seen = self._ends[-1] if self._ends else 0
        for item in items[bisect_right(items, seen, key=lambda item: item.end_offset) :]:
            self._ends.append(item.end_offset)
            self._times_ms.append(item.newest_ms)
        while len(self._ends) > LOOKS_MAX:
            del self._ends[:-1:2], self._times_ms[:-1:2]

    def came_ms(self, offset: int) -> int:
        """When the record at `offset` came, at the latest; 0 when that is not known."""
        place = bisect_right(self._ends, offset)
        return self._times_ms[place] if place < len(self._times_ms) else 0
