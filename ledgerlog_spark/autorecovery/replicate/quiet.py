"""Measures how long open ledgers have got no entry, by the monotonic clock of one worker."""

from __future__ import annotations

LEDGERS_MAX = 10_000
"""Maximum number of ledgers that are remembered. The ledger that was measured first is forgotten
first."""


class QuietLedgers:
    """The last entry of each measured ledger, and when this entry was first seen."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def measure(self, ledger_id: int, last_entry_id: int, now_ms: float) -> int:
        """Note the last entry of a ledger. Return the time since it was first noted, in ms."""
        before = self._seen.get(ledger_id)
        if before is None or before[0] != last_entry_id:
            self._seen.pop(ledger_id, None)
            self._seen[ledger_id] = last_entry_id, now_ms
            while len(self._seen) > LEDGERS_MAX:
                del self._seen[next(iter(self._seen))]
            return 0
        return int(now_ms - before[1])
