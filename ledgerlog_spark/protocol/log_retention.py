"""Which rows `retentionMs` and `retentionBytes` let go (DESIGN 6.6; docs/LOGS.md U8).

Retention drops whole items, oldest first, and only once that frees a ledger: until then it would
end versions and win no space. It never drops the newest item by size, so a log always holds at
least `retentionBytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.log_messages import AskedTime
from ledgerlog_spark.protocol.log_truncate import TruncateMachine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log_records import Item, LogHead

KEPT = -1
"""Value of a retention property that drops nothing."""


class RetentionMachine(TruncateMachine):
    """Ends with `Finished(Truncated)` of what retention let go, if anything; both kinds of logs.

    Attributes:
        next_due_ms: When the next item is too old, None when age drops none.
    """

    asked_time = AskedTime.EXACT
    __slots__ = ("_retention_bytes", "_retention_ms", "next_due_ms")

    def __init__(self, log: str, *, retention_ms: int, retention_bytes: int, token: str) -> None:
        """Machine of one pass.

        Args:
            log: Name, for messages.
            retention_ms: Items whose youngest row is older than this may go; -1 keeps them.
            retention_bytes: Items may go as long as so many bytes are left; -1 keeps them.
            token: 32 random hexadecimal digits.
        """
        super().__init__(log, offset=0, token=token)
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self.next_due_ms: int | None = None

    def _target(self, head: LogHead, items: Sequence[Item]) -> int:
        since_ms = self._now_ms - self._retention_ms if self._retention_ms != KEPT else 0
        if self._retention_ms != KEPT:
            younger = [item.newest_ms for item in items if item.newest_ms >= since_ms]
            oldest_ms = min(younger, default=self._now_ms)
            self.next_due_ms = oldest_ms + self._retention_ms + 1
        count = due_items(
            items,
            since_ms=since_ms,
            retention_bytes=self._retention_bytes,
            start_offset=head.start_offset,
        )
        return items[count - 1].end_offset if count else 0


def due_items(
    items: Sequence[Item], *, since_ms: int, retention_bytes: int, start_offset: int
) -> int:
    """How many of the oldest items are to go.

    Args:
        items: All that are listed, by offset.
        since_ms: Items whose youngest row came before this go; those that do not say when go with
            the next one that does.
        retention_bytes: Items go as long as so many bytes of the newest version are left; -1 keeps
            them.
        start_offset: Of the newest version: what lies before is not counted as left.
    """
    by_age = max(
        (place for place, item in enumerate(items, 1) if 0 < item.newest_ms < since_ms), default=0
    )
    by_size = 0
    if retention_bytes != KEPT:
        left = sum(item.size_bytes for item in items if item.end_offset > start_offset)
        for place, item in enumerate(items, 1):
            if item.end_offset <= start_offset:
                continue
            left -= item.size_bytes
            if left < retention_bytes or place == len(items):
                break
            by_size = place
    count = max(by_age, by_size)
    kept = {item.ledger_id for item in items[count:]}
    return count if any(item.ledger_id not in kept for item in items[:count]) else 0
